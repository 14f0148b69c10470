// Which instructions of a Program NVLink's switch can do (NVLink SHARP): one whose sources are the same span of scratch
// on all ranks is one load that the switch answers with their sum, one whose destinations are the same span on all
// ranks is one store that the switch copies (multimem.ld_reduce and multimem.st, PTX ISA 9.7.9.14). Scratch must lie in
// memory of a multicast object then.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/executors/cuda/device_program.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/program.h"

namespace lockstep::executors::cuda {

// Whether Hopper's PTX reduces such elements by such an operation, with the result that we promise.
bool has_multimem(core::DType dtype, core::ReduceOp op);

struct Multimem {
  bool loads = false;   // its sources are one reducing load
  bool stores = false;  // its destinations are one store
};
Multimem multimem_of(const plan::Program& program, const plan::LaneProgram& lane, const plan::Instruction& instruction,
                     const collectives::Operation& operation);

// The plan with its input copied to scratch, its output made in scratch, and the pieces pushed: so that what all ranks
// read or write is in one place of scratch. Nothing if the plan has several lanes, or nothing for the switch to do.
std::optional<plan::Program> lower_for_multimem(const plan::Plan& plan, const collectives::Operation& operation);

// As make_device_program(); the places that the switch knows are one, of buffer kMulticast.
DeviceProgram make_multimem_program(const plan::Program& program, const collectives::Operation& operation, int rank,
                                    int blocks);

}  // namespace lockstep::executors::cuda
