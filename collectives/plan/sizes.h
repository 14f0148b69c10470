// Elements and bytes of a plan's chunks in one operation.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/check.h"

namespace lockstep::plan {

// Elements of a chunk; in all_to_all_v they depend on its sender and receiver.
std::int64_t chunk_elems(const Plan& plan, const collectives::Operation& operation, const Moved& moved);

// Bytes that each step moves or combines (one operand), by step id of contents.ids().
std::vector<std::int64_t> step_bytes(const Plan& plan, const Contents& contents,
                                     const collectives::Operation& operation);

}  // namespace lockstep::plan
