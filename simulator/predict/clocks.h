// Clocks lowered where a step does not wait, for energy: EnvPipe (Choi et al. 2023, USENIX ATC), whose pipeline units
// have clocks of their own, and with a target that is longer than the step the frontier of time and energy that Perseus
// draws (Chung et al. 2024, arXiv:2312.06902). Simulated: power is what a curve says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::simulator {

// Power of a device over its clock f, in watts, while a kernel runs: fixed + dynamic * (f / top) * (v(f) / v(top))^2,
// where the voltage v falls with the clock, in proportion, down to `knee` of the top and no further. Dynamic power is
// f^3 above the knee and f below it.
struct PowerCurve {
  double fixed_watts = 100;
  double dynamic_watts = 300;
  double idle_watts = 80;  // while no kernel runs
  double top_mhz = 1410;
  double least_mhz = 210;
  double step_mhz = 15;
  double knee = 0.65;
  double bound = 1;  // the part of a kernel's time that goes with 1 / f; the rest stays (memory)

  double watts(double mhz) const;
  double slowdown(double mhz) const;  // of a kernel, of its time at the top clock
};
// "fixed=100,dynamic=300,idle=80,top=1410,least=210,step=15,knee=0.65,bound=1", or a part of it. Throws a usage Error
// that names what is wrong and what is allowed.
PowerCurve parse_power(std::string_view text);
std::string text_of(const PowerCurve& curve);

// What has one clock.
enum class ClockOf : std::uint8_t {
  unit,   // all kernels of a stage's forward, or backward, of one microbatch: EnvPipe's units
  stage,  // all kernels of a rank, from the step's start to its end
};

struct Clocked {
  std::int32_t rank = 0;
  schedules::Op op = schedules::Op::forward;  // of a unit's first kernel
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  double mhz = 0;
  std::vector<std::uint32_t> tasks = {};  // of the rank
  std::int64_t top_ps = 0;                // that its kernels take at the top clock
};

struct ClockChoice {
  std::vector<Clocked> clocked = {};
  std::int64_t makespan_ps = 0;
  double joules = 0;  // of the ranks of the step
};

// Times and energy at the top clock.
ClockChoice all_at_top(const schedules::Step& step, const schedules::StepTimeline& timeline, const PowerCurve& curve,
                       ClockOf of);

// Lowers clocks a step at a time, of all that can be lowered the one first that saves most for the time that it adds,
// as long as the step ends by `target_ps`. Times follow from what waits for what: a message or a collective takes what
// it took in `timeline`. `simulate`: the makespan of the step with other kernels' times; where it exceeds the target,
// as messages have come to wait for each other, clocks are chosen again for an earlier end.
ClockChoice choose_clocks(const schedules::Step& step, const schedules::StepTimeline& timeline, const PowerCurve& curve,
                          ClockOf of, std::int64_t target_ps,
                          const std::function<std::int64_t(const schedules::Step&)>& simulate);

// The step with its kernels' times at these clocks.
schedules::Step slowed(const schedules::Step& step, const ClockChoice& choice, const PowerCurve& curve);

}  // namespace lockstep::simulator
