// MPI's own collectives as implementations of Collective: the baseline for plans.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::libraries {

// Returns why MPI cannot do an operation (avg, counts that do not fit an int, ...); nothing if it can. f16, bf16 and
// fp8 are reduced by our own MPI operations, as MPI has no such types. Open MPI's vectorised sums of 8-bit integers
// saturate instead of wrapping around (ompi issue 8045, which will not be fixed): those results show as wrong.
std::optional<std::string> mpi_refusal(const collectives::Operation& operation, int num_ranks);

// An algorithm of the MPI library for a collective, by the library's own number and name: {4, "ring"}.
struct MpiAlgorithm {
  int id;
  std::string name;
  friend bool operator==(const MpiAlgorithm&, const MpiAlgorithm&) = default;
};

// Name of the collective in Open MPI's settings: "allreduce"; empty where there is no such collective.
std::string_view openmpi_name(collectives::Kind kind);

// Algorithms among which Open MPI's component coll/tuned chooses, as the library lists them, without those that need
// another number of ranks. Empty for other MPI libraries, and where there is one algorithm only. MPI must have been
// started.
std::vector<MpiAlgorithm> mpi_algorithms(collectives::Kind kind, int num_ranks);

// "library:algorithm=ring", as users write it, and the inverse, which throws a usage Error that lists what is allowed.
std::string mpi_choice_text(const MpiAlgorithm& algorithm);
MpiAlgorithm parse_mpi_choice(std::string_view asked, collectives::Kind kind, int num_ranks);

// Makes Open MPI follow such choices, as mpirun --mca coll_tuned_use_dynamic_rules 1 does, unless the user has set that
// variable. Call it before MPI is started.
void let_mpi_algorithms_be_chosen();

// A duplicate of the world's communicator (MPI_Comm*) whose collectives of this kind run by the algorithm; it is freed
// with its last owner. Collective: all ranks call it together, in main's thread.
std::shared_ptr<void> communicator_with(const MpiAlgorithm& algorithm, collectives::Kind kind, void* world);

// Makes blocking calls, so that the library chooses the algorithm that it chooses in users' programs; the world's
// watchdog ends all ranks if one hangs. `asked` is "library", or names an algorithm. Throws a usage Error with
// mpi_refusal()'s text, or parse_mpi_choice()'s. The world must outlive the collective.
std::unique_ptr<collectives::Collective> make_mpi_collective(const collectives::Operation& operation,
                                                             transports::MpiWorld& world,
                                                             std::string_view asked = "library");

}  // namespace lockstep::libraries
