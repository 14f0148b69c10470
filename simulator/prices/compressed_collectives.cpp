#include "simulator/prices/compressed_collectives.h"

#include <span>
#include <vector>

#include "schedules/step/groups.h"
#include "schedules/step/rewrite.h"
#include "simulator/prices/kernel_price.h"
#include "workload/groups.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Task;

// Replaces a collective by kernels, exchanges in sequence, and kernels.
struct Replacement {
  std::vector<workload::CompressedExchange> exchanges;
  double kernel_bytes = 0;
  std::vector<std::int32_t> groups = {};  // group of each exchange, if not the task's
};

class Compressing {
 public:
  Compressing(schedules::Step& step, const workload::Layout& layout, const Machine& machine)
      : step_(step), layout_(layout), machine_(machine), groups_(step) {}

  void run() {
    for (std::int32_t r = 0; r < step_.num_ranks(); ++r) {
      schedules::RankStep& rank = step_.of_rank[static_cast<std::size_t>(r)];
      const schedules::RankStep old = rank;
      schedules::RankRewriter out(old);
      for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
        const Replacement replacement = replacement_of(r, old.tasks[i]);
        if (replacement.exchanges.empty()) {
          out.keep(i);
        } else {
          put(out, i, old.tasks[i], replacement);
        }
      }
      rank = out.take();
    }
  }

 private:
  Replacement replacement_of(std::int32_t rank, const Task& task) const {
    if (task.comm == Comm::none) return {};
    const schedules::Group& group = step_.groups[static_cast<std::size_t>(task.peer)];
    const std::int64_t ranks = group.size();
    const bool in_data = group.kind == GroupKind::data;
    if (ranks == 1) return {};
    if (task.op == schedules::Op::unshard && task.comm == Comm::all_gather && in_data) return of_weights(task, ranks);
    const workload::Compression& compression = layout_.compression;
    if (task.op != schedules::Op::reduce_grad || !compression.given()) return {};
    const std::int64_t elems = task.amount / static_cast<std::int64_t>(sizeof(float));
    const double kernels = workload::kernel_bytes(compression, elems, ranks);
    if (task.comm == Comm::all_reduce && (in_data || group.kind == GroupKind::replicas)) {
      return {workload::exchanges_of(compression, elems, ranks), kernels};
    }
    // Without the part after the sum, about half of an all-reduce's kernels.
    const bool scatters = task.comm == Comm::reduce_scatter && in_data && replicas_of(layout_) == 1;
    if (!scatters) return {};
    if (layout_.near_ranks > 0) return in_two_hops(rank, elems, ranks);
    return {{workload::scatter_of(compression, elems, ranks)}, kernels / 2};
  }

  // Two exchanges, each with its kernels; shares are grouped by destination before the first.
  Replacement in_two_hops(std::int32_t rank, std::int64_t elems, std::int64_t ranks) const {
    const std::int64_t near = layout_.near_ranks;
    const workload::TwoHops hops = workload::two_hops_of(layout_.compression, elems, ranks, near);
    const double kernels = workload::kernel_bytes(layout_.compression, elems, near) / 2 +
                           workload::kernel_bytes(layout_.compression, elems / near, ranks / near) / 2;
    const auto group_of = [&](GroupKind kind) { return groups_.of(rank, kind, "a reduce-scatter in two hops"); };
    return {{hops.near, hops.far},
            kernels + 2.0 * sizeof(float) * static_cast<double>(elems),
            {group_of(GroupKind::near), group_of(GroupKind::far)}};
  }

  Replacement of_weights(const Task& task, std::int64_t ranks) const {
    const workload::CompressionWay way = layout_.weight_compression;
    if (way == workload::CompressionWay::none) return {};
    const std::int64_t elems = task.amount / static_cast<std::int64_t>(core::size_of(layout_.compute));
    const workload::CompressedExchange gather = workload::weight_gather_of(way, elems, ranks);
    return {{gather}, static_cast<double>(gather.bytes + task.amount)};
  }

  // Half of the kernels' traffic is before the first exchange, half after the last.
  void put(schedules::RankRewriter& out, std::uint32_t i, const Task& task, const Replacement& replacement) const {
    Task kernels = task;
    kernels.comm = Comm::none;
    kernels.peer = -1;
    const workload::OtherKernel half{.dtype = core::DType::f32, .bytes = replacement.kernel_bytes / 2};
    kernels.amount = kernel_ps(machine_.device, {half});
    std::uint32_t last = out.put(kernels, out.edges_of(i));
    for (std::size_t e = 0; e < replacement.exchanges.size(); ++e) {
      Task one = task;
      one.comm = replacement.exchanges[e].comm;
      one.amount = replacement.exchanges[e].bytes;
      if (!replacement.groups.empty()) one.peer = replacement.groups[e];
      last = out.put(one, std::span(&last, 1));
    }
    out.replace(i, out.put(kernels, std::span(&last, 1)));
  }

  schedules::Step& step_;
  const workload::Layout& layout_;
  const Machine& machine_;
  const schedules::GroupTable groups_;
};

}  // namespace

void compress_collectives(schedules::Step& step, const workload::Layout& layout, const Machine& machine) {
  if (!layout.compression.given() && layout.weight_compression == workload::CompressionWay::none) return;
  Compressing(step, layout, machine).run();
}

}  // namespace lockstep::simulator
