#include "bench/parallel/zero.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "bench/parallel/step_rank.h"
#include "bench/place/place.h"
#include "bench/serve/orders.h"
#include "bench/trainer/report.h"
#include "core/statistics.h"
#include "parallel/parameters/zero_bytes.h"
#include "trainer/train/train.h"
#include "workload/parameters.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::BytesByKind;
using parallel::MemoryKind;
using schedules::GroupKind;
using schedules::Lane;

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

SentBytes sent_of(const ZeroRow& row, const BucketElems& bucket, const parallel::ZeroCase& of,
                  const parallel::ZeroTraffic& traffic) {
  const parallel::ZeroPasses passes = parallel::zero_passes(row.stage, traffic);
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

void add(SentBytes& to, const SentBytes& more) {
  to.weights += more.weights;
  to.secondary += more.secondary;
  to.gradients += more.gradients;
  to.near += more.near;
  to.replicas += more.replicas;
}

}  // namespace

ZeroForms zero_forms(const ZeroRow& row, const std::vector<BucketElems>& buckets, const workload::Layout& layout) {
  const std::int32_t microbatches = layout.microbatches;
  ZeroForms forms;
  std::int64_t largest = 0;
  std::int64_t largest_shard = 0;
  for (const BucketElems& bucket : buckets) {
    const std::int64_t shard = bucket.padded / (row.stage > 0 ? row.shards() : 1);
    largest_shard = std::max(largest_shard, shard);
  }
  const workload::OffloadStaging staging =
      offload_staging(row.offload, layout.optimizer, row.compute, row.gradient, largest_shard);
  for (const BucketElems& bucket : buckets) {
    const parallel::ZeroCase of{
        .elems = bucket.padded,
        .ranks = row.shards(),
        .stage = row.stage,
        .compute = row.compute,
        .gradient = row.gradient,
        .optimizer = layout.optimizer,
        .replicas = row.replicas / row.shards(),
        .secondary_ranks = bucket.gathers == parallel::ZeroGathers::forward_and_backward ? row.secondary_ranks : 0};
    parallel::BytesByKind held = parallel::zero_bytes(of);
    take_away(row.offload, held);
    if (row.update == workload::Update::per_bucket) held[static_cast<std::size_t>(MemoryKind::gradients)] = 0;
    for (std::size_t k = 0; k < held.size(); ++k) forms.held[k] += held[k];
    const parallel::ZeroTraffic traffic{.microbatches = microbatches, .gathers = bucket.gathers};
    const auto offloaded = parallel::offloaded_bytes(parallel::zero_passes(row.stage, traffic),
                                                     row.stage > 0 ? of.shard_elems() : of.elems, staging);
    for (std::size_t k = 0; k < offloaded.size(); ++k) forms.offloaded[k] += offloaded[k];
    add(forms.sent, sent_of(row, bucket, of, traffic));
    if (row.stage < 3) continue;
    const bool is_held = bucket.gathers == parallel::ZeroGathers::once_a_step;
    if (is_held) forms.most_weights += bucket.padded * elem_bytes(row.compute);
    if (!is_held) largest = std::max(largest, bucket.padded);
  }
  const std::int32_t ahead = row.prefetch ? kGatheredAhead : 1;
  forms.most_weights +=
      forms.held[static_cast<std::size_t>(MemoryKind::weights)] + ahead * largest * elem_bytes(row.compute);
  if (row.offload.parameters != workload::Offload::none) {  // shards copied to the device for gathers
    forms.most_weights +=
        (layout.offload_ahead + 1) * workload::OffloadStaging::staged_bytes(largest_shard * elem_bytes(row.compute));
  }
  return forms;
}

namespace {

std::vector<BucketElems> buckets_of(StepRank& rank) {
  const trainer::RankStage& stage = rank.model().stages().front();
  const std::vector<schedules::Unit> units = workload::units_of(*stage.plan, rank.model().layout());
  std::vector<BucketElems> buckets;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    const auto gathers = unit->held          ? parallel::ZeroGathers::once_a_step
                         : unit->in_backward ? parallel::ZeroGathers::forward_and_backward
                                             : parallel::ZeroGathers::once_a_microbatch;
    buckets.push_back({stage.store->padded_elems(static_cast<std::int32_t>(buckets.size())), gathers});
  }
  return buckets;
}

class ZeroRank {
 public:
  ZeroRank(const ZeroFlags& flags, const trainer::TrainOptions& options, const trainer::TrainStep& made,
           const trainer::Corpus& corpus, const trainer::ChannelMap& channels, backends::MeshRank& mesh)
      : flags_(flags),
        options_(options),
        step_(made.step),
        rank_(options, made, corpus, mesh, channels),
        worker_(made.step, rank_.model()) {
    rank_.rehearse(worker_, step_);
  }

  void run(const ZeroRow& row, ZeroResult& result) {
    for (std::int64_t round = 0; round < flags_.step.warmup_rounds; ++round) rank_.run_timed(worker_, step_, ++number_);
    rank_.model().memory().restart_peaks();
    if (rank_.rank() == 0) {
      energy_.emplace(program::open_energy(options_.device, options_.mpi, options_.layout.ranks()));
    }
    const SentBytes before = sent();
    const parallel::OffloadedBytes offloaded_before = offloaded_bytes();
    const std::int64_t activations_before = worker_.copied_bytes();
    std::vector<double> samples = timed_steps();
    const auto steps = static_cast<double>(samples.size());
    const SentBytes after = sent();
    const BytesByKind held = most_of(rank_.model().memory().now());
    const BytesByKind peak_of_each = most_of(rank_.model().memory().peak_of_each());
    const BytesByKind peak = most_by_total(rank_.model().memory().at_peak());
    if (rank_.rank() != 0) return;
    const std::vector<BucketElems> buckets = buckets_of(rank_);
    result.parameters = parameters_of(options_.model);
    for (const BucketElems& bucket : buckets) result.padded += bucket.padded;
    result.held = held;
    result.peak_of_each = peak_of_each;
    result.peak_bytes = parallel::total_of(peak);
    result.sent = {.weights = (after.weights - before.weights) / steps,
                   .secondary = (after.secondary - before.secondary) / steps,
                   .gradients = (after.gradients - before.gradients) / steps,
                   .near = (after.near - before.near) / steps,
                   .replicas = (after.replicas - before.replicas) / steps};
    result.forms = zero_forms(row, buckets, options_.layout);
    result.samples_ms = std::move(samples);
    const auto timed = static_cast<std::int64_t>(result.samples_ms.size());
    result.offloaded = offloaded_bytes();
    for (std::size_t k = 0; k < result.offloaded.size(); ++k) {
      result.offloaded[k] = (result.offloaded[k] - offloaded_before[k]) / timed;
    }
    result.activations_moved = (worker_.copied_bytes() - activations_before) / timed;
    result.update_ms = std::move(update_ms_);
    result.energy = energy_->record(options_.tokens_per_step());
    result.energy_text = energy_->text(options_.tokens_per_step());
  }

  void serve(serve::Orders* orders) {
    serve::serve_ranks(orders, rank_.mesh().messages, [&](std::size_t /*one*/, std::int64_t calls) {
      return serve::us_of_calls(calls, [&] { rank_.run_timed(worker_, step_, ++number_); });
    });
  }

 private:
  parallel::OffloadedBytes offloaded_bytes() {
    parallel::OffloadedBytes bytes = {};
    for (const trainer::RankStage& stage : rank_.model().stages()) {
      for (std::size_t k = 0; k < bytes.size(); ++k) {
        bytes[k] += stage.store->offloaded_bytes(static_cast<workload::OffloadKind>(k));
      }
    }
    return bytes;
  }
  double update_ms(const std::vector<schedules::TaskSpan>& spans) const {
    const auto& tasks = step_.of_rank[static_cast<std::size_t>(rank_.rank())].tasks;
    std::int64_t ps = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].op == schedules::Op::optimizer) ps += spans[i].end_ps - spans[i].start_ps;
    }
    return static_cast<double>(ps) / 1e9;
  }

  // Bytes sent so far. The all-reduce of the norm is over all ranks.
  SentBytes sent() {
    const trainer::StepCollectives& collectives = rank_.model().collectives();
    const auto of = [&](Lane lane, GroupKind kind) { return collectives.sent_bytes(lane, kind); };
    return {.weights = of(Lane::gather, GroupKind::data),
            .secondary = of(Lane::gather, GroupKind::secondary),
            .gradients = of(Lane::reduce, GroupKind::data) + of(Lane::reduce, GroupKind::far),
            .near = of(Lane::reduce, GroupKind::near),
            .replicas = collectives.sent_bytes(Lane::replicas)};
  }

  std::vector<double> timed_steps() {
    const std::int64_t begin_ns = transports::now_ns();
    std::vector<double> samples;
    for (std::int64_t round = 0; round < flags_.step.rounds; ++round) {
      const double spent_s = static_cast<double>(transports::now_ns() - begin_ns) * 1e-9;
      const double budget_s = flags_.step.budget_s;
      if (!agreed(rank_.mesh(), round == 0 || budget_s == 0 || spent_s < budget_s)) break;
      if (energy_) energy_->begin_step();
      const StepRank::Timed step = rank_.run_timed(worker_, step_, ++number_);
      samples.push_back(step.ms);
      const std::vector<double> all = transports::all_gather_value(rank_.mesh().messages, update_ms(step.spans));
      update_ms_.push_back(*std::max_element(all.begin(), all.end()));
      if (energy_) energy_->end_step();
    }
    return samples;
  }

  BytesByKind most_of(const BytesByKind& mine) {
    BytesByKind most{};
    for (const BytesByKind& one : transports::all_gather_value(rank_.mesh().messages, mine)) {
      for (std::size_t k = 0; k < most.size(); ++k) most[k] = std::max(most[k], one[k]);
    }
    return most;
  }
  BytesByKind most_by_total(const BytesByKind& mine) {
    const std::vector<BytesByKind> all = transports::all_gather_value(rank_.mesh().messages, mine);
    return *std::max_element(all.begin(), all.end(), [](const BytesByKind& a, const BytesByKind& b) {
      return parallel::total_of(a) < parallel::total_of(b);
    });
  }

  const ZeroFlags& flags_;
  const trainer::TrainOptions& options_;
  const schedules::Step& step_;
  StepRank rank_;
  trainer::TrainWorker worker_;
  std::int64_t number_ = 0;
  std::vector<double> update_ms_;
  std::optional<program::StepEnergy> energy_;  // on rank 0
};

std::string difference(const std::string& what, double found, double wanted) {
  // both are counted in double from whole bytes times (n - 1) / n
  if (std::fabs(found - wanted) <= 1e-9 * wanted) return "";
  return what + " " + std::to_string(std::llround(found)) + " instead of " + std::to_string(std::llround(wanted)) +
         " B; ";
}

// Calls body(rank, index) on all ranks of a row.
void on_ranks(const ZeroFlags& flags, const ZeroRow& row, const std::function<void(ZeroRank&, int index)>& body) {
  const trainer::TrainOptions options = options_of(flags, row);
  const trainer::TrainStep made = trainer::make_train_step(options.model, options.layout);
  const std::array<const schedules::Step*, 1> steps{&made.step};
  const auto corpus = trainer::Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  trainer::run_ranks(options, made, steps, [&](backends::MeshRank& mesh, const trainer::ChannelMap& channels) {
    ZeroRank rank(flags, options, made, corpus, channels, mesh);
    body(rank, mesh.messages.rank());
  });
}

}  // namespace

double ZeroResult::update_median_ms() const {
  return core::median(update_ms);
}

double ZeroResult::offloaded_bytes() const {
  return static_cast<double>(std::accumulate(offloaded.begin(), offloaded.end(), activations_moved));
}

double ZeroResult::step_ms() const {
  return core::median(samples_ms);
}

std::string ZeroResult::wrong() const {
  std::string text;
  for (const MemoryKind kind : {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer}) {
    const auto k = static_cast<std::size_t>(kind);
    text += difference(std::string(name_of(kind)), static_cast<double>(held[k]), static_cast<double>(forms.held[k]));
  }
  text += difference("weights sent", sent.weights, forms.sent.weights);
  text += difference("weights sent from a secondary copy", sent.secondary, forms.sent.secondary);
  text += difference("gradients sent", sent.gradients, forms.sent.gradients);
  text += difference("gradients sent to neighbours", sent.near, forms.sent.near);
  text += difference("gradients sent over replicas", sent.replicas, forms.sent.replicas);
  constexpr std::array kOffloaded{"states offloaded", "gradients offloaded", "weights offloaded"};
  for (std::size_t k = 0; k < offloaded.size(); ++k) {
    text += difference(kOffloaded.at(k), static_cast<double>(offloaded[k]), static_cast<double>(forms.offloaded[k]));
  }
  if (peak_of_each[static_cast<std::size_t>(MemoryKind::weights)] > forms.most_weights) {
    text += "more weights gathered at once than " + std::to_string(forms.most_weights) + " B; ";
  }
  return text.substr(0, text.size() - std::min<std::size_t>(text.size(), 2));
}

ZeroResult run_zero(const ZeroFlags& flags, const ZeroRow& row) {
  ZeroResult result;
  on_ranks(flags, row, [&](ZeroRank& rank, int /*index*/) { rank.run(row, result); });
  return result;
}

void serve_zero(const ZeroFlags& flags, const ZeroRow& row) {
  std::string name =
      mini_train::step_name(options_of(flags, row)) + "/gradients:" + std::string(core::short_name_of(row.gradient));
  if (row.stage == 3) name += row.prefetch ? "/prefetch" : "/no prefetch";
  on_ranks(flags, row, [&](ZeroRank& rank, int index) {
    std::optional<serve::Orders> orders;
    if (index == 0) orders.emplace(flags.step.program, std::vector{name});
    rank.serve(orders ? &*orders : nullptr);
  });
}

}  // namespace lockstep::parallel_bench
