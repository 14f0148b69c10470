// A machine's description with one of its numbers changed, by the number's path in the JSON: "device.memory_gbps",
// "levels.0.gbps". A curve ("device.product") counts as one number, its largest share; the others keep their ratio to
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"

namespace lockstep::simulator {

struct MachineNumber {
  std::string path;
  double value = 0;
  bool whole = false;  // a whole number: sizes, ranks
};
// In the order of the description. Without what was measured (Machine::measured).
std::vector<MachineNumber> numbers_of(const Machine& machine);

// The name says what was changed. Throws a usage Error that names the path, and what is allowed.
Machine with_number(const Machine& machine, std::string_view path, double value);

}  // namespace lockstep::simulator
