#include "collectives/backends/places.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "collectives/libraries/nccl_member.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/transports/transport.h"
#include "core/ranks.h"
#include "testing/collectives/fake_nccl.h"
#include "testing/core/thrown.h"

namespace lockstep::backends {
namespace {

TEST(GpuAssignment, RanksTakeDevicesInTurn) {
  for (int gpus = 1; gpus <= 8; ++gpus) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      std::vector<int> counted(static_cast<std::size_t>(gpus));
      for (int rank = 0; rank < ranks; ++rank) {
        ++counted.at(static_cast<std::size_t>(assigned_gpu(rank, ranks, gpus).device));
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const GpuAssignment place = assigned_gpu(rank, ranks, gpus);
        EXPECT_EQ(place.ranks_on_it, counted.at(static_cast<std::size_t>(place.device))) << ranks << " on " << gpus;
      }
    }
  }
}

// nccl-tests' grid: processes, of which so many are on a host, threads in each, GPUs of each thread.
struct Grid {
  int processes;
  int processes_per_host;
  int threads;
  int gpus;
  int ranks_per_process() const { return threads * gpus; }
  int ranks() const { return processes * ranks_per_process(); }
  Process process_of(int rank) const {
    const int process = rank / ranks_per_process();
    return {.host = static_cast<std::uint64_t>(process / processes_per_host), .number = process};
  }
};

std::vector<Grid> small_grids() {
  std::vector<Grid> grids;
  for (int processes = 1; processes <= 4; ++processes) {
    for (int a_host = 1; a_host <= processes; ++a_host) {
      for (int threads = 1; threads <= 3; ++threads) {
        for (int gpus = 1; gpus <= 3; ++gpus) grids.push_back({processes, a_host, threads, gpus});
      }
    }
  }
  return grids;
}

TEST(GpuAssignment, OfAThreadsGpuIsNcclTestsDevice) {
  for (const Grid& grid : small_grids()) {
    std::vector<Process> all;
    for (int rank = 0; rank < grid.ranks(); ++rank) all.push_back(grid.process_of(rank));
    const int gpus_of_host = grid.processes_per_host * grid.ranks_per_process();
    for (int process = 0; process < grid.processes; ++process) {
      const int local_process = process % grid.processes_per_host;
      for (int thread = 0; thread < grid.threads; ++thread) {
        for (int gpu = 0; gpu < grid.gpus; ++gpu) {
          const int rank = (process * grid.threads + thread) * grid.gpus + gpu;
          const HostPlacement places = places_among(all, rank);
          const int wanted = local_process * grid.threads * grid.gpus + thread * grid.gpus + gpu;
          EXPECT_EQ(assigned_gpu(places.rank_of_host, places.ranks_of_host, gpus_of_host).device, wanted);
          EXPECT_EQ(places.ranks_of_process, grid.ranks_per_process());
          EXPECT_EQ(places.leads_process, thread == 0 && gpu == 0);
          EXPECT_EQ(places.one_process, grid.processes == 1);
          EXPECT_EQ(places.one_host, grid.processes <= grid.processes_per_host);
          EXPECT_EQ(sharers_in_process(places, gpus_of_host), 1);
          EXPECT_EQ(null_stream_refusal(places, gpus_of_host), std::nullopt);
        }
      }
    }
  }
}

TEST(GpuAssignment, RanksOfAProcessThatShareAGpuHaveNoNullStream) {
  const std::vector<Process> one_process(3, {.host = 1, .number = 1});
  EXPECT_EQ(
      null_stream_refusal(places_among(one_process, 0), 2),
      "-y,--stream_null 1: 3 ranks of a process share 2 GPUs, and a NULL stream would run their kernels, which wait "
      "for each other, sequentially; allowed: 0, or a GPU for each rank of a process");
  const std::vector<Process> processes{{.host = 1, .number = 1}, {.host = 1, .number = 2}};
  EXPECT_EQ(null_stream_refusal(places_among(processes, 0), 1), std::nullopt) << "each process has its own";
}

// Over the seam of NCCL's calls: processes are threads here, between which a loopback carries the identifier.
void join_grid(const Grid& grid, const libraries::FakeNccl& nccl, std::mutex& mutex, std::multiset<int>& devices) {
  constexpr std::chrono::seconds kDeadline{10};
  transports::LoopbackWorld processes(grid.processes, 0, kDeadline);
  core::AbortFlag failed;
  core::run_ranks(core::Sharing::threads, grid.processes, failed, [&](int process) {
    std::vector<std::unique_ptr<transports::Transport>> ends;
    for (int t = 0; t < grid.ranks_per_process(); ++t) ends.push_back(processes.endpoint(process));
    core::AbortFlag abort;
    transports::run_threads(ends, abort, kDeadline, [&](transports::Transport& world) {
      const auto all = transports::all_gather_value(world, grid.process_of(world.rank()));
      const HostPlacement places = places_among(all, world.rank());
      const int device = assigned_gpu(places.rank_of_host, places.ranks_of_host, places.ranks_of_host).device;
      const libraries::NcclCaller caller{.rank = world.rank(), .device = device, .timeout = kDeadline};
      const auto identifier = libraries::share_identifier(nccl, caller, world);
      libraries::NcclMembers members;
      members.add(libraries::join_members(nccl, caller, world.num_ranks(), world.rank(), identifier));
      const std::lock_guard lock(mutex);
      devices.insert(device);
    });
  });
}

TEST(Nccl, EveryRankOfProcessesThreadsAndGpusJoinsOnceByOneIdentifier) {
  for (const Grid& grid : {Grid{1, 1, 1, 1}, Grid{1, 1, 2, 3}, Grid{2, 2, 1, 2}, Grid{2, 1, 2, 2}, Grid{3, 3, 2, 1}}) {
    const libraries::FakeNccl nccl;
    std::mutex mutex;
    std::multiset<int> devices;
    join_grid(grid, nccl, mutex, devices);
    std::set<int> ranks;
    for (const auto& joined : nccl.joined()) {
      ranks.insert(joined.rank);
      EXPECT_EQ(joined.num_ranks, grid.ranks());
      EXPECT_EQ(joined.identifier, nccl.joined().front().identifier);
      EXPECT_EQ(joined.identifier[0], 7) << "the one that rank 0 has made";
    }
    EXPECT_EQ(nccl.joined().size(), static_cast<std::size_t>(grid.ranks()));
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(grid.ranks()));
    EXPECT_EQ(*ranks.rbegin(), grid.ranks() - 1);
    const int hosts = grid.processes / grid.processes_per_host;
    for (int device = 0; device < grid.processes_per_host * grid.ranks_per_process(); ++device) {
      EXPECT_EQ(devices.count(device), static_cast<std::size_t>(hosts)) << "device " << device << " of each host";
    }
  }
}

TEST(Nccl, AnIdentifierThatRank0CannotMakeIsToldByAll) {
  libraries::FakeNccl nccl;
  nccl.call_result = libraries::FakeNccl::kSystemError;
  transports::LoopbackWorld world(1, 0, std::chrono::seconds(1));
  const auto rank = world.endpoint(0);
  EXPECT_EQ(core::error_text([&] {
              libraries::share_identifier(nccl, {.rank = 0, .device = 0, .timeout = std::chrono::seconds(1)}, *rank);
            }),
            "rank 0 (device 0): ncclGetUniqueId of rank 0 failed: result 2: socket 3 was closed");
}

TEST(GpuAssignment, BlocksOfAllRanksRunAtOnce) {
  for (int ranks = 1; ranks <= 264; ++ranks) {
    const auto blocks = blocks_of_a_rank(132, ranks);
    ASSERT_TRUE(blocks.has_value());
    EXPECT_GE(*blocks, 1);
    EXPECT_LE(*blocks * ranks, 2 * 132);
  }
  EXPECT_FALSE(blocks_of_a_rank(132, 265).has_value());
  EXPECT_EQ(blocks_of_a_rank(132, 1), kBlocksAlone);
  EXPECT_EQ(blocks_of_a_rank(8, 1), 16);
  EXPECT_EQ(blocks_of_a_rank(132, 2), 132) << "ranks that share a GPU are limited by its memory, which takes all of it";
}

TEST(GpuAssignment, BlocksOfAMeshLeaveAQuarterOfTheGpuToKernelsThatCompute) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int side_by_side = 1; ranks * side_by_side <= 99; ++side_by_side) {
      const auto blocks = blocks_beside_compute(132, ranks, side_by_side);
      ASSERT_TRUE(blocks.has_value());
      EXPECT_GE(*blocks, 1);
      EXPECT_LE(*blocks * ranks * side_by_side, 132 - 33);
    }
  }
  EXPECT_EQ(blocks_beside_compute(132, 1, 1), 32);
  EXPECT_EQ(blocks_beside_compute(132, 2, 1), 32) << "not 132, which would be every multiprocessor";
  EXPECT_EQ(blocks_beside_compute(132, 4, 3), 8);
  EXPECT_EQ(blocks_beside_compute(132, 33, 3), 1);
  EXPECT_FALSE(blocks_beside_compute(132, 50, 2).has_value());
  EXPECT_EQ(blocks_beside_compute(8, 1, 1), 6);
}

TEST(GpuAssignment, TheUserSaysHowManyBlocksAsFarAsTheyFit) {
  EXPECT_EQ(blocks_of_a_rank(132, 1, 264), 264);
  EXPECT_EQ(blocks_of_a_rank(132, 4, 16), 16);
  EXPECT_FALSE(blocks_of_a_rank(132, 4, 67).has_value());
}

}  // namespace
}  // namespace lockstep::backends
