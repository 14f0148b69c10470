// Takes the place of mpi_library.cpp and its neighbours in builds without MPI, in which no MpiWorld can be made.
#include "collectives/libraries/mpi_library.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace lockstep::libraries {

std::optional<std::string> mpi_refusal(const collectives::Operation& /*operation*/, int /*num_ranks*/) {
  return transports::mpi_absence();
}

std::string_view openmpi_name(collectives::Kind /*kind*/) {
  return "";
}

std::vector<MpiAlgorithm> mpi_algorithms(collectives::Kind /*kind*/, int /*num_ranks*/) {
  return {};
}

std::string mpi_choice_text(const MpiAlgorithm& algorithm) {
  return "library:algorithm=" + algorithm.name;
}

void let_mpi_algorithms_be_chosen() {}

std::unique_ptr<collectives::Collective> make_mpi_collective(const collectives::Operation& operation,
                                                             transports::MpiWorld& /*world*/,
                                                             std::string_view /*asked*/) {
  throw core::Error(core::Failure::not_built, *mpi_refusal(operation, 1));
}

}  // namespace lockstep::libraries
