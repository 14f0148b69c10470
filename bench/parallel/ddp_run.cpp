#include "bench/parallel/ddp.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bench/parallel/checks.h"
#include "bench/parallel/step_rank.h"
#include "bench/place/place.h"
#include "bench/serve/orders.h"
#include "bench/trainer/report.h"
#include "core/statistics.h"
#include "schedules/step/breakdown.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {

double DdpResult::compute_ms() const {
  return core::median(rounds.compute_ms);
}
double DdpResult::communication_ms() const {
  return core::median(rounds.communication_ms);
}
double DdpResult::step_ms() const {
  return core::median(rounds.step_ms);
}
double DdpResult::one_by_one_ms() const {
  return core::median(rounds.one_by_one_ms);
}
double DdpResult::backward_ms() const {
  return core::median(rounds.backward_ms);
}
double DdpResult::predicted_ms() const {
  return core::median(rounds.predicted_ms);
}
double DdpResult::breakdown_exposed_ms() const {
  return core::median(rounds.exposed_ms);
}

std::vector<double> DdpResult::exposed_samples_ms() const {
  std::vector<double> differences;
  for (std::size_t i = 0; i < rounds.step_ms.size(); ++i) {
    differences.push_back(rounds.step_ms[i] - rounds.compute_ms[i]);
  }
  return differences;
}

core::Estimate DdpResult::exposed() const {
  const std::vector<double> samples = exposed_samples_ms();
  const core::Estimate found = core::estimate({&samples, 1}, [](auto medians) { return medians[0]; });
  return found.within(0, std::max(found.high, communication_ms()));
}

bool DdpResult::sent_as_formula() const {
  return parallel_bench::sent_as_formula(sent_bytes, least_bytes, formula_bytes);
}

core::Estimate DdpResult::hidden() const {
  const std::vector samples{rounds.communication_ms, exposed_samples_ms(), rounds.backward_ms};
  return core::estimate(samples,
                        [](auto medians) { return (medians[0] - medians[1]) / std::min(medians[0], medians[2]); })
      .within(0, buckets == 1 ? 0 : 1);
}

namespace {

using schedules::Step;
using schedules::StepTimeline;
using trainer::TrainWorker;

// State that a row's ranks share within one process: set up before they start, or by rank 0 between two barriers.
struct Shared {
  const trainer::TrainOptions& options;
  const DdpFlags& flags;
  const DdpSteps& steps;
  const trainer::Corpus& corpus;
  const Tamper& tamper;
  std::optional<SerialSum> serial;
  DdpResult result;  // rank 0's
};

// Returns the index of the median sample; the lower one if there are two.
std::size_t place_of_median(const std::vector<double>& samples) {
  std::vector<std::size_t> places(samples.size());
  std::iota(places.begin(), places.end(), 0);
  const auto middle = places.begin() + static_cast<std::ptrdiff_t>((places.size() - 1) / 2);
  std::nth_element(places.begin(), middle, places.end(),
                   [&](std::size_t a, std::size_t b) { return samples[a] < samples[b]; });
  return *middle;
}

class DdpRank {
 public:
  DdpRank(Shared& shared, backends::MeshRank& mesh, const trainer::ChannelMap& channels)
      : shared_(shared),
        counter_(channels.channels()),
        mesh_(counter_.counting(mesh)),
        rank_(shared.options, shared.steps.made, shared.corpus, mesh_, channels),
        overlapped_(shared.steps.overlapped, rank_.model()),
        one_by_one_(shared.steps.one_by_one, rank_.model()),
        kernels_(shared.steps.kernels, rank_.model()),
        collectives_(shared.steps.collectives, rank_.model()),
        start_(masters_of(rank_.model())) {
    rank_.rehearse(overlapped_, shared_.steps.overlapped);
    rank_.rehearse(one_by_one_, shared_.steps.one_by_one);
    rank_.rehearse(kernels_, shared_.steps.kernels);
    rank_.rehearse(collectives_, shared_.steps.collectives);
  }

  void run() {
    for (std::int64_t round = 0; round < shared_.flags.step.warmup_rounds; ++round) warm_up();
    take_reference();
    if (tells()) energy_.emplace(program::open_energy(shared_.options.device, shared_.options.mpi, ranks()));
    const std::int64_t begin_ns = transports::now_ns();
    for (std::int64_t round = 0; round < shared_.flags.step.rounds; ++round) {
      const double spent_s = static_cast<double>(transports::now_ns() - begin_ns) * 1e-9;
      const double budget_s = shared_.flags.step.budget_s;
      if (!agreed(rank_.mesh(), round == 0 || budget_s == 0 || spent_s < budget_s)) break;
      take_turn();
    }
    tell_totals();
  }

  void serve(serve::Orders* orders) {
    serve::serve_ranks(orders, rank_.mesh().messages, [&](std::size_t which, std::int64_t calls) {
      TrainWorker& worker = which == 0 ? overlapped_ : one_by_one_;
      const Step& step = which == 0 ? shared_.steps.overlapped : shared_.steps.one_by_one;
      return serve::us_of_calls(calls, [&] { rank_.run_timed(worker, step, 1); });
    });
  }

 private:
  bool tells() const { return rank_.rank() == 0; }

  int ranks() const { return shared_.options.layout.ranks(); }

  StepRank::Timed timed(TrainWorker& worker, const Step& step) {
    start_again(rank_.model(), start_);
    return rank_.run_timed(worker, step, 1);
  }
  // This is the step whose energy is counted.
  StepRank::Timed overlapped_step() {
    start_again(rank_.model(), start_);
    if (energy_) energy_->begin_step();
    StepRank::Timed made = rank_.run_timed(overlapped_, shared_.steps.overlapped, 1);
    if (energy_) energy_->end_step();
    return made;
  }
  StepTimeline timeline_of(const TrainWorker& worker, const StepRank::Timed& timed) {
    return trainer::gather_timeline(rank_.mesh(), worker.start_ns(), timed.spans);
  }

  void warm_up() {
    timed(kernels_, shared_.steps.kernels);
    timed(collectives_, shared_.steps.collectives);
    timed(overlapped_, shared_.steps.overlapped);
    timed(one_by_one_, shared_.steps.one_by_one);
  }

  // Takes the results that all later runs must reproduce.
  void take_reference() {
    const SentCounter::Bytes before = counter_.so_far();
    timed(one_by_one_, shared_.steps.one_by_one);
    const SentCounter::Bytes after = counter_.so_far();
    sent_ = {after.sent - before.sent, after.least - before.least};
    shared_.tamper.reference(rank_.model());
    gradients_ = gradients_of(rank_.model());
    masters_ = masters_of(rank_.model());
    if (tells() || shared_.options.mpi != nullptr) sum_all_shares();  // other processes cannot see rank 0's
    rank_.mesh().messages.barrier();
    const SerialSum::Found found = shared_.serial->compare(gradients_);
    wrong_ += found.beyond;
    most_of_bound_ = found.most_of_bound;
    if (tells()) shared_.result.relative_error = found.relative_error;
  }

  // Runs every rank's share of the batch in one process, one share after the other, without collectives.
  void sum_all_shares() {
    const GradientWire wire{shared_.options.layout.gradient, shared_.options.layout.compression};
    shared_.serial.emplace(elems_of_buckets(rank_.model()), wire);
    for (std::int32_t replica = 0; replica < shared_.options.layout.dp; ++replica) {
      start_again(rank_.model(), start_);
      rank_.load(replica);
      rank_.run_alone(kernels_, shared_.steps.kernels);
      shared_.serial->add(gradients_of(rank_.model()));
    }
    rank_.load(rank_.rank());
  }

  void take_turn() {
    const auto kernels = timed(kernels_, shared_.steps.kernels);
    const StepTimeline of_kernels = timeline_of(kernels_, kernels);
    const auto collectives = timed(collectives_, shared_.steps.collectives);
    const StepTimeline of_collectives = timeline_of(collectives_, collectives);
    const auto overlapped = overlapped_step();
    shared_.tamper.overlapped(rank_.model());
    check();
    const StepTimeline of_overlapped = timeline_of(overlapped_, overlapped);
    const auto one_by_one = timed(one_by_one_, shared_.steps.one_by_one);
    check();
    if (!tells()) return;
    DdpRounds& rounds = shared_.result.rounds;
    rounds.compute_ms.push_back(kernels.ms);
    rounds.communication_ms.push_back(collectives.ms);
    rounds.step_ms.push_back(overlapped.ms);
    rounds.one_by_one_ms.push_back(one_by_one.ms);
    rounds.backward_ms.push_back(backward_ms(shared_.steps.kernels, of_kernels));
    rounds.exposed_ms.push_back(exposed_ms(shared_.steps.overlapped, of_overlapped));
    rounds.predicted_ms.push_back(predicted_ms(shared_.steps, of_kernels, of_collectives));
    const std::vector<double> ready = ready_ms(shared_.steps, of_kernels);
    shared_.result.in_planned_order = shared_.result.in_planned_order && std::is_sorted(ready.begin(), ready.end());
    rounds.timelines.push_back(of_overlapped);
  }

  void check() {
    wrong_ += differing(gradients_of(rank_.model()), gradients_);
    wrong_ += differing(masters_of(rank_.model()), masters_);
  }

  // Adds up the totals of all ranks on rank 0.
  void tell_totals() {
    struct Totals {
      std::int64_t wrong;
      double most_of_bound;
      SentCounter::Bytes sent;
    };
    const auto all = transports::all_gather_value(rank_.mesh().messages, Totals{wrong_, most_of_bound_, sent_});
    if (!tells()) return;
    DdpResult& result = shared_.result;
    result.timeline = result.rounds.timelines[place_of_median(result.rounds.step_ms)];
    result.rounds.timelines.clear();
    result.energy = energy_->record(shared_.options.tokens_per_step());
    result.energy_text = energy_->text(shared_.options.tokens_per_step());
    const auto ranks = static_cast<double>(all.size());
    for (const Totals& of_rank : all) {
      result.wrong += of_rank.wrong;
      result.most_of_bound = std::max(result.most_of_bound, of_rank.most_of_bound);
      result.sent_bytes += static_cast<double>(of_rank.sent.sent) / ranks;
      result.least_bytes += of_rank.sent.least / ranks;
    }
    for (const std::int64_t elems : elems_of_buckets(rank_.model())) result.formula_bytes += wire_bytes_of(elems);
  }
  // Bytes that a rank sends for a bucket.
  double wire_bytes_of(std::int64_t elems) const {
    const trainer::TrainOptions& options = shared_.options;
    if (options.layout.compression.given()) {
      return static_cast<double>(workload::wire_bytes(options.layout.compression, elems, options.layout.dp));
    }
    const auto elem_bytes = static_cast<std::int64_t>(core::size_of(options.layout.gradient));
    return schedules::wire_bytes(schedules::Comm::all_reduce, elems * elem_bytes, options.layout.dp);
  }

  Shared& shared_;
  SentCounter counter_;
  backends::MeshRank mesh_;  // its collectives are counted
  StepRank rank_;
  TrainWorker overlapped_;
  TrainWorker one_by_one_;
  TrainWorker kernels_;
  TrainWorker collectives_;
  const std::vector<float> start_;
  std::vector<float> gradients_;  // from the run without overlap
  std::vector<float> masters_;
  std::int64_t wrong_ = 0;
  double most_of_bound_ = 0;
  SentCounter::Bytes sent_;                    // per step
  std::optional<program::StepEnergy> energy_;  // on rank 0
};

void count(const DdpSteps& steps, DdpResult& result) {
  result.step = steps.overlapped;
  for (const schedules::Task& task : result.step.of_rank.front().tasks) {
    if (task.lane != schedules::Lane::reduce) continue;
    ++result.buckets;
    result.gradient_bytes += task.amount;
  }
}

// Calls body(rank) on all ranks of a row.
DdpResult on_ranks(const DdpFlags& flags, const DdpCase& one, const Tamper& tamper,
                   const std::function<void(DdpRank&, int index)>& body) {
  const trainer::TrainOptions options = options_of(flags, one);
  const DdpSteps steps = ddp_steps(options);
  const std::array<const Step*, 2> all{&steps.overlapped, &steps.one_by_one};
  const auto corpus = trainer::Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  Shared shared{options, flags, steps, corpus, tamper, {}, {}};
  count(steps, shared.result);
  trainer::run_ranks(options, steps.made, all, [&](backends::MeshRank& mesh, const trainer::ChannelMap& channels) {
    DdpRank rank(shared, mesh, channels);
    body(rank, mesh.messages.rank());
  });
  return std::move(shared.result);
}

std::string row_name(const DdpFlags& flags, const DdpCase& one) {
  std::string name = mini_train::step_name(options_of(flags, one)) + fmt::format("/buckets:{:g}MiB", one.bucket_cap_mb);
  if (one.compression.given()) name += fmt::format("/{}", text_of(one.compression));
  return one.link ? name + "/links:" + link_text(one.link) : name;
}

}  // namespace

DdpResult run_ddp(const DdpFlags& flags, const DdpCase& one, const Tamper& tamper) {
  return on_ranks(flags, one, tamper, [](DdpRank& rank, int /*index*/) { rank.run(); });
}

void serve_ddp(const DdpFlags& flags, const DdpCase& one) {
  const std::string name = row_name(flags, one);
  on_ranks(flags, one, {}, [&](DdpRank& rank, int index) {
    std::optional<serve::Orders> orders;
    if (index == 0) orders.emplace(flags.step.program, std::vector{name + "/overlapped", name + "/one by one"});
    rank.serve(orders ? &*orders : nullptr);
  });
}

}  // namespace lockstep::parallel_bench
