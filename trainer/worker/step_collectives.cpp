#include "trainer/worker/step_collectives.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "kernels/gemm/gemm.h"
#include "schedules/step/breakdown.h"

namespace lockstep::trainer {
namespace {

using collectives::Kind;
using schedules::Comm;

Kind kind_of(Comm comm) {
  switch (comm) {
    case Comm::all_reduce:
      return Kind::all_reduce;
    case Comm::all_gather:
      return Kind::all_gather;
    case Comm::reduce_scatter:
      return Kind::reduce_scatter;
    case Comm::shift:
      return Kind::all_to_all_v;
    case Comm::broadcast:
      return Kind::broadcast;
    case Comm::reduce:
      return Kind::reduce;
    default:
      LOCKSTEP_CHECK(comm == Comm::all_to_all, "the task is a collective");
      return Kind::all_to_all;
  }
}

// Returns the user's algorithm if the collective has it (all-gathers, e.g., have no "tree"), otherwise "auto".
std::string algorithm_for(Kind kind, int ranks, const std::string& wanted) {
  if (kind == Kind::all_reduce) return wanted;
  const std::string name = wanted.substr(0, wanted.find(':'));
  const auto names = backends::algorithm_names(backends::find_backend("local"), kind, ranks);
  return std::find(names.begin(), names.end(), name) != names.end() ? wanted : "auto";
}

}  // namespace

StepCollectives::StepCollectives(backends::MeshRank& mesh, const ChannelMap& channels, CollectiveOptions options,
                                 parallel::Memory& memory)
    : mesh_(mesh),
      channels_(channels),
      options_(std::move(options)),
      memory_(memory),
      lane_pool_(1),
      lane_(lane_pool_),
      weight_pool_(1),
      weight_lane_(weight_pool_) {
  kernels::choose_gemms_by_rule(
      lane_);  // PowerSGD's products: every rank computes them itself and gets the same result
}

StepCollectives::Sends StepCollectives::sends(const schedules::Task& task, const schedules::Group& group,
                                              core::DType dtype) const {
  using schedules::GroupKind;
  const bool in_data = group.kind == GroupKind::data;
  if (task.op == schedules::Op::unshard && task.comm == Comm::all_gather && in_data &&
      options_.weights != workload::CompressionWay::none) {
    return Sends::weight_codes;
  }
  if (!options_.compression.given() || task.op != schedules::Op::reduce_grad || dtype != core::DType::f32) {
    return Sends::elements;
  }
  if (task.comm == Comm::all_reduce && (in_data || group.kind == GroupKind::replicas)) return Sends::compressed_sum;
  const bool scatters = task.comm == Comm::reduce_scatter && in_data && options_.compresses_scatters;
  if (!scatters) return Sends::elements;
  return options_.near_ranks > 0 ? Sends::two_hop_scatter : Sends::compressed_scatter;
}

double StepCollectives::sent_bytes(schedules::Lane lane) const {
  const auto first = sent_bytes_.begin() + static_cast<std::ptrdiff_t>(place_of(lane, schedules::GroupKind{}));
  return std::accumulate(first, first + schedules::kNumGroupKinds, 0.0);
}

void StepCollectives::count_sent(Sends sends, const schedules::Task& task, const schedules::Group& group,
                                 std::int64_t count, std::int64_t payload) {
  using schedules::GroupKind;
  const auto ranks = static_cast<int>(group.ranks.size());
  const auto add = [&](GroupKind kind, double bytes) { sent_bytes_[place_of(task.lane, kind)] += bytes; };
  const auto add_exchange = [&](GroupKind kind, const workload::CompressedExchange& exchange, int among) {
    add(kind, static_cast<double>(wire_bytes(exchange, among)));
  };
  const workload::Compression& compression = options_.compression;
  switch (sends) {
    case Sends::elements:
      return add(group.kind, schedules::wire_bytes(task.comm, payload, ranks));
    case Sends::compressed_sum:
      return add(group.kind, static_cast<double>(workload::wire_bytes(compression, count, ranks)));
    case Sends::compressed_scatter:
      return add_exchange(group.kind, workload::scatter_of(compression, count * ranks, ranks), ranks);
    case Sends::two_hop_scatter: {
      const auto hops = workload::two_hops_of(compression, count * ranks, ranks, options_.near_ranks);
      add_exchange(GroupKind::near, hops.near, options_.near_ranks);
      return add_exchange(GroupKind::far, hops.far, ranks / options_.near_ranks);
    }
    case Sends::weight_codes:
      return add_exchange(group.kind, workload::weight_gather_of(options_.weights, count * ranks, ranks), ranks);
  }
}

std::size_t StepCollectives::channel_of(const schedules::Step& step, const schedules::Task& task,
                                        schedules::GroupKind kind) const {
  const std::int32_t rank = mesh_.messages.rank();
  const auto found = std::find_if(step.groups.begin(), step.groups.end(), [&](const schedules::Group& group) {
    return group.kind == kind && std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
  });
  LOCKSTEP_CHECK(found != step.groups.end(), "the step has a group of the kind that a collective needs");
  return channels_.of(task.lane, *found);
}

void StepCollectives::run(const schedules::Step& step, const schedules::Task& task, const kernels::In& input,
                          const kernels::Out& output, const Matrix& matrix, int root) {
  if (use_ == CollectiveUse::leave_out) return;
  const schedules::Group& group = step.groups[static_cast<std::size_t>(task.peer)];
  if (task.comm == Comm::shift) return shift(step, task, group, input, output, matrix);
  if (matrix != nullptr) return run_ragged(group, task, input, output, matrix);
  const auto ranks = static_cast<std::int64_t>(group.ranks.size());
  const Sends sent = sends(task, group, output.dtype);
  const bool typed = collectives::has_op(kind_of(task.comm)) || sent == Sends::weight_codes;
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(output.dtype));
  // elements per block (collectives/collective.h)
  std::int64_t count = task.comm == Comm::all_gather ? input.elems : output.elems;
  if (task.comm == Comm::all_to_all) count /= ranks;
  const std::int64_t payload = std::max(input.elems, output.elems) * elem_bytes;
  const auto* const in = static_cast<const std::byte*>(input.data);
  const auto* const out = static_cast<const std::byte*>(output.data);
  const bool in_place = in < out + output.elems * elem_bytes && out < in + input.elems * elem_bytes;
  const bool sums = sent != Sends::elements && sent != Sends::weight_codes;
  const Key key{channels_.of(task.lane, group),
                task.comm,
                typed ? count : count * elem_bytes,
                typed ? output.dtype : core::DType::u8,
                in_place,
                nullptr,
                sums && options_.compression.remembers() ? Bucket{task.stage, task.part} : kAnyBucket,
                root};
  collectives::Collective& collective = *prepared(step, task, group, key).collective;
  if (use_ == CollectiveUse::make) return;
  collective.run(input.data, output.data);
  count_sent(sent, task, group, count, payload);
}

// Sends a different size to each peer, mostly none: an all-to-all of such blocks.
void StepCollectives::shift(const schedules::Step& step, const schedules::Task& task, const schedules::Group& group,
                            const kernels::In& input, const kernels::Out& output, const Matrix& bytes_of_pairs) {
  LOCKSTEP_CHECK(bytes_of_pairs != nullptr, "a shift has its bytes by pair of ranks");
  const Key key{channels_.of(task.lane, group), task.comm, 0, core::DType::u8, false, bytes_of_pairs, kAnyBucket, 0};
  collectives::Collective& collective = *prepared(step, task, group, key).collective;
  if (use_ == CollectiveUse::make) return;
  collective.run(input.given() ? input.data : &nothing_, output.given() ? output.data : &nothing_);
  sent_bytes_[place_of(task.lane, group.kind)] += static_cast<double>(kernels::size_bytes(input.dtype, input.elems));
}

void StepCollectives::run_ragged(const schedules::Group& group, const schedules::Task& task, const kernels::In& input,
                                 const kernels::Out& output,
                                 const std::shared_ptr<const collectives::CountMatrix>& matrix) {
  const collectives::Operation operation{
      .kind = Kind::all_to_all_v, .count = 0, .dtype = output.dtype, .op = core::ReduceOp::sum, .matrix = matrix};
  const std::size_t channel = channels_.of(task.lane, group);
  auto& kept = ragged_[static_cast<std::size_t>(task.lane)];
  kept.push_back(
      mesh_.prepare(channel, operation, algorithm_for(operation.kind, matrix->num_ranks, options_.algorithm)));
  if (kept.size() > kRaggedKept) kept.pop_front();
  kept.back().collective->run(input.data, output.data);
  const auto& members = channels_.channels()[channel];
  const auto own = static_cast<int>(std::find(members.begin(), members.end(), mesh_.messages.rank()) - members.begin());
  std::int64_t elems = 0;
  for (int to = 0; to < matrix->num_ranks; ++to) elems += to == own ? 0 : matrix->at(own, to);
  sent_bytes_[place_of(task.lane, group.kind)] +=
      static_cast<double>(elems) * static_cast<double>(core::size_of(output.dtype));
}

void StepCollectives::count_again(const SentBytes& sent) {
  for (std::size_t place = 0; place < sent.size(); ++place) sent_bytes_[place] += sent[place];
}

void StepCollectives::forget() {
  for (auto& [bucket, state] : states_) state.calls = 0;
}

backends::Prepared StepCollectives::prepare_compressed(Sends sends, const schedules::Step& step,
                                                       const schedules::Task& task, const schedules::Group& group,
                                                       const Key& key) {
  const auto& [channel, comm, count, dtype, in_place, bytes_of_pairs, bucket, root] = key;
  const auto ranks = static_cast<int>(group.ranks.size());
  const auto rank =
      static_cast<int>(std::find(group.ranks.begin(), group.ranks.end(), mesh_.messages.rank()) - group.ranks.begin());
  const auto on = [this](std::size_t of) {
    return [this, of](const collectives::Operation& operation, std::string_view algorithm) {
      return mesh_.prepare(of, operation, algorithm);
    };
  };
  const auto prepare = on(channel);
  if (sends == Sends::weight_codes) {
    return parallel::prepare_weight_gather({options_.weights, count, dtype, ranks, rank}, prepare, memory_,
                                           weight_lane_);
  }
  const bool scatters = sends == Sends::compressed_scatter || sends == Sends::two_hop_scatter;
  const parallel::GradientReduction reduction{
      .compression = options_.compression,
      .elems = scatters ? count * ranks : count,
      .in_place = in_place,
      .num_ranks = ranks,
      .rank = rank,
      .algorithm = options_.algorithm,
      .seed = core::hash64(options_.seed, static_cast<std::uint64_t>(bucket.first),
                           static_cast<std::uint64_t>(bucket.second)),
      .state = bucket == kAnyBucket ? nullptr : &states_[bucket]};
  if (sends == Sends::two_hop_scatter) {
    const parallel::TwoHopCollectives places{options_.near_ranks,
                                             on(channel_of(step, task, schedules::GroupKind::near)),
                                             on(channel_of(step, task, schedules::GroupKind::far))};
    return parallel::prepare_two_hop_scatter(reduction, places, memory_, lane_);
  }
  return scatters ? parallel::prepare_reduce_scatter(reduction, prepare, memory_, lane_)
                  : parallel::prepare_reduction(reduction, prepare, memory_, lane_);
}

backends::Prepared& StepCollectives::prepared(const schedules::Step& step, const schedules::Task& task,
                                              const schedules::Group& group, const Key& key) {
  auto& of_lane = prepared_[static_cast<std::size_t>(task.lane)];
  const auto known = of_lane.find(key);
  if (known != of_lane.end()) return known->second;
  const auto& [channel, comm, count, dtype, in_place, bytes_of_pairs, bucket, root] = key;
  const auto ranks = static_cast<int>(group.ranks.size());
  const Sends sent = sends(task, group, dtype);
  if (sent != Sends::elements)
    return of_lane.emplace(key, prepare_compressed(sent, step, task, group, key)).first->second;
  const collectives::Operation operation{.kind = kind_of(comm),
                                         .count = count,
                                         .dtype = dtype,
                                         .op = core::ReduceOp::sum,
                                         .root = root,
                                         .in_place = in_place,
                                         .matrix = bytes_of_pairs};
  const std::string algorithm = algorithm_for(operation.kind, ranks, options_.algorithm);
  return of_lane.emplace(key, mesh_.prepare(channel, operation, algorithm)).first->second;
}

}  // namespace lockstep::trainer
