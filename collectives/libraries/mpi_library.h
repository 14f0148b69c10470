// MPI's own collectives behind the Collective interface: the baseline for plans.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/collective.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::libraries {

// Returns why MPI cannot do an operation (avg, counts that do not fit an int, ...); nothing if it can. f16, bf16 and
// fp8 are reduced by our own MPI operations, as MPI has no such types. Open MPI's vectorised sums of 8-bit integers
// saturate instead of wrapping around (ompi issue 8045, which will not be fixed): those results show as wrong.
std::optional<std::string> mpi_refusal(const collectives::Operation& operation, int num_ranks);

// Makes blocking calls, so that the library chooses the algorithm that it chooses in users' programs; the world's
// watchdog ends all ranks if one hangs. Throws a usage Error with mpi_refusal()'s text. The world must outlive the
// collective.
std::unique_ptr<collectives::Collective> make_mpi_collective(const collectives::Operation& operation,
                                                             transports::MpiWorld& world);

}  // namespace lockstep::libraries
