#include "bench/scaling/result.h"

#include <algorithm>

#include "bench/pipeline/parts.h"
#include "bench/scaling/beyond.h"
#include "bench/trainer/records.h"
#include "core/cores.h"
#include "core/statistics.h"
#include "schedules/step/breakdown.h"
#include "schedules/token.h"
#include "trainer/step/train_step.h"
#include "trainer/train/rank_setup.h"

namespace lockstep::scaling {
namespace {

core::NamedNumbers parts_of(const schedules::Step& step, const schedules::StepTimeline& timeline, double around_ms) {
  core::NamedNumbers parts = pipeline::mean_parts_ms(schedules::breakdown_of(step, timeline));
  parts.emplace_back("around", around_ms);
  return parts;
}

}  // namespace

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

}  // namespace lockstep::scaling
