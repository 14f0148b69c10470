// MPI's own collectives behind the Collective seam: what plans are measured against.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/collective.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::libraries {

// Why MPI cannot do an operation (avg, counts that an int does not hold, ...); nothing if it can.
// f16, bf16 and fp8 are reduced by operations of ours, as MPI has no such types. Open MPI's vectorised sums of 8-bit
// integers saturate in place of wrapping around (ompi issue 8045, not to be mended): those results show as wrong.
std::optional<std::string> mpi_refusal(const collectives::Operation& operation, int num_ranks);

// Blocking calls, so that the library takes the algorithm that it takes in programs; the world's watchdog ends all
// ranks when one hangs. Throws a usage Error with mpi_refusal()'s text. The world must outlive the collective.
std::unique_ptr<collectives::Collective> make_mpi_collective(const collectives::Operation& operation,
                                                             transports::MpiWorld& world);

}  // namespace lockstep::libraries
