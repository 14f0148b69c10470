// Takes the place of mpi_world.cpp and its neighbours in builds without MPI.
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace lockstep::transports {

struct MpiWorld::State {};

bool mpi_is_built() {
  return false;
}
std::string mpi_absence() {
  return std::string("MPI is not built in: ") + LOCKSTEP_WHY_MPI;
}

MpiWorld::MpiWorld(int* /*argc*/, char*** /*argv*/, std::chrono::nanoseconds /*timeout*/, MpiThreads /*threads*/) {
  throw core::Error(core::Failure::not_built, mpi_absence());
}

// None of these can be reached, as no world can be made.
MpiWorld::~MpiWorld() = default;
const MpiPlacement& MpiWorld::placement() const {
  static const MpiPlacement none;
  return none;
}
std::string MpiWorld::library_version() const {
  return "none";
}
MpiThreads MpiWorld::threads() const {
  return MpiThreads::funneled;
}
std::unique_ptr<Transport> MpiWorld::make_transport(const MpiTransportOptions& /*options*/) {
  return nullptr;
}
std::vector<std::unique_ptr<Transport>> MpiWorld::make_transports(int /*threads*/,
                                                                  const MpiTransportOptions& /*options*/) {
  return {};
}
void* MpiWorld::native_communicator() const {
  return nullptr;
}
Watchdog& MpiWorld::watchdog() {
  throw core::Error(core::Failure::not_built, mpi_absence());
}
void MpiWorld::set_ranks_per_process(int /*ranks*/) {}
void MpiWorld::abort(const core::Error& error) const {
  throw error;
}

void MpiWorld::check_alike(const std::string& /*revision*/, std::span<char* const> /*arguments*/) const {}

int run_mpi_program(int argc, char** argv, const std::string& /*revision*/, std::chrono::nanoseconds timeout,
                    const std::function<int(MpiWorld&)>& body, MpiThreads threads) {
  MpiWorld world(&argc, &argv, timeout, threads);
  return body(world);
}

}  // namespace lockstep::transports
