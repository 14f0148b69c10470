#include "simulator/predict/clocks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"

namespace lockstep::simulator {
namespace {

constexpr std::int64_t kPs = 1'000'000'000;  // one ms in ps, so that clocks change times by many picoseconds

Simulation simulated(const schedules::Step& step) {
  const OneSwitch network(step.num_ranks(), kPs / 20);
  return simulate(step, network, [](const auto& /*group*/, const auto& /*task*/) { return 0; });
}
std::int64_t makespan(const schedules::Step& step) {
  return simulated(step).makespan_ps;
}

schedules::Step lowered(const std::string& schedule, std::int32_t ranks, std::int32_t microbatches,
                        std::int64_t slow_stage_ps = kPs) {
  const schedules::Schedule written = schedules::make_schedule(schedule, {ranks, microbatches, 1});
  std::vector<schedules::StageCosts> costs(static_cast<std::size_t>(written.num_stages()), {kPs, kPs, kPs, 1});
  costs.back() = {slow_stage_ps, slow_stage_ps, slow_stage_ps, 1};
  return schedules::lower(written, costs);
}

double mean_mhz(const ClockChoice& choice, std::int32_t rank) {
  double sum = 0;
  double weight = 0;
  for (const Clocked& unit : choice.clocked) {
    if (unit.rank != rank) continue;
    sum += unit.mhz * static_cast<double>(unit.top_ps);
    weight += static_cast<double>(unit.top_ps);
  }
  return sum / weight;
}

TEST(PowerCurve, IsCubicAboveTheKneeAndLinearBelow) {
  const PowerCurve curve{.fixed_watts = 100, .dynamic_watts = 300, .top_mhz = 1000, .knee = 0.5};
  EXPECT_DOUBLE_EQ(curve.watts(1000), 400);
  EXPECT_DOUBLE_EQ(curve.watts(500), 100 + 300 * 0.125);
  EXPECT_DOUBLE_EQ(curve.watts(250), 100 + 300 * 0.25 * 0.25);
  EXPECT_DOUBLE_EQ(curve.slowdown(500), 2);
  EXPECT_DOUBLE_EQ((PowerCurve{.top_mhz = 1000, .bound = 0.5}.slowdown(500)), 1.5);
}

TEST(PowerCurve, IsReadAndWritten) {
  const PowerCurve curve = parse_power("fixed=50,knee=0.7,top=1980");
  EXPECT_EQ(text_of(parse_power(text_of(curve))), text_of(curve));
  EXPECT_DOUBLE_EQ(curve.dynamic_watts, PowerCurve().dynamic_watts);
  for (const std::string text : {"volts=1", "knee=2", "fixed=x", "fixed", "least=2000"}) {
    EXPECT_THROW(parse_power(text), core::Error) << text;
  }
}

// The last stage takes 1.5 times as long. Each stage's clock affects the step, as the pipeline fills and drains through
// all stages; if the step may take 2 % longer, the first stage can run at two thirds of its clock.
TEST(Clocks, OfStagesFallWhereAnotherStageIsTheSlowest) {
  const schedules::Step step = lowered("1f1b", 2, 32, kPs * 3 / 2);
  const Simulation top = simulated(step);
  const PowerCurve curve;
  const auto chosen = [&](std::int64_t target_ps) {
    return choose_clocks(step, top.timeline, curve, ClockOf::stage, target_ps, makespan);
  };
  const ClockChoice as_long = chosen(top.makespan_ps);
  EXPECT_EQ(as_long.makespan_ps, top.makespan_ps);
  EXPECT_EQ(as_long.joules, all_at_top(step, top.timeline, curve, ClockOf::stage).joules);
  const ClockChoice longer = chosen(top.makespan_ps * 102 / 100);
  EXPECT_LE(longer.makespan_ps, top.makespan_ps * 102 / 100);
  EXPECT_LT(mean_mhz(longer, 0), 0.8 * curve.top_mhz);
  EXPECT_GT(mean_mhz(longer, 1), 0.97 * curve.top_mhz);
  EXPECT_LT(longer.joules, as_long.joules);
}

// For every schedule: the step is not longer, clocks are within the curve's range, energy drops if there are bubbles,
// and a longer target saves more.
TEST(Clocks, OfUnitsSaveEnergyAndNoTimeIsLost) {
  for (const auto& entry : schedules::catalogue()) {
    const schedules::PipelineShape shape{4, 8, 1};
    if (!schedules::why_invalid(entry, shape).empty()) continue;
    const schedules::Step step = lowered(std::string(entry.name), 4, 8);
    const Simulation top = simulated(step);
    const PowerCurve curve{.step_mhz = 60};
    const double at_top = all_at_top(step, top.timeline, curve, ClockOf::unit).joules;
    const ClockChoice choice = choose_clocks(step, top.timeline, curve, ClockOf::unit, top.makespan_ps, makespan);
    EXPECT_LE(choice.makespan_ps, top.makespan_ps) << entry.name;
    EXPECT_LE(choice.joules, at_top) << entry.name;
    for (const Clocked& unit : choice.clocked) {
      EXPECT_GE(unit.mhz, curve.least_mhz);
      EXPECT_LE(unit.mhz, curve.top_mhz);
    }
    const ClockChoice later =
        choose_clocks(step, top.timeline, curve, ClockOf::unit, top.makespan_ps * 11 / 10, makespan);
    EXPECT_LT(later.joules, choice.joules) << entry.name;
    EXPECT_LE(later.makespan_ps, top.makespan_ps * 11 / 10) << entry.name;
  }
}

// Power without a knee falls faster than time grows, down to the lowest clock.
TEST(Clocks, WhereTimeIsOfNoMatterTheCheapestClockIsTaken) {
  const schedules::Step step = lowered("gpipe", 2, 1, 30 * kPs);
  const Simulation top = simulated(step);
  const PowerCurve curve{.fixed_watts = 100, .idle_watts = 100, .knee = 0};  // cubic alone: the lowest clock is best
  const ClockChoice choice = choose_clocks(step, top.timeline, curve, ClockOf::unit, 100 * top.makespan_ps, makespan);
  for (const Clocked& unit : choice.clocked) EXPECT_NEAR(unit.mhz, curve.least_mhz, curve.step_mhz);
}

}  // namespace
}  // namespace lockstep::simulator
