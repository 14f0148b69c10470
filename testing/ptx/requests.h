// How the accesses of a warp's instruction meet memory, for Counts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "testing/ptx/machine.h"

namespace lockstep::ptx {

// Counts one request: `bytes` of each of `lanes` at places[lane], which writes or reads. Global memory is counted by
// distinct sectors of 32 bytes, shared memory by turns of its 32 banks.
void count_request(Warp& warp, const Warp::Place* places, std::uint32_t lanes, std::size_t bytes, bool writes);

}  // namespace lockstep::ptx
