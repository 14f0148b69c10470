// scaling: how far a training step scales over ranks, and a step compared with the sum of its pieces, by layout. The
// tables, the records and the exit status.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/mini_train/report.h"
#include "bench/program/place.h"
#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "bench/program/run_records.h"
#include "bench/scaling/scaling.h"
#include "core/host_load.h"
#include "core/ranks.h"
#include "core/record.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "schedules/schedule.h"
#include "simulator/predict/predict.h"
#include "trainer/train/options.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::scaling {
namespace {

// Ranks of a layout that have cores, or a GPU, of their own.
int ranks_with_room(const trainer::TrainOptions& options) {
  const int ranks = options.layout.ranks();
  if (options.device.cuda) return std::max(program::num_gpus(options.device, nullptr, ranks), 1);
  return std::clamp(core::usable_cores() / options.threads, 1, ranks);
}

Result result_of(Mode mode, const trainer::TrainOptions& options) {
  const int ranks = options.layout.ranks();
  const int room = ranks_with_room(options);
  return {.mode = mode,
          .name = mini_train::layout_record(options.layout).text,
          .options = options,
          .oversubscribed =
              options.device.cuda ? room < ranks : program::is_oversubscribed(nullptr, ranks, options.threads),
          .ideal_speedup = static_cast<double>(room)};
}

// With more tasks a record's timeline is too large to draw or to keep.
constexpr std::size_t kMostRanksKept = 16;

core::StepTimeRecord simulated_step(const char* mode, const schedules::Step& step,
                                    const simulator::Simulation& simulation) {
  core::StepTimeRecord record =
      step_record(mode, {static_cast<double>(simulation.makespan_ps) / 1e9}, parts_of(step, simulation.timeline, 0));
  if (simulation.timeline.size() <= kMostRanksKept) {
    record.timeline = program::timeline_record(step, simulation.timeline);
  }
  return record;
}

void add_pieces(LayoutTimes times, Result& result) {
  core::StepTimeRecord measured =
      step_record("measured", times.samples_ms, parts_of(times.step, times.measured, times.around_ms));
  measured.timeline = program::timeline_record(times.step, times.measured);
  result.steps = {simulated_step("isolated", times.step, times.isolated),
                  simulated_step("contended", times.step, times.contended), std::move(measured)};
  result.times = std::move(times);
}

// The step of the round whose time is the median.
core::StepTimeRecord step_of_rounds(const Result& result) {
  std::vector<StepSample> sorted = result.rounds;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  return step_record("measured", result.rounds_ms(), sorted[(sorted.size() - 1) / 2].parts_ms);
}

// the run of simulated layouts in the same process
core::RunRecord simulated_run(core::RunRecord run) {
  run.run = core::new_run_id();
  run.basis = "simulated";
  run.oversubscribed = false;
  return run;
}

constexpr const char* kOneRank = "dp=1";  // the baseline of the other layouts

bool is_one_rank(const Result& result) {
  return result.options.layout.ranks() == 1 && result.options.layout.microbatches == 1;
}

// Layouts of the curves, and of pieces.
std::vector<std::string> measured_layouts(const ScalingFlags& flags) {
  if (flags.ranks.empty()) return flags.layouts;
  std::vector<std::string> layouts;
  for (const std::string& layout : flags.layouts) {
    for (const int ranks : std::set<int>(flags.ranks.begin(), flags.ranks.end())) {
      layouts.push_back(grown_layout(flags, layout, ranks));
    }
  }
  return layouts;
}

// One rank comes first in each mode because it is the baseline of the others.
std::vector<Result> results_of(const ScalingFlags& flags) {
  std::vector<Result> results;
  for (const Mode mode : flags.modes) {
    results.push_back(result_of(mode, options_of(flags, kOneRank, mode)));
    for (const std::string& layout : flags.simulated) two_replicas_of(options_of(flags, layout, mode));
    for (const std::string& layout : measured_layouts(flags)) {
      Result result = result_of(mode, options_of(flags, layout, mode));
      if (!is_one_rank(result)) results.push_back(std::move(result));
    }
  }
  return results;
}

double seconds_since(core::Clock::time_point begin) {
  return core::us_between(begin, core::Clock::now()) / 1e6;
}

Ideal ideal_of(const Result& result, const Result& one, const core::HostLoad& others) {
  const workload::Layout& layout = result.options.layout;
  return {.work = static_cast<double>(result.options.tokens_per_step()) /
                  static_cast<double>(one.options.tokens_per_step()),
          .speedup = result.ideal_speedup,
          .shares_cores = result.ideal_speedup < layout.ranks(),
          .can_exceed = result.mode == Mode::strong || layout.dp < layout.ranks() || layout.microbatches > 1,
          .simulated = result.simulated(),
          .others = result.options.device.cuda ? 0 : others.others_share().value_or(0)};
}

// Rounds in which all layouts train, because machines drift: back and forth, so that a steady drift cancels.
void time_rounds(const ScalingFlags& flags, const trainer::Corpus& corpus, double seconds,
                 std::vector<Result>& results) {
  constexpr int kSteps = 3;
  const core::HostLoad others;
  const auto begin = core::Clock::now();
  for (int round = 0; round < flags.rounds && (round == 0 || seconds_since(begin) < seconds); ++round) {
    for (std::size_t k = 0; k < results.size(); ++k) {
      Result& result = results[round % 2 == 0 ? k : results.size() - 1 - k];
      // One rank's step is the same in both modes.
      if (is_one_rank(result) && &result != &results.front()) continue;
      result.rounds.push_back(time_step(result.options, corpus, kSteps));
    }
  }
  const std::vector<StepSample> single = results.front().rounds;
  for (Result& result : results) {
    if (is_one_rank(result)) {
      result.rounds = single;
    } else {
      result.efficiency = efficiency_of(single, result.rounds, ideal_of(result, results.front(), others));
    }
  }
}

// As many hosts of a calibrated machine as the ranks need, each as full as they make it.
simulator::Machine as_many_hosts(simulator::Machine machine, const trainer::TrainOptions& options) {
  simulator::Measured& measured = machine.measured;
  if (measured.cores == 0) return machine;
  const int copies = std::clamp(measured.cores / measured.threads, 1, options.layout.ranks());
  for (auto& [kernel, us_of_copies] : measured.kernels) {
    us_of_copies = simulator::Measured::Curve{{1, simulator::value_at(us_of_copies, copies)}};
  }
  measured.cores = 0;
  return machine;
}

// Layouts that are not run: from pieces, each timed once, or on a described machine.
class Simulator {
 public:
  Simulator(const ScalingFlags& flags, const trainer::Corpus& corpus) : flags_(flags), corpus_(corpus) {
    if (!flags.machine.empty()) machine_ = simulator::load_machine(flags.machine);
  }

  Result result_of(Mode mode, const trainer::TrainOptions& options) {
    Result result = scaling::result_of(mode, options);
    result.oversubscribed = false;
    result.ideal_speedup = options.layout.ranks();
    machine_ ? add_predicted(result) : add_from_pieces(result);
    return result;
  }

 private:
  const LayoutTimes& pieces_of(const trainer::TrainOptions& options) {
    const std::string key = workload::text_of(options.layout);
    auto found = pieces_.find(key);
    if (found == pieces_.end()) {
      found = pieces_.emplace(key, time_layout(options, corpus_, {.rounds = flags_.effort.rounds})).first;
    }
    return found->second;
  }

  // From the pieces of two replicas, alone and with the slowdowns of two replicas that run concurrently. The two
  // represent all others, and one rank.
  void add_from_pieces(Result& result) {
    trainer::TrainOptions two = result.options;
    two.layout.dp = 2;
    const LayoutTimes& times = pieces_of(two);
    const schedules::Step step = priced_beyond(times.step, result.options.layout, times.step, two.layout, times.prices);
    result.steps = {simulated_step("isolated", step, simulator::play(step))};
    if (is_one_rank(result) || ranks_with_room(two) < two.layout.ranks()) return;  // slowdowns of shared cores
    const auto contended =
        play_contended(step, times.overlapping, slowdown_of(step, times.slowdowns, times.overlapping));
    result.steps.push_back(simulated_step("contended", step, contended));
  }

  void add_predicted(Result& result) {
    const simulator::Prediction prediction =
        predict(result.options.model, result.options.layout, as_many_hosts(*machine_, result.options));
    core::NamedNumbers parts = program::mean_parts_ms(prediction.parts);
    parts.emplace_back("around", 0);
    result.steps = {step_record("predicted", {prediction.step_s * 1e3}, parts)};
  }

  const ScalingFlags& flags_;
  const trainer::Corpus& corpus_;
  std::optional<simulator::Machine> machine_;
  std::map<std::string, LayoutTimes> pieces_;
};

// The simulated layouts of a mode: of curves, for --ranks and for powers of two up to --simulate-to, until no layout
// is possible, such as with fewer sequences than ranks.
std::vector<trainer::TrainOptions> simulated_options(const ScalingFlags& flags, Mode mode,
                                                     const program::Print& print) {
  std::vector<trainer::TrainOptions> all;
  for (const std::string& layout : flags.simulated) all.push_back(options_of(flags, layout, mode));
  if (flags.simulate_to == 0) return all;
  std::set<int> curve(flags.ranks.begin(), flags.ranks.end());
  for (int ranks = 1; ranks <= flags.simulate_to; ranks *= 2) curve.insert(ranks);
  for (const std::string& base : flags.layouts) {
    for (const int ranks : curve) {
      try {
        trainer::TrainOptions options = options_of(flags, grown_layout(flags, base, ranks), mode);
        if (ranks > 1 && flags.machine.empty()) {
          if (options.layout.dp == 1) continue;  // no replicas whose pieces could be timed
          two_replicas_of(options);
        }
        all.push_back(std::move(options));
      } catch (const core::Error& error) {
        print(fmt::format("# {}, {} ranks and more are not simulated: {}\n", name_of(mode), ranks, error.what()));
        break;
      }
    }
  }
  return all;
}

void run_simulated(const ScalingFlags& flags, const trainer::Corpus& corpus, const core::RunRecord& measured_run,
                   program::StepTable<Result>& table, const program::Print& print) {
  if (flags.simulated.empty() && flags.simulate_to == 0) return;
  const core::RunRecord run = simulated_run(measured_run);
  table.write(run);
  const core::HostLoad others;
  Simulator simulator(flags, corpus);
  for (const Mode mode : flags.modes) {
    const Result one = simulator.result_of(mode, options_of(flags, kOneRank, mode));
    for (const trainer::TrainOptions& options : simulated_options(flags, mode, print)) {
      Result result = simulator.result_of(mode, options);
      const auto last = [](const Result& of) { return std::vector{sample_of(of.steps.back())}; };
      result.efficiency = efficiency_of(last(one), last(result), ideal_of(result, one, others));
      table.add(result, scaling_record(run, result, flags.machine), "");
    }
  }
}

int run_scaling(const ScalingFlags& flags, const program::Print& plain) {
  std::vector<Result> results = results_of(flags);
  program::Progress progress("layouts", results.size());
  const program::Print print = progress.around(plain);
  const trainer::TrainOptions& first = results.front().options;
  const trainer::Corpus corpus = mini_train::corpus_of(first);
  int most_ranks = 1;
  for (const Result& result : results) most_ranks = std::max(most_ranks, result.options.layout.ranks());
  const core::RunRecord run = mini_train::run_record(flags, first, most_ranks);
  const bool curve = !flags.ranks.empty();
  program::StepTable<Result> table(columns(results), print, flags.json_file);
  table.begin(heading_text(flags, first, corpus.name(), most_ranks, core::usable_cores()));
  table.write(run);

  const auto begin = core::Clock::now();
  const double share = !curve ? 0.5 : flags.simulate_to > 0 ? 0.7 : 1;  // the rest is for pieces
  time_rounds(flags, corpus, share * flags.effort.seconds, results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    Result& result = results[i];
    progress.one_done();
    std::string below;
    if (curve) {
      result.steps = {step_of_rounds(result)};
    } else {
      // Each remaining layout gets an equal part of the remaining time.
      const double left_s = std::max(flags.effort.seconds - seconds_since(begin), 0.0);
      const double own_s = left_s / static_cast<double>(results.size() - i);
      add_pieces(time_layout(result.options, corpus, {flags.effort.rounds, own_s}), result);
      below = pieces_text(result);
      if (result.times->energy || i + 1 == results.size()) below += result.times->energy_text;
    }
    table.add(result, scaling_record(run, result, ""), below);
  }
  run_simulated(flags, corpus, run, table, print);
  return table.end("");
}

}  // namespace
}  // namespace lockstep::scaling

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("scaling", [&] {
    const auto flags = lockstep::scaling::parse_scaling_flags(argc, argv);
    lockstep::program::refuse_peers("--transport local", "no mpirun, or mini_train for one layout");
    return lockstep::scaling::run_scaling(flags, lockstep::program::to_stdout);
  });
}
