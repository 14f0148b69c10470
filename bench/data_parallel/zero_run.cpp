#include "bench/data_parallel/zero.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "bench/data_parallel/step_rank.h"
#include "bench/mini_train/report.h"
#include "bench/step/part.h"
#include "parallel/parameters/zero_bytes.h"
#include "workload/parameters.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::BytesByKind;
using parallel::MemoryKind;
using schedules::GroupKind;
using schedules::Lane;
using step_bench::Direction;
using step_bench::Mode;

// With prefetch the trainer gathers two units ahead (FSDP's limit); without it, one.
constexpr std::int32_t kGatheredAhead = 2;

// Removes the kinds that are not on the device.
void take_away(const workload::OffloadPlaces& places, parallel::BytesByKind& held) {
  const auto take = [&](workload::Offload place, MemoryKind kind) {
    if (place != workload::Offload::none) held[static_cast<std::size_t>(kind)] = 0;
  };
  take(places.optimizer, MemoryKind::optimizer);
  take(places.gradients, MemoryKind::gradients);
  take(places.parameters, MemoryKind::weights);
}

std::int64_t elem_bytes(core::DType dtype) {
  return static_cast<std::int64_t>(core::size_of(dtype));
}

SentBytes sent_of(const workload::Layout& row, const BucketElems& bucket, const parallel::ZeroCase& of,
                  const parallel::ZeroTraffic& traffic) {
  const parallel::ZeroPasses passes = parallel::zero_passes(row.zero, traffic);
  const std::int64_t elems_per_pass = (of.ranks - 1) * of.shard_elems();
  const auto times = [](std::int64_t count, std::int64_t bytes) { return static_cast<double>(count * bytes); };
  const auto bytes_of = [](const workload::CompressedExchange& exchange, int ranks) {
    return workload::wire_bytes(exchange, ranks);
  };
  SentBytes sent;
  sent.replicas = parallel::zero_replica_bytes(of, {.microbatches = traffic.microbatches});
  // Gathers of the forward, and of the backward if it gathers over the same ranks.
  std::int64_t over_all = passes.weights;
  if (row.secondary_ranks > 0 && bucket.gathers == parallel::ZeroGathers::forward_and_backward) {
    over_all = traffic.microbatches;
    const std::int64_t others = bucket.padded / row.secondary_ranks * (row.secondary_ranks - 1);
    sent.secondary = times(passes.weights - over_all, others * elem_bytes(row.compute));
  }
  sent.weights =
      row.weight_compression == workload::CompressionWay::none
          ? times(over_all, elems_per_pass * elem_bytes(row.compute))
          : times(over_all, bytes_of(weight_gather_of(row.weight_compression, bucket.padded, of.ranks), of.ranks));
  const std::int64_t reductions = passes.gradients;
  if (!row.compression.given() || of.replicas > 1) {
    sent.gradients = times(reductions, elems_per_pass * elem_bytes(row.gradient));
  } else if (row.near_ranks == 0) {
    sent.gradients = times(reductions, bytes_of(scatter_of(row.compression, bucket.padded, of.ranks), of.ranks));
  } else {
    const workload::TwoHops hops = two_hops_of(row.compression, bucket.padded, of.ranks, row.near_ranks);
    sent.near = times(reductions, bytes_of(hops.near, row.near_ranks));
    sent.gradients = times(reductions, bytes_of(hops.far, of.ranks / row.near_ranks));
  }
  return sent;
}

}  // namespace

ZeroBytes zero_forms(const workload::Layout& row, const std::vector<BucketElems>& buckets) {
  ZeroBytes forms;
  std::int64_t largest = 0;
  std::int64_t largest_shard = 0;
  for (const BucketElems& bucket : buckets) {
    const std::int64_t shard = bucket.padded / (row.zero > 0 ? shards_of(row) : 1);
    largest_shard = std::max(largest_shard, shard);
  }
  const workload::OffloadStaging staging =
      offload_staging(row.offload, row.optimizer, row.compute, row.gradient, largest_shard);
  for (const BucketElems& bucket : buckets) {
    const parallel::ZeroCase of{
        .elems = bucket.padded,
        .ranks = shards_of(row),
        .stage = row.zero,
        .compute = row.compute,
        .gradient = row.gradient,
        .optimizer = row.optimizer,
        .replicas = replicas_of(row),
        .secondary_ranks = bucket.gathers == parallel::ZeroGathers::forward_and_backward ? row.secondary_ranks : 0};
    parallel::BytesByKind held = parallel::zero_bytes(of);
    take_away(row.offload, held);
    if (row.update == workload::Update::per_bucket) held[static_cast<std::size_t>(MemoryKind::gradients)] = 0;
    for (std::size_t k = 0; k < held.size(); ++k) forms.held[k] += held[k];
    const parallel::ZeroTraffic traffic{.microbatches = row.microbatches, .gathers = bucket.gathers};
    const auto offloaded = parallel::offloaded_bytes(parallel::zero_passes(row.zero, traffic),
                                                     row.zero > 0 ? of.shard_elems() : of.elems, staging);
    for (std::size_t k = 0; k < offloaded.size(); ++k) forms.offloaded[k] += offloaded[k];
    const SentBytes sent = sent_of(row, bucket, of, traffic);
    for (const SentKind& kind : kSentKinds) forms.sent.*kind.bytes += sent.*kind.bytes;
    if (row.zero < 3) continue;
    const bool is_held = bucket.gathers == parallel::ZeroGathers::once_a_step;
    if (is_held) forms.most_weights += bucket.padded * elem_bytes(row.compute);
    if (!is_held) largest = std::max(largest, bucket.padded);
  }
  const std::int32_t ahead = row.prefetch ? kGatheredAhead : 1;
  forms.most_weights +=
      forms.held[static_cast<std::size_t>(MemoryKind::weights)] + ahead * largest * elem_bytes(row.compute);
  if (row.offload.parameters != workload::Offload::none) {  // shards copied to the device for gathers
    forms.most_weights +=
        (row.offload_ahead + 1) * workload::OffloadStaging::staged_bytes(largest_shard * elem_bytes(row.compute));
  }
  return forms;
}

namespace {

std::vector<BucketElems> buckets_of(trainer::RankModel& model) {
  const trainer::RankStage& stage = model.stages().front();
  const std::vector<schedules::Unit> units = workload::units_of(*stage.plan, model.layout());
  std::vector<BucketElems> buckets;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    const auto gathers = unit->held          ? parallel::ZeroGathers::once_a_step
                         : unit->in_backward ? parallel::ZeroGathers::forward_and_backward
                                             : parallel::ZeroGathers::once_a_microbatch;
    buckets.push_back({stage.store->padded_elems(static_cast<std::int32_t>(buckets.size())), gathers});
  }
  return buckets;
}

// Bytes that a rank has sent and moved since its start.
struct Moved {
  SentBytes sent = {};
  parallel::OffloadedBytes offloaded = {};
  std::int64_t activations = 0;
};

// A rank's step. Rank 0 fills in the result's formulas and what it has sent and moved.
class ZeroPart final : public StepPart {
 public:
  ZeroPart(const StepRow& row, const trainer::Corpus& corpus, backends::MeshRank& mesh,
           const trainer::ChannelMap& channels, ZeroResult& result)
      : StepPart(row, corpus, mesh, channels), row_(row), result_(result), worker_(row.made.step, rank_.model()) {
    rank_.rehearse(worker_, row.made.step);
  }

  void begin(Mode mode) override { prepare(mode); }
  // The time of the optimizer is a share.
  step_bench::Spent run(Mode /*mode*/, Direction /*direction*/) override {
    const std::vector<schedules::TaskSpan> spans = rank_.run(worker_, row_.made.step);
    const auto& tasks = row_.made.step.of_rank[static_cast<std::size_t>(rank_.rank())].tasks;
    std::int64_t ps = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].op == schedules::Op::optimizer) ps += spans[i].end_ps - spans[i].start_ps;
    }
    return {static_cast<double>(ps) / 1e6};
  }
  void begin_timed(step_bench::Findings& /*findings*/) override {
    rank_.model().memory().restart_peaks();
    before_ = moved();
    number_before_ = number_;
  }

  // Bytes of each kind between steps, the peak of each, and of all at the peak.
  std::vector<double> figures() override {
    if (is_first()) fill_in_result();
    const parallel::Memory& memory = rank_.model().memory();
    std::vector<double> figures;
    for (const BytesByKind& bytes : {memory.now(), memory.peak_of_each()})
      figures.insert(figures.end(), bytes.begin(), bytes.end());
    figures.push_back(static_cast<double>(parallel::total_of(memory.at_peak())));
    return figures;
  }

 private:
  void prepare(Mode /*mode*/) override { rank_.begin(worker_, ++number_); }

  // The all-reduce of the norm is over all ranks, and is not counted.
  Moved moved() {
    const trainer::StepCollectives& collectives = rank_.model().collectives();
    const auto of = [&](Lane lane, GroupKind kind) { return collectives.sent_bytes(lane, kind); };
    Moved moved{.sent = {.weights = of(Lane::gather, GroupKind::data),
                         .gradients = of(Lane::reduce, GroupKind::data) + of(Lane::reduce, GroupKind::far),
                         .replicas = collectives.sent_bytes(Lane::replicas),
                         .secondary = of(Lane::gather, GroupKind::secondary),
                         .near = of(Lane::reduce, GroupKind::near)},
                .activations = worker_.copied_bytes()};
    for (const trainer::RankStage& stage : rank_.model().stages()) {
      for (std::size_t k = 0; k < moved.offloaded.size(); ++k) {
        moved.offloaded[k] += stage.store->offloaded_bytes(static_cast<workload::OffloadKind>(k));
      }
    }
    return moved;
  }

  void fill_in_result() {
    const std::vector<BucketElems> buckets = buckets_of(rank_.model());
    for (const BucketElems& bucket : buckets) result_.padded += bucket.padded;
    result_.forms = zero_forms(row_.options.layout, buckets);
    const std::int64_t steps = number_ - number_before_;
    const Moved now = moved();
    for (const SentKind& kind : kSentKinds) {
      result_.sent.*kind.bytes = (now.sent.*kind.bytes - before_.sent.*kind.bytes) / static_cast<double>(steps);
    }
    for (std::size_t k = 0; k < now.offloaded.size(); ++k) {
      result_.offloaded[k] = (now.offloaded[k] - before_.offloaded[k]) / steps;
    }
    result_.activations_moved = (now.activations - before_.activations) / steps;
  }

  const StepRow& row_;
  ZeroResult& result_;
  trainer::TrainWorker worker_;
  std::int64_t number_ = 0;  // number of the optimizer step
  std::int64_t number_before_ = 0;
  Moved before_;
};

// The memory of all ranks.
void add_memory(ZeroResult& result) {
  for (const std::vector<double>& figures : result.part.figures) {
    const auto most = [&](std::int64_t& bytes, std::size_t figure) {
      bytes = std::max(bytes, static_cast<std::int64_t>(figures[figure]));
    };
    for (std::size_t k = 0; k < result.held.size(); ++k) most(result.held[k], k);
    for (std::size_t k = 0; k < result.held.size(); ++k) most(result.peak_of_each[k], result.held.size() + k);
    most(result.peak_bytes, 2 * result.held.size());
  }
  result.most_weights = result.peak_of_each[static_cast<std::size_t>(MemoryKind::weights)];
}

std::string difference(const std::string& what, double found, double wanted) {
  // both are counted in double from whole bytes times (n - 1) / n
  if (std::fabs(found - wanted) <= 1e-9 * wanted) return "";
  return what + " " + std::to_string(std::llround(found)) + " instead of " + std::to_string(std::llround(wanted)) +
         " B; ";
}

// Calls body(row, make) with a row's ranks and what makes the part of each.
template <class Body>
ZeroResult with_row(const StepFlags& flags, const trainer::TrainOptions& options, const Body& body) {
  const trainer::TrainStep made = trainer::make_train_step(options.model, options.layout);
  const std::array<const schedules::Step*, 1> steps{&made.step};
  const auto corpus = mini_train::corpus_of(options);
  const StepRow row{flags, options, made, steps};
  ZeroResult result;
  body(
      row,
      [&](backends::MeshRank& mesh, const trainer::ChannelMap& channels) {
        return std::make_unique<ZeroPart>(row, corpus, mesh, channels, result);
      },
      result);
  return result;
}

}  // namespace

double ZeroResult::step_us() const {
  return part.times.median_us(kZeroStep, Direction::forward);
}

double ZeroResult::update_us() const {
  return part.times.median_spent(kZeroStep, Direction::forward).front();
}

std::string ZeroResult::wrong() const {
  std::string text;
  for (const MemoryKind kind : {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer}) {
    const auto k = static_cast<std::size_t>(kind);
    text += difference(std::string(name_of(kind)), static_cast<double>(held[k]), static_cast<double>(forms.held[k]));
  }
  for (const SentKind& kind : kSentKinds) text += difference(kind.words, sent.*kind.bytes, forms.sent.*kind.bytes);
  constexpr std::array kOffloaded{"states offloaded", "gradients offloaded", "weights offloaded"};
  for (std::size_t k = 0; k < offloaded.size(); ++k) {
    text += difference(kOffloaded.at(k), static_cast<double>(offloaded[k]), static_cast<double>(forms.offloaded[k]));
  }
  if (most_weights > forms.most_weights) {
    text += "more weights gathered at once than " + std::to_string(forms.most_weights) + " B; ";
  }
  return text.substr(0, text.size() - std::min<std::size_t>(text.size(), 2));
}

ZeroResult run_zero(const StepFlags& flags, const trainer::TrainOptions& row) {
  return with_row(flags, row, [](const StepRow& ranks, const MakeStepPart& make, ZeroResult& result) {
    auto part = measure_step(ranks, std::array{kZeroStep}, make);
    if (!part) return;
    result.part = std::move(*part);
    add_memory(result);
  });
}

void serve_zero(const StepFlags& flags, const trainer::TrainOptions& row) {
  std::string name = mini_train::step_name(row) + "/gradients:" + std::string(core::short_name_of(row.layout.gradient));
  if (row.layout.zero == 3) name += row.layout.prefetch ? "/prefetch" : "/no prefetch";
  with_row(flags, row, [&](const StepRow& ranks, const MakeStepPart& make, ZeroResult& /*result*/) {
    serve_step(ranks, std::array{kZeroStep}, std::vector{name}, make);
  });
}

}  // namespace lockstep::parallel_bench
