// Saves energy by lowering clocks off the critical path: EnvPipe (Choi et al. 2023, USENIX ATC), with a clock per
// pipeline unit; with a target longer than the step, Perseus' frontier of time and energy (Chung et al. 2024,
// arXiv:2312.06902). Everything is simulated, with power from a given curve.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::simulator {

// Power of a device at clock f, in watts, while a kernel runs: fixed + dynamic * (f / top) * (v(f) / v(top))^2, where
// the voltage v falls with the clock, in proportion, down to `knee` of the top and no further. Dynamic power is f^3
// above the knee and f below it.
struct PowerCurve {
  double fixed_watts = 100;
  double dynamic_watts = 300;
  double idle_watts = 80;  // while no kernel runs
  double top_mhz = 1410;
  double least_mhz = 210;
  double step_mhz = 15;
  double knee = 0.65;
  double bound = 1;  // share of a kernel's time that is proportional to 1 / f; the rest (memory) is constant

  double watts(double mhz) const;
  double slowdown(double mhz) const;  // time of a kernel / its time at the top clock
};
// "fixed=100,dynamic=300,idle=80,top=1410,least=210,step=15,knee=0.65,bound=1", or some of these fields. Throws a usage
// Error with the field and what is allowed.
PowerCurve parse_power(std::string_view text);
std::string text_of(const PowerCurve& curve);

// The granularity of clocks.
enum class ClockOf : std::uint8_t {
  unit,   // all kernels of a stage's forward, or backward, of one microbatch: EnvPipe's units
  stage,  // all kernels of a rank, from the step's start to its end
};

struct Clocked {
  std::int32_t rank = 0;
  schedules::Op op = schedules::Op::forward;  // operation of the unit's first kernel
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  double mhz = 0;
  std::vector<std::uint32_t> tasks = {};  // indices of the rank's tasks
  std::int64_t top_ps = 0;                // time of its kernels at the top clock
};

struct ClockChoice {
  std::vector<Clocked> clocked = {};
  std::int64_t makespan_ps = 0;
  double joules = 0;  // all ranks of the step together
};

// Times and energy at the top clock.
ClockChoice all_at_top(const schedules::Step& step, const schedules::StepTimeline& timeline, const PowerCurve& curve,
                       ClockOf of);

// Lowers clocks one step at a time, first the one that saves most energy per added time, as long as the step ends by
// `target_ps`. Times follow from the dependency graph, with messages and collectives as long as in `timeline`.
// `simulate` returns the makespan of the step with new kernel times; if it exceeds the target, because messages now
// wait for each other, clocks are chosen again for an earlier end.
ClockChoice choose_clocks(const schedules::Step& step, const schedules::StepTimeline& timeline, const PowerCurve& curve,
                          ClockOf of, std::int64_t target_ps,
                          const std::function<std::int64_t(const schedules::Step&)>& simulate);

// The step with its kernels' times at these clocks.
schedules::Step slowed(const schedules::Step& step, const ClockChoice& choice, const PowerCurve& curve);

}  // namespace lockstep::simulator
