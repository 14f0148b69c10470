// One rank of a mesh under mpirun: mpi_mesh MODE
//   exact   collectives of every channel of a grid, in turn with messages, are exact
//   silent  rank 1 does not come to its column's collective: the rank that waits for it ends all at its deadline
// Ends with 0 if all is right.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/backends/mesh_cases.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace lockstep {
namespace {

using backends::ChannelCase;
using backends::MeshOptions;
using backends::MeshRank;
using transports::MpiWorld;

constexpr std::chrono::seconds kDeadline{3};

MeshOptions options_for(MpiWorld& mpi, std::chrono::milliseconds timeout) {
  MeshOptions options;
  options.num_ranks = mpi.placement().num_ranks;
  options.timeout = timeout;
  options.mpi = &mpi;
  return options;
}

int exact(MpiWorld& mpi) {
  const auto channels = backends::grid_channels(mpi.placement().num_ranks);
  backends::run_mesh(options_for(mpi, std::chrono::seconds(60)), channels, [&](MeshRank& mesh) {
    LOCKSTEP_CHECK(!mesh.threaded, "MPI is started for one thread");
    int cases = 0;
    for (std::size_t c = 0; c < channels.size(); ++c) {
      if (!backends::is_of(channels[c], mesh.messages.rank())) continue;
      for (ChannelCase& one : backends::training_cases(mesh, channels[c], c, "auto")) {
        for (int round = 0; round < 2; ++round) one.run();
        ++cases;
      }
      backends::exchange_messages(mesh, 100'000, 2);
    }
    mesh.messages.barrier();
    if (mesh.messages.rank() == 0) std::printf("exact: %d cases of rank 0's channels\n", cases);
  });
  return 0;
}

// Under 4 ranks: rank 3 is the other one of rank 1's column.
int silent(MpiWorld& mpi) {
  const auto channels = backends::grid_channels(mpi.placement().num_ranks);
  backends::run_mesh(options_for(mpi, kDeadline), channels, [&](MeshRank& mesh) {
    const int rank = mesh.messages.rank();
    if (rank != 3) std::this_thread::sleep_for(std::chrono::hours(1));
    ChannelCase of_column(mesh, channels[4], 4, {collectives::Kind::all_reduce, 10'000}, "ring");
    of_column.run();
  });
  return 1;
}

int run_mode(const std::string& mode, MpiWorld& mpi) {
  if (mode == "exact") return exact(mpi);
  if (mode == "silent") return silent(mpi);
  throw core::usage_error("mpi_mesh: unknown mode '" + mode + "'");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  return lockstep::transports::run_mpi_program(
      argc, argv, std::chrono::seconds(60),
      [&](lockstep::transports::MpiWorld& mpi) { return lockstep::run_mode(mode, mpi); });
}
