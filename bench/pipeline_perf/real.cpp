#include "bench/pipeline_perf/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "bench/program/place.h"
#include "core/statistics.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/step.h"
#include "trainer/step/train_step.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/train.h"

namespace lockstep::pipeline {
namespace {

using schedules::Op;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;
using schedules::TaskSpan;
using trainer::TrainOptions;

constexpr std::int64_t kWarmUpSteps = 2;

std::int64_t num_steps(const PipelineFlags& flags) {
  return kWarmUpSteps + flags.repeat;
}

TrainOptions options_for(const schedules::Schedule& schedule, const PipelineFlags& flags) {
  TrainOptions options;
  options.layout.pp = schedule.num_ranks();
  options.layout.microbatches = schedule.num_microbatches / schedule.slices();
  options.layout.slices = schedule.slices();
  options.layout.balanced_slices = flags.balanced_slices;
  options.layout.own_schedule = std::make_shared<const schedules::Schedule>(schedule);
  options.model =
      workload::parse_model(fmt::format("layers={},hidden={},heads={},vocabulary=256,sequence={},dropout=no",
                                        std::int64_t{flags.model.layers} * schedule.num_ranks(), flags.model.hidden,
                                        flags.model.heads, flags.model.length));
  options.layout.microbatch_size = flags.model.batch;
  options.layout.compute = core::parse_dtype(flags.model.dtype);
  options.steps = num_steps(flags);
  options.timeout = std::chrono::seconds(flags.timeout_s);
  options.device = flags.place.device;
  return options;
}

// Identifies the action of a stage and microbatch, or the message, that a task belongs to.
using Name = std::tuple<Op, std::int32_t, std::int32_t>;

// Recomputed pieces belong to the backward that follows.
std::vector<Name> names_of(const schedules::RankStep& rank) {
  std::vector<Name> names(rank.tasks.size());
  std::map<std::pair<std::int32_t, std::int32_t>, Op> next;  // by (stage, microbatch), scanning from the end
  for (std::size_t i = names.size(); i-- > 0;) {
    const Task& task = rank.tasks[i];
    if (task.op != Op::recompute) next[{task.stage, task.microbatch}] = task.op;
    names[i] = {next[{task.stage, task.microbatch}], task.stage, task.microbatch};
  }
  return names;
}

// Spans from the first start to the last end of tasks with equal identity.
std::map<Name, TaskSpan> spans_of(const schedules::RankStep& rank, const std::vector<TaskSpan>& spans) {
  std::map<Name, TaskSpan> of_name;
  const std::vector<Name> names = names_of(rank);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto [at, is_new] = of_name.try_emplace(names[i], spans[i]);
    if (is_new) continue;
    at->second.start_ps = std::min(at->second.start_ps, spans[i].start_ps);
    at->second.end_ps = std::max(at->second.end_ps, spans[i].end_ps);
  }
  return of_name;
}

struct RealRun {
  StepTimeline timeline;  // times of the schedule's own step, one task per action
  std::int64_t makespan_ps = 0;
};

RealRun folded(const Step& trained, const StepTimeline& timeline, const Step& step) {
  RealRun run;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    const auto of_name = spans_of(trained.of_rank[r], timeline[r]);
    auto& spans = run.timeline.emplace_back();
    for (const Task& task : step.of_rank[r].tasks) {
      spans.push_back(of_name.at({task.op, task.stage, task.microbatch}));
      run.makespan_ps = std::max(run.makespan_ps, spans.back().end_ps);
    }
  }
  return run;
}

// Runs on the ranks of `mpi`, or on threads of this process if it is null; every process gets the result. Rank 0 of
// each process calls `between` before the first step and after each step. Rank 0 of all reports the kept steps to
// `energy` if that is not null.
std::vector<RealRun> run_steps(const schedules::Schedule& schedule, const Step& step, const PipelineFlags& flags,
                               transports::MpiWorld* mpi, const std::function<void()>& between,
                               program::StepEnergy* energy = nullptr) {
  TrainOptions options = options_for(schedule, flags);
  options.mpi = mpi;
  options = trainer::checked(options);
  const int first = mpi == nullptr ? 0 : mpi->placement().rank;
  const auto corpus = trainer::Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  std::vector<RealRun> runs;
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep& made, trainer::RankTrainer& trainer) {
    const bool is_first = trainer.model().rank() == first;
    if (is_first) between();
    for (std::int64_t s = 1; s <= options.steps; ++s) {
      const bool counts = energy != nullptr && trainer.model().rank() == 0 && s > kWarmUpSteps;
      if (counts) energy->begin_step();
      trainer.train_step(s);
      if (counts) energy->end_step();
      const StepTimeline timeline = trainer.gather_timeline();
      if (is_first) between();
      if (is_first && s > kWarmUpSteps) runs.push_back(folded(made.step, timeline, step));
    }
  });
  return runs;
}

double median_ms(const std::vector<RealRun>& runs, const Step& step, Op op) {
  std::vector<double> ms;
  for (const RealRun& run : runs) {
    for (std::size_t i = 0; i < run.timeline[0].size(); ++i) {
      if (step.of_rank[0].tasks[i].op != op) continue;
      ms.push_back(static_cast<double>(run.timeline[0][i].end_ps - run.timeline[0][i].start_ps) / kPsPerMs);
    }
  }
  return core::median(ms);
}

}  // namespace

schedules::Times isolated_times_ms(const PipelineFlags& flags) {
  constexpr std::int32_t kMicrobatches = 8;
  const schedules::Schedule alone = schedules::make_schedule("zb_h1", {1, kMicrobatches, 1});
  const Step step = schedules::lower(alone, std::vector<schedules::StageCosts>(1));
  const auto timed = [&](const std::function<void()>& between) {
    const std::vector<RealRun> runs = run_steps(alone, step, flags, nullptr, between);
    return schedules::Times{.forward = median_ms(runs, step, Op::forward),
                            .input_gradient = median_ms(runs, step, Op::input_gradient),
                            .weight_gradient = median_ms(runs, step, Op::weight_gradient)};
  };
  if (flags.mpi == nullptr) return timed([] {});
  // The other ranks synchronize with rank 0 between steps, so that -T is the deadline of one step, not of all.
  const auto ranks = flags.mpi->make_transport({.naps = true});
  schedules::Times times;
  if (program::writes_output(flags.mpi)) {
    times = timed([&] { ranks->barrier(); });
  } else {
    for (std::int64_t met = 0; met <= num_steps(flags); ++met) ranks->barrier();
  }
  return transports::all_gather_value(*ranks, times).front();
}

double kept_share_for_w(const PipelineFlags& flags) {
  const schedules::Schedule alone = schedules::make_schedule("zb_h1", {1, 1, 1});
  const TrainOptions options = trainer::checked(options_for(alone, flags));
  return trainer::kept_share_for_w(options.model, options.layout);
}

EmulatedRuns run_real(const schedules::Schedule& schedule, const Step& step, const PipelineFlags& flags) {
  const TrainOptions options = options_for(schedule, flags);
  program::StepEnergy energy(program::open_energy(options.device, flags.mpi, options.layout.ranks()));
  std::vector<RealRun> runs = run_steps(
      schedule, step, flags, flags.mpi, [] {}, &energy);
  EmulatedRuns result;
  result.emulation.energy = energy.record(options.tokens_per_step());
  result.emulation.energy_text = energy.text(options.tokens_per_step());
  for (const RealRun& run : runs) {
    result.emulation.samples_ms.push_back(static_cast<double>(run.makespan_ps) / kPsPerMs);
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.makespan_ps < b.makespan_ps; });
  result.timeline = std::move(runs[runs.size() / 2].timeline);
  return result;
}

}  // namespace lockstep::pipeline
