#include "bench/scaling/program.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "bench/scaling/records.h"
#include "bench/scaling/text.h"
#include "core/cores.h"
#include "core/statistics.h"
#include "core/wait.h"

namespace lockstep::scaling {
namespace {

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
  const double single_tokens_per_s = static_cast<double>(single.tokens_a_step()) / core::median(single_ms) * 1e3;
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
      const double single_tokens_per_s = static_cast<double>(single.tokens_a_step()) / alone.isolated_ms() * 1e3;
      result.efficiency = result.tokens_per_s() / single_tokens_per_s / many.layout.ranks();
      print(row_text(result));
      if (writer.is_open()) writer.write(scaling_record(run, result));
    }
  }
}

}  // namespace

int run_scaling(const ScalingFlags& flags, const program::Print& print) {
  const std::vector<Case> cases = cases_of(flags);
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
    print(row_text(result) + gap_text(result) + slowdowns_text(result));
    if (result.times.energy || i + 1 == cases.size()) print(result.times.energy_text);
    if (writer.is_open()) writer.write(scaling_record(run, result));
  }
  run_simulated(flags, corpus, run, writer, print);
  print(closing_text());
  writer.commit();
  return 0;
}

}  // namespace lockstep::scaling
