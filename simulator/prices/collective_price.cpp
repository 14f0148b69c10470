#include "simulator/prices/prices.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"
#include "simulator/network/collective_time.h"
#include "workload/layout.h"
#include "workload/operations.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Piece;
using schedules::Task;
using workload::RankSet;

constexpr double kPsPerUs = 1e6;

std::int64_t largest_on_a_switch(const NetworkLevel& level, const RankSet& set) {
  // The assignment of members to switches is periodic; the first switch may have fewer.
  const std::int64_t switches = level.ranks / std::gcd<std::int64_t>(level.ranks, set.stride) + 1;
  std::int64_t largest = 0;
  for (std::int64_t i = 0, seen = 0; i < set.count && seen < switches; ++seen) {
    const std::int64_t end = (set.at(i) / level.ranks + 1) * level.ranks;
    const std::int64_t next = std::min(set.count, (end - set.first + set.stride - 1) / set.stride);
    largest = std::max(largest, next - i);
    i = next;
  }
  return largest;
}

// Runs may share switches, so each member is counted.
std::int64_t largest_on_a_switch(const NetworkLevel& level, std::span<const RankSet> members) {
  std::map<std::int64_t, std::int64_t> on_switch;
  std::int64_t largest = 0;
  for (const RankSet& set : members) {
    for (std::int64_t i = 0; i < set.count; ++i) largest = std::max(largest, ++on_switch[set.at(i) / level.ranks]);
  }
  return largest;
}

std::int64_t total_of(const std::vector<schedules::Piece>& pieces, const CollectivePrice& price) {
  std::int64_t total = 0;
  PricedCollective overlapped;  // the collectives that overlap the next kernel, one after another
  for (const schedules::Piece& piece : pieces) {
    if (piece.op != schedules::Op::layer_collective) {
      total += together_ps(piece.amount, overlapped.ps, overlapped.taken);
      overlapped = {};
      continue;
    }
    const PricedCollective priced = price(piece.comm, piece.group, piece.amount);
    (piece.overlaps_next ? overlapped.ps : total) += priced.ps;
    if (piece.overlaps_next) overlapped.taken = std::max(overlapped.taken, priced.taken);
  }
  return total + overlapped.ps;
}

}  // namespace

std::vector<std::int64_t> members_per_level(const Machine& machine, std::span<const RankSet> members) {
  std::int64_t count = 0;
  for (const RankSet& set : members) count += set.count;
  std::vector<std::int64_t> most;
  for (const NetworkLevel& level : machine.levels) {
    if (&level == &machine.levels.back()) {
      most.push_back(count);
      break;
    }
    most.push_back(members.size() == 1 ? largest_on_a_switch(level, members.front())
                                       : largest_on_a_switch(level, members));
  }
  return most;
}

CollectivePrice price_in(const workload::Model& model, const workload::Layout& layout,
                         const schedules::Schedule& schedule, const Machine& machine) {
  std::vector<std::vector<std::int64_t>> members(schedules::kNumGroupKinds,
                                                 std::vector<std::int64_t>(machine.levels.size(), 1));
  for (const schedules::Group& group : workload::groups_of_places(model, layout, schedule)) {
    if (group.ranks.front() != 0) continue;
    members[static_cast<std::size_t>(group.kind)] = members_per_level(machine, workload::members_of(layout, group, 0));
  }
  return [machine, members, zero_cta = layout.zero_cta](Comm comm, GroupKind kind, std::int64_t bytes) {
    const auto best =
        best_collective(machine, comm, static_cast<double>(bytes), members[static_cast<std::size_t>(kind)], zero_cta);
    return PricedCollective{std::llround(best.time_us() * kPsPerUs), best.taken};
  };
}

std::int64_t together_ps(std::int64_t kernel_ps, std::int64_t collective_ps, double taken) {
  const std::int64_t slowed = kernel_ps + static_cast<std::int64_t>(taken * static_cast<double>(collective_ps));
  // A kernel that ends before the collective, slowed down throughout, adds no time.
  return static_cast<double>(kernel_ps) <= (1 - taken) * static_cast<double>(collective_ps) ? collective_ps : slowed;
}

schedules::StageCosts totals_of(const workload::StageWork& work, const CollectivePrice& price) {
  schedules::StageCosts costs;
  costs.forward_ps = total_of(work.recipe.forward, price);
  costs.input_gradient_ps = total_of(work.recipe.input_gradient, price);
  costs.weight_gradient_ps = std::max<std::int64_t>(0, total_of(work.recipe.backward, price) - costs.input_gradient_ps);
  costs.message_bytes = work.message_bytes;
  return costs;
}

namespace {

// True if both are of one part and one tile, as the weights of a tile are gathered separately.
bool is_alike(const Piece& a, const Piece& b) {
  return a.op == b.op && a.part == b.part &&
         tile_of(workload::piece_named(a.what)) == tile_of(workload::piece_named(b.what));
}

class Folding {
 public:
  explicit Folding(const CollectivePrice& price) : price_(price) {}

  std::vector<Piece> fold(const std::vector<Piece>& pieces) {
    made_.clear();
    first_ps_ = 0;
    first_issue_ps_ = 0;
    for (const Piece& piece : pieces) {
      if (piece.comm == Comm::none) {
        kernel(piece);
      } else {
        collective(piece);
      }
    }
    settle();
    if (!made_.empty()) {
      made_.front().amount += first_ps_;
      made_.front().issue_ps += first_issue_ps_;
    }
    return merged();
  }

 private:
  void kernel(Piece piece) {
    piece.amount = together_ps(piece.amount, overlapped_.ps, overlapped_.taken);
    overlapped_ = {};
    made_.push_back(piece);
  }

  void collective(const Piece& piece) {
    settle();  // a lane runs one collective at a time
    overlapped_ = price_(piece.comm, piece.group, piece.amount);
    (made_.empty() ? first_issue_ps_ : made_.back().issue_ps) += piece.issue_ps;
    if (!piece.overlaps_next) settle();
  }

  // Waits for the collective in flight.
  void settle() {
    (made_.empty() ? first_ps_ : made_.back().amount) += overlapped_.ps;
    overlapped_ = {};
  }

  std::vector<Piece> merged() const {
    std::vector<Piece> fewer;
    for (const Piece& piece : made_) {
      if (!fewer.empty() && is_alike(fewer.back(), piece)) {
        fewer.back().amount += piece.amount;
        fewer.back().issue_ps += piece.issue_ps;
      } else {
        fewer.push_back(piece);
      }
    }
    return fewer;
  }

  const CollectivePrice& price_;
  std::vector<Piece> made_;
  PricedCollective overlapped_;  // in flight
  std::int64_t first_ps_ = 0;    // time of collectives before the first kernel
  std::int64_t first_issue_ps_ = 0;
};

std::vector<Piece> merged(const std::vector<Piece>& pieces) {
  std::vector<Piece> fewer;
  bool mergeable = false;
  for (const Piece& piece : pieces) {
    if (piece.comm != Comm::none) {
      mergeable = false;
      fewer.push_back(piece);
      continue;
    }
    if (piece.amount == 0) continue;
    if (mergeable && is_alike(fewer.back(), piece)) {
      fewer.back().amount += piece.amount;
      fewer.back().issue_ps += piece.issue_ps;
      continue;
    }
    // A kernel after one that a collective overlaps waits for that collective: it stays a piece of its own.
    mergeable = fewer.empty() || !fewer.back().overlaps_next;
    fewer.push_back(piece);
  }
  return fewer;
}

}  // namespace

schedules::StageRecipe merge_kernels(const schedules::StageRecipe& recipe) {
  return {merged(recipe.forward), merged(recipe.backward), merged(recipe.input_gradient),
          merged(recipe.weight_gradient)};
}

schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price) {
  Folding folding(price);
  return {folding.fold(recipe.forward), folding.fold(recipe.backward), folding.fold(recipe.input_gradient),
          folding.fold(recipe.weight_gradient)};
}

namespace {

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
      Task exchange = task;
      exchange.comm = replacement.exchanges[e].comm;
      exchange.amount = replacement.exchanges[e].bytes;
      if (!replacement.groups.empty()) exchange.peer = replacement.groups[e];
      last = out.put(exchange, std::span(&last, 1));
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
