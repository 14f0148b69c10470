#include "bench/collective_perf/trial.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/serve/orders.h"
#include "core/device.h"
#include "core/index.h"
#include "core/wait.h"

namespace lockstep::sweep {
namespace {

using collectives::Operation;

constexpr std::size_t kAlignment = 128;

std::size_t shift_bytes(const Operation& operation, int unalign_elems) {
  return static_cast<std::size_t>(unalign_elems) * core::size_of(operation.dtype);
}

using BytesOfRank = std::int64_t(const Operation& operation, int num_ranks, int rank);

std::int64_t in_place_bytes(const Operation& operation, int num_ranks, int rank) {
  return in_place_layout(operation, num_ranks, rank).buffer_bytes;
}

// Size of the largest rank's buffer, so that offsets match on all ranks: NCCL's symmetric windows require that.
std::size_t largest(BytesOfRank* bytes_of_rank, const Operation& operation, int num_ranks, std::size_t shift) {
  std::int64_t most = 0;
  for (int rank = 0; rank < num_ranks; ++rank) most = std::max(most, bytes_of_rank(operation, num_ranks, rank));
  return round_up(static_cast<std::size_t>(most) + shift, kAlignment);
}

std::size_t slot_bytes(const Operation& operation, int num_ranks, int unalign_elems) {
  const std::size_t shift = shift_bytes(operation, unalign_elems);
  if (operation.in_place) return largest(in_place_bytes, operation, num_ranks, shift);
  return largest(collectives::input_bytes, operation, num_ranks, shift) +
         largest(collectives::output_bytes, operation, num_ranks, shift);
}

// Room for at least one iteration.
int number_of_slots(std::size_t bytes_of_a_slot, const TrialOptions& options) {
  const std::size_t fit = options.batch_bytes / std::max<std::size_t>(bytes_of_a_slot, 1);
  return std::max(static_cast<int>(std::clamp<std::size_t>(fit, 1, kMostCallsOfABatch)), options.calls_per_iteration);
}

}  // namespace

std::size_t pool_bytes(const Operation& operation, int num_ranks, const TrialOptions& options) {
  const std::size_t slot = slot_bytes(operation, num_ranks, options.unalign_elems);
  return slot * static_cast<std::size_t>(number_of_slots(slot, options));
}

std::size_t call_bytes(const Operation& operation, int num_ranks, const TrialOptions& options) {
  return slot_bytes(operation, num_ranks, options.unalign_elems);
}

Trial::Trial(backends::Endpoint& endpoint, const Operation& operation, backends::Prepared prepared, std::byte* pool,
             std::uint64_t& rounds, const TrialOptions& options)
    : endpoint_(endpoint),
      operation_(operation),
      options_(options),
      prepared_(std::move(prepared)),
      verifier_(operation, endpoint.world.num_ranks(), options.seed,
                prepared_.executor == "library" ? 2 : 0),  // libraries may scale before they sum
      computes_(endpoint.device.computes()),
      rounds_(rounds) {
  lay_out_slots(pool);
}

void Trial::lay_out_slots(std::byte* pool) {
  const int ranks = endpoint_.world.num_ranks();
  const int me = endpoint_.world.rank();
  const std::size_t slot = slot_bytes(operation_, ranks, options_.unalign_elems);
  const std::size_t shift = shift_bytes(operation_, options_.unalign_elems);
  for (int i = 0; i < number_of_slots(slot, options_); ++i) {
    std::byte* base = pool + slot * static_cast<std::size_t>(i) + shift;
    if (operation_.in_place) {
      const auto layout = in_place_layout(operation_, ranks, me);
      slots_.push_back({base + layout.input_at, base + layout.output_at});
    } else {
      slots_.push_back({base, base + largest(collectives::input_bytes, operation_, ranks, shift)});
    }
  }
  iterations_per_sample_ =
      std::min(options_.iterations_per_sample, static_cast<int>(slots_.size()) / options_.calls_per_iteration);
  if (!endpoint_.device.is_host_memory() && computes_) mirror_.resize(slot);
}

void Trial::fill(int calls) {
  if (!computes_) return;
  const int me = endpoint_.world.rank();
  const int ranks = endpoint_.world.num_ranks();
  for (int i = 0; i < calls; ++i) {
    const Slot& slot = slots_[static_cast<std::size_t>(i)];
    const std::uint64_t round = round_ + static_cast<std::uint64_t>(i);
    const bool poison = i >= poisoned_slots_;
    if (mirror_.empty()) {
      if (poison) verifier_.fill_poison(me, round, slot.output);
      verifier_.fill_input(me, round, slot.input);
      continue;
    }
    const auto output = static_cast<std::size_t>(output_bytes(operation_, ranks, me));
    const auto input = static_cast<std::size_t>(input_bytes(operation_, ranks, me));
    if (poison) {
      verifier_.fill_poison(me, round, mirror_.data());
      endpoint_.device.copy_to_device(slot.output, mirror_.data(), output);
    }
    verifier_.fill_input(me, round, mirror_.data());
    endpoint_.device.copy_to_device(slot.input, mirror_.data(), input);
  }
  poisoned_slots_ = std::max(poisoned_slots_, calls);
}

int Trial::samples_of_a_batch(int most_samples) const {
  return std::min(most_samples, options_.graph ? 1 : static_cast<int>(slots_.size()) / calls_per_sample());
}

void Trial::run_call(int index) {
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  prepared_.collective->run(slot.input, slot.output);
}

void Trial::run_sample(int sample) {
  if (graph_) return graph_->launch(endpoint_.stream);
  for (int i = 0; i < calls_per_sample(); ++i) run_call(sample * calls_per_sample() + i);
}

void Trial::time_host(int samples) {
  const auto start = core::Clock::now();
  auto before = start;
  for (int i = 0; i < samples; ++i) {
    run_sample(i);
    const auto after = core::Clock::now();
    measured_.samples_us.push_back(core::us_between(before, after) / calls_per_sample());
    before = after;
  }
  measured_.total_us += core::us_between(start, before) / calls_per_sample();
  measured_.queued_us = measured_.total_us;
}

// The host's clock times the whole batch, as in nccl-tests, and events time the single samples. Work after the clock's
// last reading is not timed: reading events, and the checks of finish() once the work is done.
void Trial::time_device(int samples) {
  const auto start = core::Clock::now();
  events_[0]->record(endpoint_.stream);
  for (int i = 0; i < samples; ++i) {
    run_sample(i);
    events_[static_cast<std::size_t>(i) + 1]->record(endpoint_.stream);
  }
  measured_.queued_us += core::us_between(start, core::Clock::now()) / calls_per_sample();
  endpoint_.finish();
  measured_.total_us += core::us_between(start, core::Clock::now()) / calls_per_sample();
  endpoint_.check();
  for (std::size_t i = 1; i <= static_cast<std::size_t>(samples); ++i) {
    measured_.samples_us.push_back(events_[i]->us_since(*events_[i - 1]) / calls_per_sample());
  }
}

// If the host waits between calls or samples, its clock takes all times.
void Trial::time_blocking(int samples) {
  const bool after_calls = options_.blocking != Blocking::iteration;
  for (int i = 0; i < samples; ++i) {
    const auto before = core::Clock::now();
    for (int call = 0; call < calls_per_sample(); ++call) {
      run_call(i * calls_per_sample() + call);
      if (after_calls) endpoint_.finish();
      if (options_.blocking == Blocking::call_and_barrier) endpoint_.world.barrier();
    }
    if (!after_calls) endpoint_.finish();
    const double call_us = core::us_between(before, core::Clock::now()) / calls_per_sample();
    measured_.samples_us.push_back(call_us);
    measured_.total_us += call_us;
    measured_.queued_us += call_us;
    if (!after_calls) endpoint_.world.barrier();
  }
  endpoint_.check();
}

// Each slot's output is poisoned once; after that, results left by an earlier call are wrong by themselves, because its
// inputs were different. The barrier after the calls keeps the next fill from racing with a peer's reads. Events are
// made before a peer's kernel can wait for this rank's: a driver that allocates memory for them may wait for the
// device.
void Trial::time_batch(int samples) {
  const int calls = samples * calls_per_sample();
  round_ = rounds_;
  rounds_ += static_cast<std::uint64_t>(calls);
  fill(calls);
  while (events_.size() <= static_cast<std::size_t>(samples)) events_.push_back(endpoint_.device.make_event());
  endpoint_.world.barrier();
  if (endpoint_.device.is_host_memory()) {
    time_host(samples);
  } else if (options_.blocking != Blocking::none) {
    time_blocking(samples);
  } else {
    time_device(samples);
  }
  endpoint_.world.barrier();
  measured_.timed_calls += calls;
}

void Trial::check(int calls) {
  const int me = endpoint_.world.rank();
  for (int i = 0; i < calls; ++i) {
    const Slot& slot = slots_[static_cast<std::size_t>(i)];
    const void* output = slot.output;
    if (!mirror_.empty()) {
      const auto size = static_cast<std::size_t>(output_bytes(operation_, endpoint_.world.num_ranks(), me));
      endpoint_.device.copy_to_host(mirror_.data(), slot.output, size);
      output = mirror_.data();
    }
    measured_.wrong += verifier_.count_wrong(me, round_ + static_cast<std::uint64_t>(i), output);
  }
}

// The captured calls have run before, as libraries connect at the first call.
void Trial::capture() {
  graph_ = core::capture(endpoint_.stream, [this] { run_sample(0); });
}

void Trial::warm_up(int iterations) {
  int left = (iterations + iterations_per_sample_ - 1) / iterations_per_sample_;
  if (options_.graph) left = std::max(left, 1);
  while (left > 0) {
    const int batch = samples_of_a_batch(left);
    time_batch(batch);
    left -= batch;
  }
  if (options_.graph) capture();
  measured_ = {};
}

double Trial::us_of_call(std::int64_t calls) {
  std::int64_t made = 0;
  const double us = serve::us_of_calls(calls, [&] {
    run_call(static_cast<int>(made % static_cast<std::int64_t>(slots_.size())));
    if (++made == calls) endpoint_.finish();
  });
  endpoint_.check();
  return us;
}

void Trial::drop_samples() {
  const std::int64_t wrong = measured_.wrong;
  measured_ = {};
  measured_.wrong = wrong;
}

void Trial::run_batch(int most_samples) {
  const int samples = samples_of_a_batch(most_samples);
  time_batch(samples);
  if (checks()) check(samples * calls_per_sample());
}

namespace {

double over_threads(const std::vector<double>& times, TimeOf time_of) {
  switch (time_of) {
    case TimeOf::rank0:
      return times.front();
    case TimeOf::mean:
      return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    case TimeOf::min:
      return *std::min_element(times.begin(), times.end());
    case TimeOf::max:
      return *std::max_element(times.begin(), times.end());
  }
  return 0;
}

// [sample] time of the slowest rank.
std::vector<double> slowest(transports::World& world, const std::vector<double>& mine) {
  const auto ranks = static_cast<std::size_t>(world.num_ranks());
  std::vector<double> all(mine.size() * ranks);
  world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<double> result = mine;
  for (std::size_t i = 0; i < all.size(); ++i) result[i % mine.size()] = std::max(result[i % mine.size()], all[i]);
  return result;
}

}  // namespace

double time_by(const TimeRule& rule, const std::vector<double>& time_of_rank) {
  const auto gpus = static_cast<std::ptrdiff_t>(rule.gpus_per_thread);
  std::vector<double> of_threads;
  for (auto first = time_of_rank.begin(); first != time_of_rank.end(); first += gpus) {
    of_threads.push_back(*std::max_element(first, first + gpus));
  }
  return over_threads(of_threads, rule.time_of);
}

std::int64_t row_bytes(const collectives::Operation& operation, int num_ranks) {
  if (operation.matrix == nullptr) {
    return collectives::message_bytes(operation.kind, num_ranks, operation.count, operation.dtype);
  }
  std::int64_t busiest = 0;
  for (int r = 0; r < num_ranks; ++r) {
    busiest = std::max({busiest, collectives::input_bytes(operation, num_ranks, r),
                        collectives::output_bytes(operation, num_ranks, r)});
  }
  return busiest;
}

core::RowRecord record_of(const Operation& operation, int num_ranks) {
  core::RowRecord record;
  record.collective = collectives::name_of(operation.kind);
  record.ranks = num_ranks;
  record.bytes = row_bytes(operation, num_ranks);
  record.count = operation.count;
  record.dtype = core::name_of(operation.dtype);
  if (collectives::has_op(operation.kind)) record.op = core::name_of(operation.op);
  if (collectives::has_root(operation.kind)) record.root = operation.root;
  record.in_place = operation.in_place;
  return record;
}

RowResult combine(transports::World& world, const collectives::Operation& operation, const Trial& trial,
                  const TimeRule& rule, bool checked) {
  const TrialData& mine = trial.measured();
  RowResult result{record_of(operation, world.num_ranks()), operation};
  result.algorithm = trial.prepared().algorithm;
  result.executor = trial.prepared().executor;
  result.samples_us = slowest(world, mine.samples_us);
  result.iterations = mine.timed_calls;
  result.graph_iterations = trial.is_graph() ? trial.iterations_per_sample() : 0;
  const auto samples = static_cast<double>(std::max<std::size_t>(mine.samples_us.size(), 1));
  result.time_us = time_by(rule, transports::all_gather_value(world, mine.total_us / samples));
  result.queued_us = time_by(rule, transports::all_gather_value(world, mine.queued_us / samples));
  if (checked) {
    const auto wrong = transports::all_gather_value(world, mine.wrong);
    result.wrong = std::accumulate(wrong.begin(), wrong.end(), std::int64_t{0});
    if (*result.wrong != 0) result.status = "wrong";
  }
  set_bandwidths(result, world.num_ranks());
  return result;
}

void set_bandwidths(RowResult& result, int num_ranks) {
  const collectives::Kind kind = result.operation.kind;
  result.algbw_gbps = collectives::algorithm_bandwidth_gbps(kind, num_ranks, result.bytes, *result.time_us);
  result.busbw_gbps = *result.algbw_gbps * collectives::bus_bandwidth_factor(kind, num_ranks);
}

}  // namespace lockstep::sweep
