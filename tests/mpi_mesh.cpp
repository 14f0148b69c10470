// One rank of a mesh under mpirun: mpi_mesh MODE [FILE]
//   exact     collectives of every channel of a grid, alternating with messages, are exact
//   funneled  the same if only one thread may call MPI
//   concurrent  collectives of several channels at once, each in a thread, concurrent with messages, are exact
//   silent    rank 1 does not enter its column's collective: the rank that waits for it ends all at its deadline
//   waits     a rank that waits in another thread does so too, while its main thread waits for a message
//   throws    a thread of rank 1 fails during the collectives of others: all end, and the error names rank 1
//   moves     a message arrives while its sender calls nothing of the mesh; FILE: a name for the receiver's answer
//   nccl_groups  of 8 ranks: each process joins NCCL's communicators of all groups of training steps, over a fake NCCL
// Exits with 0 if all is right.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"
#include "core/wait.h"
#include "testing/collectives/mesh_cases.h"
#include "testing/collectives/nccl_groups.h"

namespace lockstep {
namespace {

using backends::Channel;
using backends::ChannelCase;
using backends::MeshOptions;
using backends::MeshRank;
using transports::MpiThreads;
using transports::MpiWorld;

constexpr std::chrono::seconds kDeadline{3};

MeshOptions options_for(MpiWorld& mpi, std::chrono::milliseconds timeout) {
  MeshOptions options;
  options.num_ranks = mpi.placement().num_ranks;
  options.threads_per_rank = mpi.threads() == MpiThreads::multiple ? 4 : 1;
  options.timeout = timeout;
  options.mpi = &mpi;
  return options;
}

int exact(MpiWorld& mpi) {
  const auto channels = backends::grid_channels(mpi.placement().num_ranks);
  backends::run_mesh(options_for(mpi, std::chrono::seconds(60)), channels, [&](MeshRank& mesh) {
    LOCKSTEP_CHECK(mesh.threaded == (mpi.threads() == MpiThreads::multiple), "threads are as MPI allows");
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
    if (mesh.messages.rank() == 0) {
      std::printf("exact: %d cases of rank 0's channels, %s\n", cases, std::string(name_of(mpi.threads())).c_str());
    }
  });
  return 0;
}

// Runs work in a thread of its own; a failure ends all ranks.
std::jthread start_concurrently(MeshRank& mesh, const std::function<void()>& work) {
  return std::jthread([&mesh, work] {
    try {
      work();
    } catch (const core::Error& error) {
      mesh.abort.raise(mesh.messages.rank(), error.failure(), error.what());
    }
  });
}

void check_abort(const MeshRank& mesh) {
  if (mesh.abort.raised()) mesh.abort.throw_raised();
}

// Every channel of the rank has a thread: all ranks, its row, its column, itself.
int concurrent(MpiWorld& mpi) {
  if (mpi.threads() != MpiThreads::multiple) throw core::usage_error("this MPI allows one thread");
  const auto channels = backends::grid_channels(mpi.placement().num_ranks);
  backends::run_mesh(options_for(mpi, std::chrono::seconds(60)), channels, [&](MeshRank& mesh) {
    std::vector<std::vector<ChannelCase>> cases;  // [channel of this rank]
    for (std::size_t c = 0; c < channels.size(); ++c) {
      if (!backends::is_of(channels[c], mesh.messages.rank())) continue;
      cases.push_back(backends::training_cases(mesh, channels[c], c, "auto"));
    }
    {
      std::vector<std::jthread> threads;
      for (auto& of_channel : cases) {
        threads.push_back(start_concurrently(mesh, [&of_channel] {
          for (int round = 0; round < 3; ++round) {
            for (ChannelCase& one : of_channel) one.run();
          }
        }));
      }
      backends::exchange_messages(mesh, 100, 20);
      backends::exchange_messages(mesh, 1'000'000, 3);
    }
    check_abort(mesh);
    mesh.messages.barrier();
    if (mesh.messages.rank() == 0) std::printf("concurrent: %zu channels of rank 0\n", cases.size());
  });
  return 0;
}

// With 4 ranks, rank 3 is the other member of rank 1's column.
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

// Waits for a message that nobody sends.
void wait_for_nothing(MeshRank& mesh) {
  std::vector<std::byte> message(8);
  const auto request = mesh.messages.recv((mesh.messages.rank() + 1) % mesh.messages.num_ranks(), 9, message);
  while (!mesh.messages.done(request)) mesh.messages.idle();
}

int waits(MpiWorld& mpi) {
  const auto channels = backends::grid_channels(mpi.placement().num_ranks);
  backends::run_mesh(options_for(mpi, kDeadline), channels, [&](MeshRank& mesh) {
    const int rank = mesh.messages.rank();
    if (rank != 3) std::this_thread::sleep_for(std::chrono::hours(1));
    ChannelCase of_column(mesh, channels[4], 4, {collectives::Kind::all_reduce, 10'000}, "ring");
    const std::jthread column = start_concurrently(mesh, [&] { of_column.run(); });
    wait_for_nothing(mesh);
  });
  return 1;
}

int throws(MpiWorld& mpi) {
  const auto channels = backends::grid_channels(mpi.placement().num_ranks);
  backends::run_mesh(options_for(mpi, std::chrono::seconds(60)), channels, [&](MeshRank& mesh) {
    ChannelCase of_all(mesh, channels[0], 0, {collectives::Kind::all_reduce, 100'000}, "ring");
    const std::jthread all = start_concurrently(mesh, [&] {
      for (int round = 0;; ++round) {
        if (mesh.messages.rank() == 1 && round == 5)
          throw core::Error(core::Failure::wrong_data, "the weights are lost");
        of_all.run();
      }
    });
    wait_for_nothing(mesh);
  });
  return 1;
}

// MPI moves a large message in several steps that need calls by both sender and receiver.
int moves(MpiWorld& mpi, const std::filesystem::path& answer) {
  if (mpi.placement().rank == 0) std::filesystem::remove(answer);
  backends::run_mesh(options_for(mpi, std::chrono::seconds(60)), {}, [&](MeshRank& mesh) {
    std::vector<std::byte> message(std::size_t{16} << 20);
    const bool sends = mesh.messages.rank() == 0;
    mesh.messages.barrier();
    const auto request = sends ? mesh.messages.send(1, 0, message) : mesh.messages.recv(0, 0, message);
    const core::Deadline deadline = core::Deadline::after(std::chrono::seconds(30));
    while (sends && !std::filesystem::exists(answer)) {
      if (deadline.passed()) throw core::Error(core::Failure::timeout, "the message does not move");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    while (!mesh.messages.done(request)) mesh.messages.idle();
    if (!sends) std::ofstream(answer) << "it has arrived\n";
    mesh.messages.barrier();
  });
  return 0;
}

// The groups' worlds are MPI's, as in a mesh; whether the processes agree is seen by all of them.
int nccl_groups(MpiWorld& mpi) {
  const auto all = mpi.make_transport();
  NotingNccl nccl(all->rank());
  for (const std::string& layout : layouts_of_eight()) {
    const trainer::ChannelMap map = channels_of(layout);
    std::vector<std::unique_ptr<transports::Transport>> groups(map.channels().size());
    for (std::size_t c = 0; c < groups.size(); ++c) {
      if (backends::is_member(map.channels()[c], all->rank())) {
        groups[c] = mpi.make_transport({.members = map.channels()[c]});
      }
    }
    std::vector<ChannelJoin> mine =
        nccl.join_all(backends::group_worlds(groups), map.names(), all->rank(), std::chrono::seconds(60));
    const std::size_t joined = mine.size();
    mine.resize(map.channels().size());
    std::vector<ChannelJoin> of_all(mine.size() * static_cast<std::size_t>(all->num_ranks()));
    all->all_gather(std::as_bytes(std::span<const ChannelJoin>(mine)),
                    std::as_writable_bytes(std::span<ChannelJoin>(of_all)));
    std::vector<std::vector<ChannelJoin>> ranks(static_cast<std::size_t>(all->num_ranks()));
    for (std::size_t i = 0; i < of_all.size(); ++i) {
      if (of_all[i].channel >= 0) ranks[i / mine.size()].push_back(of_all[i]);
    }
    const std::string errors = joining_errors(ranks, map.channels());
    if (!errors.empty()) throw core::Error(core::Failure::wrong_data, std::string(layout).append(": ").append(errors));
    if (all->rank() == 0) std::printf("%s: %zu of %zu groups\n", layout.c_str(), joined, map.channels().size());
  }
  return 0;
}

int run_mode(const std::string& mode, const std::string& file, MpiWorld& mpi) {
  if (mode == "exact" || mode == "funneled") return exact(mpi);
  if (mode == "concurrent") return concurrent(mpi);
  if (mode == "silent") return silent(mpi);
  if (mode == "waits") return waits(mpi);
  if (mode == "throws") return throws(mpi);
  if (mode == "nccl_groups") return nccl_groups(mpi);
  if (mode == "moves" && !file.empty()) return moves(mpi, file);
  throw core::usage_error("mpi_mesh: unknown mode '" + mode + "'");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using lockstep::transports::MpiThreads;
  const std::string mode = argc >= 2 ? argv[1] : "";
  const std::string file = argc >= 3 ? argv[2] : "";
  return lockstep::transports::run_mpi_program(
      argc, argv, "", std::chrono::seconds(60),
      [&](lockstep::transports::MpiWorld& mpi) { return lockstep::run_mode(mode, file, mpi); },
      mode == "funneled" ? MpiThreads::funneled : MpiThreads::multiple);
}
