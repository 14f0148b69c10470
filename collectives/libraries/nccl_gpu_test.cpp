// Needs GPUs: every kind that NCCL supports, on as many ranks as there are GPUs, threads of one process.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "collectives/libraries/nccl_library.h"
#include "core/error.h"
#include "testing/core/fixtures.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using collectives::Operation;

// Ranks are threads that meet at one barrier.
struct Room {
  explicit Room(int num_ranks) : door(num_ranks) {}
  std::barrier<> door;
  std::vector<std::byte> table;
};

class ThreadWorld final : public transports::World {
 public:
  ThreadWorld(Room& room, int rank, int num_ranks) : room_(room), rank_(rank), num_ranks_(num_ranks) {}
  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  void barrier() override { room_.door.arrive_and_wait(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (rank_ == 0) room_.table.resize(all.size());
    barrier();
    std::memcpy(room_.table.data() + static_cast<std::size_t>(rank_) * mine.size(), mine.data(), mine.size());
    barrier();
    std::memcpy(all.data(), room_.table.data(), all.size());
    barrier();
  }

 private:
  Room& room_;
  int rank_;
  int num_ranks_;
};

// Small integers: their sum over ranks is exact in float.
float input_value(int rank, std::int64_t index) {
  return static_cast<float>((std::int64_t{31} * rank + index * 7) % 64);
}

float expected_value(const Operation& operation, int num_ranks, int rank, int block, std::int64_t i) {
  const auto origin = origin_of(operation.kind, num_ranks, operation.root, rank, block);
  const std::int64_t index = origin.block * operation.count + i;
  if (!origin.reduced) return input_value(origin.rank, index);
  float sum = 0;
  for (int r = 0; r < num_ranks; ++r) sum += input_value(r, index);
  return sum;
}

void run_rank(transports::World& world, const Operation& operation, const NcclChoice& choice = {}) {
  const int rank = world.rank();
  const auto device = core::make_gpu_for_tests(rank, rank);
  const auto stream = device->make_stream();
  const auto group = join_nccl(world, *device, {.leads_process = world.rank() == 0, .timeout = core::kGpuTestDeadline});
  const auto in_elems = static_cast<std::size_t>(input_offsets(operation, world.num_ranks(), rank).back());
  const auto out_elems = static_cast<std::size_t>(output_offsets(operation, world.num_ranks(), rank).back());
  std::vector<float> input(in_elems);
  for (std::size_t i = 0; i < in_elems; ++i) input[i] = input_value(rank, static_cast<std::int64_t>(i));
  void* from = device->allocate(in_elems * sizeof(float));
  void* to = device->allocate(out_elems * sizeof(float));
  device->copy_to_device(from, input.data(), in_elems * sizeof(float));

  const auto collective = group->prepare(operation, choice, *stream);
  collective->run(from, to);  // connects
  group->wait(*stream);
  collective->run(from, to);
  group->wait(*stream);

  if (!device->computes()) return;
  std::vector<float> output(out_elems);
  device->copy_to_host(output.data(), to, out_elems * sizeof(float));
  for (std::size_t at = 0; at < out_elems; ++at) {
    const auto i = static_cast<std::int64_t>(at);
    ASSERT_EQ(output[at], expected_value(operation, world.num_ranks(), rank, static_cast<int>(i / operation.count),
                                         i % operation.count))
        << collectives::name_of(operation.kind) << " rank " << rank << " element " << at;
  }
}

TEST(NcclOnGpus, EveryKindGivesWhatItMeans) {
  if (const auto why = why_no_nccl()) GTEST_SKIP() << *why;
  const int num_ranks = static_cast<int>(core::cuda_devices().size());
  for (const Kind kind : collectives::all_kinds()) {
    const Operation operation{.kind = kind, .count = 1000, .root = num_ranks - 1};
    if (kind == Kind::all_to_all_v || nccl_refusal(operation, num_ranks, {90, nccl_version_code()})) continue;
    Room room(num_ranks);
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks.emplace_back([&room, &operation, rank, num_ranks] {
        ThreadWorld world(room, rank, num_ranks);
        EXPECT_NO_THROW(run_rank(world, operation)) << collectives::name_of(operation.kind);
      });
    }
  }
}

// Each protocol is a communicator of its own, made while NCCL's variables select it.
TEST(NcclOnGpus, RingsOfEveryProtocolGiveTheSame) {
  if (const auto why = why_no_nccl()) GTEST_SKIP() << *why;
  const int num_ranks = static_cast<int>(core::cuda_devices().size());
  for (const char* name : {"library:algo=ring:proto=ll", "library:algo=ring:proto=simple"}) {
    Room room(num_ranks);
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks.emplace_back([&room, name, rank, num_ranks] {
        ThreadWorld world(room, rank, num_ranks);
        EXPECT_NO_THROW(run_rank(world, {.kind = Kind::all_reduce, .count = 1000}, parse_nccl_choice(name))) << name;
      });
    }
  }
}

TEST(NcclOnGpus, TwoRanksOnOneGpuAreRefused) {
  if (const auto why = why_no_nccl()) GTEST_SKIP() << *why;
  if (!why_no_shared_gpu()) GTEST_SKIP() << "this NCCL lets ranks share a GPU";
  Room room(2);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&room, rank] {
      ThreadWorld world(room, rank, 2);
      const auto device = core::make_gpu_for_tests(rank);
      EXPECT_THROW(join_nccl(world, *device, {.leads_process = world.rank() == 0, .timeout = core::kGpuTestDeadline}),
                   core::Error);
    });
  }
}

}  // namespace
}  // namespace lockstep::libraries
