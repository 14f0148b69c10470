#include "bench/scaling/scaling.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>

#include "bench/program/place.h"
#include "bench/program/run_records.h"
#include "core/error.h"
#include "core/ranks.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "schedules/step/breakdown.h"
#include "simulator/engine/contended.h"
#include "trainer/train/train.h"

namespace lockstep::scaling {

using schedules::Lane;
using schedules::Op;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;
using schedules::TaskSpan;
using trainer::RankTrainer;

PieceKey key_of(const Task& task, std::int32_t rank) {
  const bool collective = task.comm != schedules::Comm::none;
  const std::int32_t place = task.stage >= 0 ? -1 : collective ? task.peer : rank;
  return {task.op, task.lane, task.stage, task.part, task.what, place};
}

std::vector<SlotSpans> spans_of(const std::vector<Slot>& slots, const StepTimeline& timeline) {
  const auto span_of = [&](const RankTask& rank_task) {
    return timeline[static_cast<std::size_t>(rank_task.rank)][rank_task.task];
  };
  std::vector<SlotSpans> all;
  for (const Slot& slot : slots) {
    SlotSpans& spans = all.emplace_back();
    for (const RankTask& kernel : slot.kernels) spans.kernels.emplace_back(kernel, span_of(kernel));
    for (const RankTask& rank_task : slot.other) spans.other.emplace_back(rank_task, span_of(rank_task));
    spans.collective = slot.collective;
    for (const RankTask& rank_task : slot.collective) {
      spans.collective_span.start_ps = std::max(spans.collective_span.start_ps, span_of(rank_task).start_ps);
      spans.collective_span.end_ps = std::max(spans.collective_span.end_ps, span_of(rank_task).end_ps);
    }
  }
  return all;
}

void Prices::add(const Step& step, const std::vector<SlotSpans>& slots) {
  const auto put = [&](const RankTask& rank_task, const TaskSpan& span) {
    const Task& task = step.of_rank[static_cast<std::size_t>(rank_task.rank)].tasks[rank_task.task];
    samples_[key_of(task, rank_task.rank)].push_back(static_cast<double>(span.end_ps - span.start_ps));
  };
  for (const SlotSpans& slot : slots) {
    LOCKSTEP_CHECK(slot.kernels.size() + slot.other.size() + (slot.collective.empty() ? 0 : 1) == 1,
                   "a slot has a single piece");
    for (const auto& [one, span] : slot.kernels) put(one, span);
    for (const auto& [one, span] : slot.other) put(one, span);
    // The stage of each member: with two pipes they name copies of a stage.
    for (const RankTask& rank_task : slot.collective) put(rank_task, slot.collective_span);
  }
}

std::int64_t Prices::of(const Task& task, std::int32_t rank) const {
  return std::llround(core::median(samples_.at(key_of(task, rank))));
}

Step priced(Step step, const Prices& prices) {
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (Task& task : step.of_rank[r].tasks) task.amount = prices.of(task, static_cast<std::int32_t>(r));
  }
  return simulator::with_whole_messages(std::move(step));
}

namespace {

constexpr double kMostFactor = 20;        // larger ones are from a piece that was descheduled
constexpr double kLeastConcurrent = 0.3;  // share of a sample

std::int64_t overlap_ps(const TaskSpan& a, const TaskSpan& b) {
  return std::max<std::int64_t>(std::min(a.end_ps, b.end_ps) - std::max(a.start_ps, b.start_ps), 0);
}

std::int64_t length_ps(const TaskSpan& span) {
  return span.end_ps - span.start_ps;
}

double weighted_median(const std::vector<std::pair<double, double>>& sorted) {
  const double all =
      std::accumulate(sorted.begin(), sorted.end(), 0.0, [](double sum, const auto& one) { return sum + one.second; });
  double below = 0;
  for (const auto& [value, weight] : sorted) {
    below += weight;
    if (below >= all / 2) return value;
  }
  return sorted.back().first;
}

// Time in which any of the others runs as well.
std::int64_t concurrent_ps(const SlotSpans& slot, std::size_t kernel) {
  std::int64_t most = 0;
  for (std::size_t other = 0; other < slot.kernels.size(); ++other) {
    // They begin together, so that the longest overlap contains all others.
    if (other != kernel) most = std::max(most, overlap_ps(slot.kernels[kernel].second, slot.kernels[other].second));
  }
  return most;
}

}  // namespace

// Work proceeds at 1 / factor while others run: in that time alone - (took - shared) of the work was done.
void Factor::add(std::int64_t alone_ps, std::int64_t took_ps, std::int64_t shared_ps) {
  if (alone_ps <= 0 || static_cast<double>(shared_ps) < kLeastConcurrent * static_cast<double>(took_ps)) return;
  const auto shared = static_cast<double>(shared_ps);
  const double done = std::max(static_cast<double>(alone_ps - (took_ps - shared_ps)), shared / kMostFactor);
  const std::pair<double, double> sample{shared / done, static_cast<double>(alone_ps)};
  samples_.insert(std::upper_bound(samples_.begin(), samples_.end(), sample), sample);
  value_ = weighted_median(samples_);
}

Op family_of(Op op) {
  return op == Op::input_gradient || op == Op::weight_gradient ? Op::backward : op;
}

double Slowdowns::of_kernel(Op op, std::int32_t computing, bool with_collective) const {
  double factor = 1;
  if (const auto family = kernel.find(family_of(op)); family != kernel.end() && computing > 1) {
    std::int32_t below = 1;
    double low = 1;
    for (const auto& [ranks, measured] : family->second) {
      const double high = measured.value();
      factor = high;
      if (ranks >= computing) {
        factor = low + (high - low) * (computing - below) / (ranks - below);
        break;
      }
      below = ranks;
      low = high;
    }
  }
  const auto found = kernel_with_collective.find(family_of(op));
  return with_collective && found != kernel_with_collective.end() ? factor * found->second.value() : factor;
}

double Slowdowns::of_collective(schedules::Lane lane, double share) const {
  return 1 + (collective[static_cast<std::size_t>(lane)].value() - 1) * share;
}

void add_samples(Slowdowns& slowdowns, const Step& step, const std::vector<SlotSpans>& slots, const Prices& prices) {
  const auto task_at = [&](const RankTask& rank_task) -> const Task& {
    return step.of_rank[static_cast<std::size_t>(rank_task.rank)].tasks[rank_task.task];
  };
  for (const SlotSpans& slot : slots) {
    const auto computing = static_cast<std::int32_t>(slot.kernels.size());
    std::int64_t computed_ps = 0;
    for (std::size_t k = 0; k < slot.kernels.size(); ++k) {
      const RankTask& rank_task = slot.kernels[k].first;
      const TaskSpan& span = slot.kernels[k].second;
      const Task& task = task_at(rank_task);
      if (task.op == Op::reshard) continue;  // computes nothing
      const std::int64_t alone = prices.of(task, rank_task.rank);
      if (slot.collective.empty()) {
        if (computing > 1) {
          slowdowns.kernel[family_of(task.op)][computing].add(alone, length_ps(span), concurrent_ps(slot, k));
        }
        continue;
      }
      computed_ps = std::max(computed_ps, overlap_ps(span, slot.collective_span));
      const bool member = std::any_of(slot.collective.begin(), slot.collective.end(),
                                      [&](const RankTask& other) { return other.rank == rank_task.rank; });
      if (!member) continue;
      const double with_kernels = slowdowns.of_kernel(task.op, computing, false);
      slowdowns.kernel_with_collective[family_of(task.op)].add(std::llround(static_cast<double>(alone) * with_kernels),
                                                               length_ps(span), overlap_ps(span, slot.collective_span));
    }
    if (slot.collective.empty() || slot.kernels.empty()) continue;
    const Task& task = task_at(slot.collective.front());
    slowdowns.collective[static_cast<std::size_t>(task.lane)].add(prices.of(task, slot.collective.front().rank),
                                                                  length_ps(slot.collective_span), computed_ps);
  }
}

simulator::Slowdown slowdown_of(const Step& step, const Slowdowns& slowdowns,
                                const simulator::LanesBeside& overlapping) {
  return
      [&step, &slowdowns, overlapping](std::int32_t rank, std::size_t index, const simulator::Concurrent& concurrent) {
        const Task& task = step.of_rank[static_cast<std::size_t>(rank)].tasks[index];
        if (task.lane == schedules::Lane::compute) {
          return slowdowns.of_kernel(task.op, concurrent.kernels, concurrent.own_collective);
        }
        if (!overlapping[static_cast<std::size_t>(task.lane)]) return 1.0;
        return slowdowns.of_collective(task.lane, concurrent.computing_share);
      };
}

namespace {

// The work of a rank, regardless of the index of its group.
using Piece =
    std::tuple<schedules::Op, schedules::Lane, std::int32_t, std::int32_t, std::uint8_t, schedules::GroupKind>;

Piece piece_of(const Step& step, const Task& task) {
  const bool collective = task.comm != schedules::Comm::none;
  const auto kind = collective ? step.groups[static_cast<std::size_t>(task.peer)].kind : schedules::GroupKind::tensor;
  return {task.op, task.lane, task.stage, task.part, task.what, kind};
}

struct Priced {
  std::int64_t ps = 0;
  std::int64_t members = 1;  // ranks in the collective
};

std::map<Piece, Priced> pieces_of(const Step& step, std::int32_t rank, const Prices& prices) {
  std::map<Piece, Priced> pieces;
  for (const Task& task : step.of_rank[static_cast<std::size_t>(rank)].tasks) {
    const bool collective = task.comm != schedules::Comm::none;
    const std::int64_t members = collective ? step.groups[static_cast<std::size_t>(task.peer)].size() : 1;
    pieces.try_emplace(piece_of(step, task), Priced{prices.of(task, rank), members});
  }
  return pieces;
}

bool joins_replicas(schedules::GroupKind kind) {
  return kind == schedules::GroupKind::data || kind == schedules::GroupKind::world ||
         kind == schedules::GroupKind::expert_data;
}

}  // namespace

double ring_growth(std::int64_t n, std::int64_t m) {
  const auto share = [](std::int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); };
  return n == m || m < 2 ? 1 : share(n) / share(m);
}

Step priced_beyond(Step step, const workload::Layout& many, const Step& measured, const workload::Layout& two,
                   const Prices& prices) {
  const double shard = many.zero > 0 ? static_cast<double>(two.dp) / many.dp : 1;
  workload::Layout own = many;  // the step's
  own.dp = static_cast<std::int32_t>(step.num_ranks() / (many.ranks() / many.dp));
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    const workload::Coordinates at = workload::coordinates_of(own, rank);
    const auto pieces = pieces_of(measured, workload::rank_at(two, {at.tp, 0, at.pp}), prices);
    for (Task& task : step.of_rank[static_cast<std::size_t>(rank)].tasks) {
      const auto piece = pieces.find(piece_of(step, task));
      LOCKSTEP_CHECK(piece != pieces.end(), "a piece that two replicas have as well");
      double scale = task.op == schedules::Op::optimizer ? shard : 1;
      if (task.comm != schedules::Comm::none) {
        const schedules::Group& group = step.groups[static_cast<std::size_t>(task.peer)];
        const std::int64_t members = joins_replicas(group.kind) ? group.size() * many.dp / own.dp : group.size();
        scale = ring_growth(members, piece->second.members);
      }
      task.amount = std::llround(static_cast<double>(piece->second.ps) * scale);
    }
  }
  return simulator::with_whole_messages(std::move(step));
}

namespace {

// The first steps choose implementations of kernels, prepare collectives and touch memory.
constexpr int kWarmUp = 3;

// Lanes with a thread of their own.
std::array<bool, schedules::kNumLanes> overlapping_lanes(const schedules::InterpreterOptions& interpreter) {
  std::array<bool, schedules::kNumLanes> overlapping = {};
  for (std::size_t lane = 0; lane < overlapping.size(); ++lane) overlapping[lane] = interpreter.thread_of[lane] != 0;
  return overlapping;
}

// The concurrencies in which steps are timed: one task at a time; 2, 4, ... ranks that compute; and collectives in
// addition.
std::vector<Concurrency> concurrencies_of(std::int32_t ranks,
                                          const std::array<bool, schedules::kNumLanes>& overlapping) {
  std::vector<Concurrency> concurrencies{{}};
  for (std::int32_t computing = 2; computing < 2 * ranks; computing *= 2) {
    concurrencies.push_back({.kernels = std::min(computing, ranks)});
  }
  if (std::find(overlapping.begin(), overlapping.end(), true) != overlapping.end()) {
    concurrencies.push_back({ranks, overlapping});
  }
  return concurrencies;
}
constexpr std::size_t kMostConcurrencies = 32;

// The results, which rank 0 collects.
struct Seen {
  std::array<bool, schedules::kNumLanes> overlapping = {};
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
  RankTimer(const trainer::TrainOptions& options, const trainer::TrainStep& train_step, RankTrainer& trainer,
            std::deque<SlotProgress>& progress, Seen& seen)
      : options_(options), trainer_(trainer), progress_(progress), seen_(seen), is_first_(trainer.model().rank() == 0) {
    const auto overlapping = overlapping_lanes(trainer.interpreter());
    const std::vector<Concurrency> concurrencies = concurrencies_of(options.layout.ranks(), overlapping);
    for (const Concurrency& concurrency : concurrencies) {
      orders_.push_back(rank_slots_of(slots_of(train_step.step, concurrency), train_step.step, trainer.model().rank()));
    }
    if (!is_first_) return;
    seen_.overlapping = overlapping;
    seen_.step = train_step.step;
    seen_.concurrencies = concurrencies;
    seen_.timelines.resize(concurrencies.size());
  }

  void run(const Effort& effort) {
    for (int i = 0; i < kWarmUp; ++i) trainer_.train_step(++step_);
    if (is_first_) energy_.emplace(program::open_energy(options_.device, options_.mpi, options_.layout.ranks()));
    run_rounds(effort);
    if (!is_first_) return;
    seen_.energy = energy_->record(options_.tokens_per_step());
    seen_.energy_text = energy_->text(options_.tokens_per_step());
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
    if (is_first_) seen_.measured.push_back({report.seconds * 1e3, std::move(timeline)});
  }

  void measure_concurrently(std::size_t concurrency) {
    const auto steps_before = static_cast<std::uint64_t>(steps_in_[concurrency]++);
    trainer_.train_step(++step_, [&](schedules::StageWorker& worker) {
      return std::make_unique<SlotWorker>(worker, progress_[concurrency], orders_[concurrency], steps_before,
                                          trainer_.model().mesh(), options_.timeout);
    });
    StepTimeline timeline = trainer_.gather_timeline();
    if (is_first_) seen_.timelines[concurrency].push_back(std::move(timeline));
  }

  const trainer::TrainOptions& options_;
  RankTrainer& trainer_;
  std::deque<SlotProgress>& progress_;
  Seen& seen_;
  const bool is_first_;
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
  times.contended = play_contended(step, seen.overlapping, slowdown_of(step, times.slowdowns, seen.overlapping));
}

void take_median(Seen& seen, LayoutTimes& times) {
  // The rank that timed a step may have begun it later than others and ended it before them.
  for (Seen::Measured& sample : seen.measured) sample.ms = std::max(sample.ms, end_ms(sample.timeline));
  std::sort(seen.measured.begin(), seen.measured.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  for (const Seen::Measured& sample : seen.measured) times.samples_ms.push_back(sample.ms);
  Seen::Measured& middle = seen.measured[(seen.measured.size() - 1) / 2];
  times.measured = schedules::when_bytes_move(seen.step, std::move(middle.timeline));
  times.around_ms = middle.ms - end_ms(times.measured);
}

}  // namespace

LayoutTimes time_layout(const trainer::TrainOptions& options, const trainer::Corpus& corpus, const Effort& effort) {
  std::deque<SlotProgress> progress(kMostConcurrencies);
  Seen seen;
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep& train_step, RankTrainer& trainer) {
    RankTimer(options, train_step, trainer, progress, seen).run(effort);
  });
  LayoutTimes times;
  times.step = seen.step;
  times.overlapping = seen.overlapping;
  predict(seen, times);
  take_median(seen, times);
  times.energy = seen.energy;
  times.energy_text = seen.energy_text;
  return times;
}

core::NamedNumbers parts_of(const Step& step, const StepTimeline& timeline, double around_ms) {
  core::NamedNumbers parts = program::mean_parts_ms(schedules::breakdown_of(step, timeline));
  parts.emplace_back("around", around_ms);
  return parts;
}

StepSample time_step(const trainer::TrainOptions& options, const trainer::Corpus& corpus, int steps) {
  Seen seen;
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep& made, RankTrainer& trainer) {
    const bool is_first = trainer.model().rank() == 0;
    if (is_first) seen.step = made.step;
    for (int step = 1; step <= kWarmUp + steps; ++step) {
      const double ms = trainer.train_step(step).seconds * 1e3;
      if (step <= kWarmUp) continue;
      StepTimeline timeline = trainer.gather_timeline();
      if (is_first) seen.measured.push_back({ms, std::move(timeline)});
    }
  });
  LayoutTimes times;
  take_median(seen, times);
  const core::NamedNumbers parts = parts_of(seen.step, times.measured, times.around_ms);
  return {times.around_ms + end_ms(times.measured), parts};
}

}  // namespace lockstep::scaling
