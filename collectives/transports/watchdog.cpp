#include "collectives/transports/mpi_transport.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "core/wait.h"

namespace lockstep::transports {

Watchdog::Watchdog(std::chrono::nanoseconds timeout, std::function<void()> expired)
    : timeout_(timeout), expired_(std::move(expired)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  std::uint64_t seen = 0;
  core::Clock::time_point since = core::Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, timeout_ / 8, [this] { return stopped_; })) {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    const bool within_a_call = calls % 2 == 1;
    if (!within_a_call || calls != seen) {
      seen = calls;
      since = core::Clock::now();
    } else if (core::Clock::now() - since >= timeout_) {
      expired_();
      return;
    }
  }
}

bool started_by_mpi() {
  // Variables of Open MPI and PRRTE; of MPICH, Intel MPI and MVAPICH (PMI); of anything that speaks PMIx, such as srun
  // --mpi=pmix.
  for (const char* name : std::array{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

int started_processes() {
  // PMIx tells a process its rank, but not the number of ranks; srun --mpi=pmix tells that in a variable of its own.
  // Without PMIX_RANK, that variable may be of a batch script's own step.
  const bool by_pmix = std::getenv("PMIX_RANK") != nullptr;
  for (const char* name : std::array{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", by_pmix ? "SLURM_STEP_NUM_TASKS" : ""}) {
    if (const char* text = std::getenv(name)) return std::max(1, std::atoi(text));
  }
  return 1;
}

}  // namespace lockstep::transports
