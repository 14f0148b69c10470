// scaling: what it found of a layout, as a row of the table and as a record.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/scaling/scaling.h"
#include "core/record.h"
#include "core/statistics.h"
#include "trainer/train/options.h"

namespace lockstep::scaling {

struct Result {
  Mode mode = Mode::weak;
  std::string name;  // "dp=2,zero=1"
  trainer::TrainOptions options;
  bool oversubscribed = false;
  double ideal_speedup = 1;
  std::optional<LayoutTimes> times = {};  // of its pieces
  std::vector<StepSample> rounds = {};    // empty: simulated
  std::optional<Efficiency> efficiency = {};
  // Predicted and measured steps. Parts are the mean over ranks and sum to the step; "around" is 0 in predictions.
  std::vector<core::StepTimeRecord> steps = {};

  bool simulated() const { return rounds.empty(); }
  const core::StepTimeRecord& step(std::string_view kind) const {
    return *std::find_if(steps.begin(), steps.end(), [&](const auto& one) { return one.kind == kind; });
  }
  std::vector<double> rounds_ms() const {
    std::vector<double> all_ms;
    for (const StepSample& sample : rounds) all_ms.push_back(sample.ms);
    return all_ms;
  }
  StepSample last_step() const { return {steps.back().step_ms, steps.back().parts_ms}; }
  double step_ms() const { return simulated() ? steps.back().step_ms : core::median(rounds_ms()); }
  double tokens_per_s() const { return static_cast<double>(options.tokens_per_step()) / step_ms() * 1e3; }
};

std::string heading_text(const ScalingFlags& flags, const trainer::TrainOptions& options, const std::string& data,
                         int most_ranks, int cores);
std::string columns_text();
// `measured`: the measured layouts, with which a simulated one is compared.
std::string row_text(const Result& result, const std::vector<Result>& measured);
// The step beside the sum of its pieces, and the slowdowns of those that run concurrently.
std::string pieces_text(const Result& result);

// `machine`: on which it was simulated; empty: from pieces.
core::ScalingRecord scaling_record(const core::RunRecord& run, const Result& result, const std::string& machine);

}  // namespace lockstep::scaling
