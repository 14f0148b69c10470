// Changes one number of a machine's description, named by its path in the JSON: "device.memory_gbps", "levels.0.gbps".
// A curve ("device.product") counts as one number, its largest share; its other shares keep their ratio to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"

namespace lockstep::simulator {

struct MachineNumber {
  std::string path;
  double value = 0;
  bool whole = false;  // an integer: sizes, ranks
};
// All numbers in the order of the description, except measurements (Machine::measured).
std::vector<MachineNumber> numbers_of(const Machine& machine);

// The new machine's name includes the change. Throws a usage Error with the path and what is allowed.
Machine with_number(const Machine& machine, std::string_view path, double value);

}  // namespace lockstep::simulator
