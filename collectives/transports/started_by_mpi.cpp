#include <algorithm>
#include <array>
#include <cstdlib>

#include "collectives/transports/mpi_transport.h"

namespace lockstep::transports {

bool started_by_mpi() {
  // Variables of Open MPI and PRRTE; of MPICH, Intel MPI and MVAPICH (PMI); of anything that speaks PMIx, such as srun
  // --mpi=pmix.
  for (const char* name : std::array{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

int started_processes() {
  for (const char* name : std::array{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* text = std::getenv(name)) return std::max(1, std::atoi(text));
  }
  return 1;
}

}  // namespace lockstep::transports
