// simulate plan: the best layouts for a number of devices, and why the others are slower.
#pragma once

#include "bench/program/program.h"
#include "bench/simulate/flags.h"

namespace lockstep::simulate {

int run_plan(const SimulateFlags& flags, const program::Print& print);

}  // namespace lockstep::simulate
