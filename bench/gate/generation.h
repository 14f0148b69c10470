// What it costs to make plans and schedules and to prove them: cases of one thread that touch no clock and no other
// thread, so that their instructions can be counted (ci/gate.py exact).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::gate {

struct GenerationCase {
  std::string name;           // "plan/all_reduce/ring/ranks:8", "schedule/1f1b/ranks:8/microbatches:32"
  std::function<void()> run;  // makes it, checks it, and lowers it
};

// Every algorithm and every schedule of the catalogues that takes such a shape, with its defaults.
std::vector<GenerationCase> generation_cases();

}  // namespace lockstep::gate
