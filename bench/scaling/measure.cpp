#include "bench/scaling/measure.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "bench/place/step_energy.h"
#include "bench/scaling/turns.h"
#include "core/wait.h"
#include "schedules/step/moving.h"
#include "trainer/train/train.h"

namespace lockstep::scaling {
namespace {

using schedules::Lane;
using schedules::Step;
using schedules::StepTimeline;
using trainer::RankTrainer;

// The first steps choose implementations of kernels, prepare collectives and touch memory.
constexpr int kWarmUp = 3;

// Lanes with a thread of their own.
std::array<bool, schedules::kNumLanes> lanes_beside(const schedules::InterpreterOptions& interpreter) {
  std::array<bool, schedules::kNumLanes> beside = {};
  for (std::size_t lane = 0; lane < beside.size(); ++lane) beside[lane] = interpreter.thread_of[lane] != 0;
  return beside;
}

// The concurrencies in which steps are timed: one task at a time; 2, 4, ... ranks that compute; and collectives in
// addition.
std::vector<Concurrency> concurrencies_of(std::int32_t ranks, const std::array<bool, schedules::kNumLanes>& beside) {
  std::vector<Concurrency> concurrencies{{}};
  for (std::int32_t computing = 2; computing < 2 * ranks; computing *= 2) {
    concurrencies.push_back({.kernels = std::min(computing, ranks)});
  }
  if (std::find(beside.begin(), beside.end(), true) != beside.end()) concurrencies.push_back({ranks, beside});
  return concurrencies;
}
constexpr std::size_t kMostConcurrencies = 32;

// The results, which rank 0 collects.
struct Seen {
  std::array<bool, schedules::kNumLanes> beside = {};
  Step step;
  std::vector<Concurrency> concurrencies;
  std::vector<std::vector<StepTimeline>> timelines;  // [concurrency]
  struct Measured {
    double ms = 0;
    StepTimeline timeline;
  };
  std::vector<Measured> measured;
  std::optional<core::EnergyRecord> energy;
  std::string energy_text;
};

class RankTimer {
 public:
  RankTimer(const trainer::TrainOptions& options, const trainer::TrainStep& made, RankTrainer& trainer,
            std::deque<SlotProgress>& progress, Seen& seen)
      : options_(options), trainer_(trainer), progress_(progress), seen_(seen), tells_(trainer.model().rank() == 0) {
    const auto beside = lanes_beside(trainer.interpreter());
    const std::vector<Concurrency> concurrencies = concurrencies_of(options.layout.ranks(), beside);
    for (const Concurrency& concurrency : concurrencies) {
      orders_.push_back(rank_slots_of(slots_of(made.step, concurrency), made.step, trainer.model().rank()));
    }
    if (!tells_) return;
    seen_.beside = beside;
    seen_.step = made.step;
    seen_.concurrencies = concurrencies;
    seen_.timelines.resize(concurrencies.size());
  }

  void run(const Effort& effort) {
    for (int i = 0; i < kWarmUp; ++i) trainer_.train_step(++step_);
    if (tells_) energy_.emplace(program::open_energy(options_.device, options_.mpi, options_.layout.ranks()));
    run_rounds(effort);
    if (!tells_) return;
    seen_.energy = energy_->record(options_.tokens_a_step());
    seen_.energy_text = energy_->text(options_.tokens_a_step());
  }

 private:
  void run_rounds(const Effort& effort) {
    const auto begin = core::Clock::now();
    for (int round = 0; round < effort.rounds; ++round) {
      const double spent_s = core::us_between(begin, core::Clock::now()) / 1e6;
      if (round > 0 && any_rank_says(spent_s > effort.seconds)) return;
      for (std::size_t concurrency = 0; concurrency < orders_.size(); ++concurrency) {
        measure_as_it_trains();
        measure_concurrently(concurrency);
      }
    }
  }

  bool any_rank_says(bool mine) {
    const auto all = transports::all_gather_value(trainer_.model().mesh().messages, mine ? 1 : 0);
    return std::find(all.begin(), all.end(), 1) != all.end();
  }

  void measure_as_it_trains() {
    if (energy_) energy_->begin_step();
    const trainer::StepReport report = trainer_.train_step(++step_);
    if (energy_) energy_->end_step();
    StepTimeline timeline = trainer_.gather_timeline();
    if (tells_) seen_.measured.push_back({report.seconds * 1e3, std::move(timeline)});
  }

  void measure_concurrently(std::size_t concurrency) {
    const auto steps_before = static_cast<std::uint64_t>(steps_in_[concurrency]++);
    trainer_.train_step(++step_, [&](schedules::StageWorker& worker) {
      return std::make_unique<SlotWorker>(worker, progress_[concurrency], orders_[concurrency], steps_before,
                                          trainer_.model().mesh(), options_.timeout);
    });
    StepTimeline timeline = trainer_.gather_timeline();
    if (tells_) seen_.timelines[concurrency].push_back(std::move(timeline));
  }

  const trainer::TrainOptions& options_;
  RankTrainer& trainer_;
  std::deque<SlotProgress>& progress_;
  Seen& seen_;
  const bool tells_;
  std::vector<RankSlots> orders_;                      // by concurrency
  std::array<int, kMostConcurrencies> steps_in_ = {};  // likewise
  std::int64_t step_ = 0;
  std::optional<program::StepEnergy> energy_;  // on rank 0
};

double end_ms(const StepTimeline& timeline) {
  std::int64_t end_ps = 0;
  for (const auto& rank : timeline) {
    for (const schedules::TaskSpan& span : rank) end_ps = std::max(end_ps, span.end_ps);
  }
  return static_cast<double>(end_ps) / 1e9;
}

void predict(const Seen& seen, LayoutTimes& times) {
  Prices& prices = times.prices;
  for (std::size_t c = 0; c < seen.concurrencies.size(); ++c) {
    const std::vector<Slot> slots = slots_of(seen.step, seen.concurrencies[c]);
    for (const StepTimeline& timeline : seen.timelines[c]) {
      const std::vector<SlotSpans> spans = spans_of(slots, timeline);
      if (c == 0) {
        prices.add(seen.step, spans);
      } else {
        add_samples(times.slowdowns, seen.step, spans, prices);
      }
    }
  }
  const Step step = priced(seen.step, prices);
  times.isolated = simulator::play(step);
  times.contended = play_contended(step, seen.beside, slowdown_of(step, times.slowdowns, seen.beside));
}

void take_median(Seen& seen, LayoutTimes& times) {
  // The rank that timed a step may have begun it later than others and ended it before them.
  for (Seen::Measured& one : seen.measured) one.ms = std::max(one.ms, end_ms(one.timeline));
  std::sort(seen.measured.begin(), seen.measured.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  for (const Seen::Measured& one : seen.measured) times.samples_ms.push_back(one.ms);
  Seen::Measured& middle = seen.measured[(seen.measured.size() - 1) / 2];
  times.measured = schedules::when_bytes_move(seen.step, std::move(middle.timeline));
  times.around_ms = middle.ms - end_ms(times.measured);
}

}  // namespace

LayoutTimes time_layout(const trainer::TrainOptions& options, const trainer::Corpus& corpus, const Effort& effort) {
  std::deque<SlotProgress> progress(kMostConcurrencies);
  Seen seen;
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep& made, RankTrainer& trainer) {
    RankTimer(options, made, trainer, progress, seen).run(effort);
  });
  LayoutTimes times;
  times.step = seen.step;
  predict(seen, times);
  take_median(seen, times);
  times.energy = seen.energy;
  times.energy_text = seen.energy_text;
  return times;
}

std::vector<double> time_steps(const trainer::TrainOptions& options, const trainer::Corpus& corpus, int steps) {
  std::vector<double> all_ms;
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep&, RankTrainer& trainer) {
    for (int step = 1; step <= kWarmUp + steps; ++step) {
      const double ms = trainer.train_step(step).seconds * 1e3;
      if (step > kWarmUp && trainer.model().rank() == 0) all_ms.push_back(ms);
    }
  });
  return all_ms;
}

}  // namespace lockstep::scaling
