// scaling: a training step beside the sum of its pieces, by layout. The table, the records and the exit status.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/pipeline/output.h"
#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "bench/scaling/scaling.h"
#include "bench/trainer/report.h"
#include "core/ranks.h"
#include "core/record.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "schedules/schedule.h"
#include "schedules/step/breakdown.h"
#include "trainer/step/train_step.h"
#include "trainer/train/options.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::scaling {
namespace {

struct Result {
  Mode mode = Mode::weak;
  std::string name;  // "dp=2,zero=1"
  trainer::TrainOptions options;
  bool oversubscribed = false;
  LayoutTimes times;
  double measured_ms = 0;                 // median
  std::optional<double> efficiency = {};  // relative to one rank in the same mode

  // Mean over ranks; the parts sum to the step. The last, "around", exists only for the measured step.
  core::NamedNumbers isolated_parts;
  core::NamedNumbers contended_parts;
  core::NamedNumbers measured_parts;

  double isolated_ms() const { return static_cast<double>(times.isolated.makespan_ps) / 1e9; }
  double contended_ms() const { return static_cast<double>(times.contended.makespan_ps) / 1e9; }
  bool simulated() const { return times.samples_ms.empty(); }
  double tokens_per_s() const {
    return static_cast<double>(options.tokens_per_step()) / (simulated() ? isolated_ms() : measured_ms) * 1e3;
  }
};

// Measured slowdowns as rows: the slowed piece, the concurrent work, and the number of ranks.
struct SlowdownRow {
  std::string of;
  std::string beside;
  std::int32_t ranks = 1;
  double factor = 1;
  std::size_t samples = 0;
};

core::NamedNumbers parts_of(const schedules::Step& step, const schedules::StepTimeline& timeline, double around_ms) {
  core::NamedNumbers parts = pipeline::mean_parts_ms(schedules::breakdown_of(step, timeline));
  parts.emplace_back("around", around_ms);
  return parts;
}

Result result_of(Mode mode, const trainer::TrainOptions& options, LayoutTimes times) {
  Result result;
  result.mode = mode;
  result.name = mini_train::layout_record(options.layout).text;
  result.options = options;
  result.oversubscribed = options.layout.ranks() * options.threads > core::usable_cores();
  result.measured_ms = core::median(times.samples_ms);
  result.isolated_parts = parts_of(times.step, times.isolated.timeline, 0);
  result.contended_parts = parts_of(times.step, times.contended.timeline, 0);
  result.measured_parts = parts_of(times.step, times.measured, times.around_ms);
  result.times = std::move(times);
  return result;
}

// A layout that was not run, from one that was: its step is simulated (bench/scaling/scaling.h), with isolated times
// only.
Result simulated_result(Mode mode, const trainer::TrainOptions& many, const Result& two) {
  Result result;
  result.mode = mode;
  result.name = mini_train::layout_record(many.layout).text;
  result.options = many;
  const trainer::TrainStep made = trainer::make_train_step(many.model, many.layout);
  const schedules::Step step =
      priced_beyond(made.step, many.layout, two.times.step, two.options.layout, two.times.prices);
  result.times.step = step;
  result.times.isolated = simulator::play(step);
  result.isolated_parts = parts_of(step, result.times.isolated.timeline, 0);
  return result;
}

std::vector<SlowdownRow> rows_of(const Slowdowns& slowdowns, std::int32_t ranks) {
  std::vector<SlowdownRow> rows;
  for (const auto& [op, by_ranks] : slowdowns.kernel) {
    for (const auto& [computing, factor] : by_ranks) {
      rows.push_back(
          {std::string(schedules::name_of(op)), "kernels of other ranks", computing, factor.value(), factor.samples()});
    }
  }
  for (const auto& [op, factor] : slowdowns.kernel_beside) {
    rows.push_back(
        {std::string(schedules::name_of(op)), "a collective of its rank", ranks, factor.value(), factor.samples()});
  }
  for (std::size_t lane = 0; lane < schedules::kNumLanes; ++lane) {
    const Factor& factor = slowdowns.collective[lane];
    if (factor.samples() == 0) continue;
    rows.push_back({std::string(schedules::name_of(static_cast<schedules::Lane>(lane))) + " collective",
                    "kernels of its members", ranks, factor.value(), factor.samples()});
  }
  std::erase_if(rows, [](const SlowdownRow& row) { return row.samples == 0; });
  return rows;
}

double percent(double of, double whole) {
  return 100 * of / whole;
}

// "backward +3.1, bubble -0.4 ms"; parts below a hundredth of the step are left out.
std::string difference_text(const core::NamedNumbers& from, const core::NamedNumbers& to, double step_ms) {
  std::string text;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const double more = to[i].second - from[i].second;
    if (more < -0.01 * step_ms || more > 0.01 * step_ms) {
      text += fmt::format("{}{} {:+.2f}", text.empty() ? "" : ", ", to[i].first, more);
    }
  }
  return text.empty() ? "each part within 1 %" : text + " ms";
}

std::string heading_text(const ScalingFlags& flags, const trainer::TrainOptions& options, const std::string& data,
                         int most_ranks, int cores) {
  const workload::Model& model = options.model;
  std::string text = fmt::format(
      "# {}: {} layers, hidden {}, {} parameters; {}; {} sequences of {} tokens per step, on each rank (weak) or in "
      "total "
      "(strong); data: {}\n"
      "# {} thread{} per rank, {} cores: layouts that need more are marked *, because their ranks share cores\n"
      "# isolated: simulated from pieces timed alone; contended: simulated with the slowdowns measured "
      "while pieces run concurrently; measured: the median of whole steps, timed alternately with these\n",
      title_of(model), model.layers, model.hidden, parameters_of(model), core::short_name_of(options.layout.compute),
      flags.batch, options.model.sequence, data, options.threads, options.threads == 1 ? "" : "s", cores);
  if (options.device.cuda) text += "# " + program::gpus_text(options.device, most_ranks) + "\n";
  if (options.link) {
    text += fmt::format("# EMULATED links: {} us, {} GB/s\n", options.link->latency_us, options.link->gbps);
  }
  return text;
}

std::string columns_text() {
  return fmt::format(
      "{:<6} {:<34} {:>5} {:>10} {:>10} {:>10} {:>15} {:>9} {:>9} {:>10} {:>10}\n"
      "{:<6} {:<34} {:>5} {:>10} {:>10} {:>10} {:>15} {:>9} {:>9} {:>10} {:>10}\n",
      "# mode", "layout", "ranks", "isolated", "contended", "measured", "5 to 95 %", "c/isol.", "c/cont.", "tokens/s",
      "efficiency", "#", "", "", "ms", "ms", "ms", "ms", "%", "%", "", "%");
}

std::string row_text(const Result& result) {
  if (result.simulated()) {
    return fmt::format("{:<6} {:<34} {:>5} {:>10.2f} {:>10} {:>10} {:>15} {:>9} {:>9} {:>10.0f} {:>10.1f}\n",
                       name_of(result.mode), result.name, result.options.layout.ranks(), result.isolated_ms(), "-",
                       "simulated", "-", "-", "-", result.tokens_per_s(), *result.efficiency * 100);
  }
  const core::Summary summary = core::summarize(result.times.samples_ms);
  return fmt::format("{:<6} {:<34} {:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>15} {:>+9.1f} {:>+9.1f} {:>10.0f} {:>10}\n",
                     name_of(result.mode), result.name,
                     fmt::format("{}{}", result.options.layout.ranks(), result.oversubscribed ? "*" : ""),
                     result.isolated_ms(), result.contended_ms(), result.measured_ms,
                     fmt::format("{:.2f}-{:.2f}", summary.p5, summary.p95),
                     percent(result.measured_ms - result.isolated_ms(), result.isolated_ms()),
                     percent(result.measured_ms - result.contended_ms(), result.contended_ms()), result.tokens_per_s(),
                     result.efficiency ? fmt::format("{:.1f}", *result.efficiency * 100) : "-");
}

// Differences of the measured step from both predictions, by part.
std::string gap_text(const Result& result) {
  return fmt::format("#   measured - isolated:  {}\n#   measured - contended: {}\n",
                     difference_text(result.isolated_parts, result.measured_parts, result.measured_ms),
                     difference_text(result.contended_parts, result.measured_parts, result.measured_ms));
}

// Slowdowns of pieces that run concurrently.
std::string slowdowns_text(const Result& result) {
  std::string text;
  for (const SlowdownRow& row : rows_of(result.times.slowdowns, result.options.layout.ranks())) {
    text += fmt::format("{}{} beside {}{} {:.2f} times", text.empty() ? "#   concurrently: " : "; ", row.of, row.beside,
                        row.beside.starts_with("kernels of other") ? fmt::format(" ({} ranks)", row.ranks) : "",
                        row.factor);
  }
  return text.empty() ? text : text + "\n";
}

std::string closing_text() {
  return "# c/isol., c/cont.: how much longer the measured step is than predicted. The part that isolated pieces do "
         "not "
         "explain is contention to the extent that c/cont. is nearer to 0; the rest is listed by part.\n";
}

core::StepTimeRecord step_record(const char* kind, double step_ms, const core::NamedNumbers& parts,
                                 const schedules::Step& step, const schedules::StepTimeline& timeline) {
  return {.kind = kind,
          .step_ms = step_ms,
          .samples_ms = {step_ms},
          .parts_ms = parts,
          .timeline = pipeline::timeline_record(step, timeline)};
}

core::ScalingRecord record_without_steps(const core::RunRecord& run, const Result& result) {
  return {.run = run.run,
          .program = run.program,
          .basis = run.basis,
          .mode = name_of(result.mode),
          .model = mini_train::model_record(result.options),
          .layout = mini_train::layout_record(result.options.layout),
          .dtype = std::string(core::short_name_of(result.options.layout.compute)),
          .ranks = result.options.layout.ranks(),
          .threads = result.options.threads,
          .oversubscribed = result.oversubscribed,
          .sequences_per_step = result.options.layout.global_batch(),
          .tokens_per_step = result.options.tokens_per_step(),
          .steps = {},
          .tokens_per_s = result.tokens_per_s(),
          .efficiency = result.efficiency};
}

// With more tasks a record's timeline is too large to draw or to keep.
constexpr std::size_t kMostRanksKept = 16;

core::ScalingRecord simulated_record(const core::RunRecord& run, const Result& result) {
  core::ScalingRecord record = record_without_steps(run, result);
  const schedules::StepTimeline& timeline = result.times.isolated.timeline;
  record.steps = {step_record("isolated", result.isolated_ms(), result.isolated_parts, result.times.step,
                              timeline.size() <= kMostRanksKept ? timeline : schedules::StepTimeline{})};
  return record;
}

// the run of simulated layouts in the same process
core::RunRecord simulated_run(core::RunRecord run) {
  run.run = core::new_run_id();
  run.basis = "simulated";
  run.oversubscribed = false;
  return run;
}

// `most_ranks`: maximum over layouts.
core::RunRecord run_record(const ScalingFlags& flags, const trainer::TrainOptions& options, int most_ranks) {
  core::RunRecord run = pipeline::new_run_record(flags.program, flags.command, pipeline::Mode::simulated, most_ranks);
  run.basis = options.link ? "emulated" : "measured";
  run.oversubscribed = most_ranks * options.threads > core::usable_cores();
  program::add_place(options.device, options.mpi, most_ranks, run);
  run.seed = options.seed;
  if (options.link) run.link = program::link_record(*options.link);
  return run;
}

core::ScalingRecord scaling_record(const core::RunRecord& run, const Result& result) {
  if (result.simulated()) return simulated_record(run, result);
  const LayoutTimes& times = result.times;
  core::StepTimeRecord measured =
      step_record("measured", result.measured_ms, result.measured_parts, times.step, times.measured);
  measured.samples_ms = times.samples_ms;
  core::ScalingRecord record = record_without_steps(run, result);
  record.steps = {
      step_record("isolated", result.isolated_ms(), result.isolated_parts, times.step, times.isolated.timeline),
      step_record("contended", result.contended_ms(), result.contended_parts, times.step, times.contended.timeline),
      std::move(measured)};
  record.energy = times.energy;
  for (const SlowdownRow& row : rows_of(times.slowdowns, result.options.layout.ranks())) {
    record.slowdowns.push_back({row.of, row.beside, row.ranks, row.factor, static_cast<std::int64_t>(row.samples)});
  }
  return record;
}

constexpr const char* kOneRank = "dp=1";  // the baseline of the other layouts

struct Case {
  Mode mode = Mode::weak;
  trainer::TrainOptions options;
};

// One rank comes first in each mode because it is the baseline of the others.
std::vector<Case> cases_of(const ScalingFlags& flags) {
  std::vector<Case> cases;
  for (const Mode mode : flags.modes) {
    cases.push_back({mode, options_of(flags, kOneRank, mode)});
    for (const std::string& layout : flags.simulated) two_replicas_of(options_of(flags, layout, mode));
    for (const std::string& layout : flags.layouts) {
      Case one{mode, options_of(flags, layout, mode)};
      if (one.options.layout.ranks() > 1 || one.options.layout.microbatches > 1) cases.push_back(std::move(one));
    }
  }
  return cases;
}

trainer::Corpus corpus_of(const trainer::TrainOptions& options) {
  if (options.data.empty())
    return trainer::Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  return trainer::Corpus::of_files(options.data, options.model.sequence);
}

// Each remaining case gets an equal part of the remaining time.
Effort effort_for(const ScalingFlags& flags, double spent_s, std::size_t left) {
  return {flags.effort.rounds, std::max(flags.effort.seconds - spent_s, 0.0) / static_cast<double>(left)};
}

// Times one rank's steps before and after those of a layout, because machines drift: its efficiency is relative to
// them.
Result time_case(const Case& one, const ScalingFlags& flags, const trainer::Corpus& corpus, const Effort& effort) {
  constexpr int kSteps = 3;  // on each side
  const trainer::TrainOptions single = options_of(flags, kOneRank, one.mode);
  const bool is_single = one.options.layout.ranks() == 1 && one.options.layout.microbatches == 1;
  std::vector<double> single_ms;
  if (!is_single) single_ms = time_steps(single, corpus, kSteps);
  Result result = result_of(one.mode, one.options, time_layout(one.options, corpus, effort));
  if (is_single) {
    single_ms = result.times.samples_ms;
  } else {
    for (const double ms : time_steps(single, corpus, kSteps)) single_ms.push_back(ms);
  }
  const double single_tokens_per_s = static_cast<double>(single.tokens_per_step()) / core::median(single_ms) * 1e3;
  result.efficiency = result.tokens_per_s() / single_tokens_per_s / one.options.layout.ranks();
  return result;
}

// Beyond the machine: the same layout with two replicas is timed, the rest is simulated.
void run_simulated(const ScalingFlags& flags, const trainer::Corpus& corpus, const core::RunRecord& measured_run,
                   core::RecordWriter& writer, const program::Print& print) {
  if (flags.simulated.empty()) return;
  const core::RunRecord run = simulated_run(measured_run);
  writer.write(run);
  for (const Mode mode : flags.modes) {
    const trainer::TrainOptions single = options_of(flags, kOneRank, mode);
    for (const std::string& layout : flags.simulated) {
      const trainer::TrainOptions many = options_of(flags, layout, mode);
      const trainer::TrainOptions two = two_replicas_of(many);
      const Result alone = result_of(mode, single, time_layout(single, corpus, {.rounds = flags.effort.rounds}));
      const Result pair = result_of(mode, two, time_layout(two, corpus, {.rounds = flags.effort.rounds}));
      Result result = simulated_result(mode, many, pair);
      const double single_tokens_per_s = static_cast<double>(single.tokens_per_step()) / alone.isolated_ms() * 1e3;
      result.efficiency = result.tokens_per_s() / single_tokens_per_s / many.layout.ranks();
      print(row_text(result));
      if (writer.is_open()) writer.write(scaling_record(run, result));
    }
  }
}

int run_scaling(const ScalingFlags& flags, const program::Print& plain_print) {
  const std::vector<Case> cases = cases_of(flags);
  program::Progress progress("layouts", cases.size() + flags.modes.size() * flags.simulated.size());
  const program::Print print = progress.around(plain_print);
  const trainer::TrainOptions& first = cases.front().options;
  const trainer::Corpus corpus = corpus_of(first);
  int most_ranks = 1;
  for (const Case& one : cases) most_ranks = std::max(most_ranks, one.options.layout.ranks());
  core::RecordWriter writer(flags.json_file);
  const core::RunRecord run = run_record(flags, first, most_ranks);
  writer.write(run);
  print(heading_text(flags, first, corpus.name(), most_ranks, core::usable_cores()) + columns_text());

  const auto begin = core::Clock::now();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Effort effort = effort_for(flags, core::us_between(begin, core::Clock::now()) / 1e6, cases.size() - i);
    Result result = time_case(cases[i], flags, corpus, effort);
    progress.one_done();
    print(row_text(result) + gap_text(result) + slowdowns_text(result));
    if (result.times.energy || i + 1 == cases.size()) print(result.times.energy_text);
    if (writer.is_open()) writer.write(scaling_record(run, result));
  }
  run_simulated(flags, corpus, run, writer, [&](const std::string& row) {
    progress.one_done();
    print(row);
  });
  print(closing_text());
  writer.commit();
  return 0;
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
