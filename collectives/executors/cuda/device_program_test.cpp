#include "collectives/executors/cuda/device_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "collectives/algorithms/algorithm.h"
#include "collectives/executors/direct_lowering.h"

namespace lockstep::executors::cuda {
namespace {

constexpr std::size_t kElemBytes = 4;

plan::Program program_of(std::string_view algorithm, int num_ranks, std::int64_t count) {
  const collectives::Operation operation{.kind = collectives::Kind::all_reduce, .count = count};
  const auto choice = algorithms::parse_choice(operation.kind, algorithm);
  return lower_for_direct(algorithms::make_plan(choice, num_ranks, 0), operation,
                          {.stage_below_bytes = 0, .segment_bytes = 1024});
}

// Every wait of every rank for instructions, itself included.
std::set<std::array<std::int64_t, 4>> waits_of(const std::vector<DeviceProgram>& ranks) {
  std::set<std::array<std::int64_t, 4>> waits;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto* list : {&ranks[r].waits, &ranks[r].exit_waits}) {
      for (const DeviceWait& w : *list) {
        if (w.instructions > 0) waits.insert({w.rank, w.lane, w.instructions, static_cast<std::int64_t>(r)});
      }
    }
  }
  return waits;
}

TEST(DeviceProgram, WhoWaitsIsToldAndNobodyElse) {
  for (const char* algorithm : {"ring", "ring:lanes=2", "double_tree", "two_shot"}) {
    for (int num_ranks : {2, 3, 8}) {
      const plan::Program program = program_of(algorithm, num_ranks, 5000);
      std::vector<DeviceProgram> ranks;
      for (int r = 0; r < num_ranks; ++r) ranks.push_back(make_device_program(program, r, kElemBytes, 4));
      std::set<std::array<std::int64_t, 4>> told;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        for (std::size_t l = 0; l < ranks[r].lanes.size(); ++l) {
          const DeviceLane lane = ranks[r].lanes[l];
          for (std::uint32_t i = 0; i < lane.num_instructions; ++i) {
            const DeviceInstruction& one = ranks[r].instructions[lane.first_instruction + i];
            for (std::uint32_t k = 0; k < one.num_listeners; ++k) {
              told.insert({static_cast<std::int64_t>(r), static_cast<std::int64_t>(l), i + 1,
                           ranks[r].listeners[one.first_listener + k]});
            }
          }
        }
      }
      EXPECT_EQ(told, waits_of(ranks)) << algorithm << ", " << num_ranks << " ranks";
    }
  }
}

// One rank, one lane: scratch [0, 64) <- input, then output [0, 32) <- scratch [at, at + 32).
plan::Program copy_of_a_copy(std::int64_t count, std::int64_t at) {
  plan::LaneProgram lane;
  lane.sources = {{0, plan::Buffer::input, 0}, {0, plan::Buffer::scratch, at}};
  lane.destinations = {{0, plan::Buffer::scratch, 0}, {0, plan::Buffer::output, 0}};
  plan::Instruction first{};
  first.num_sources = first.num_destinations = 1;
  first.count = 16;
  plan::Instruction second = first;
  second.first_source = second.first_destination = 1;
  second.count = count;
  lane.instructions = {first, second};
  return {.num_ranks = 1, .num_lanes = 1, .scratch_bytes = 64, .ranks = {{.lanes = {lane}, .exit_waits = {}}}};
}

TEST(DeviceProgram, ALaneWaitsForItselfWhereItsBlocksMeet) {
  const auto num_waits = [](const plan::Program& program, int blocks) {
    return make_device_program(program, 0, kElemBytes, blocks).instructions.at(1).num_waits;
  };
  EXPECT_EQ(num_waits(copy_of_a_copy(16, 0), 4), 0U) << "equal slices";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 0), 4), 1U) << "other slices of the same bytes";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 32), 4), 1U);
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 64), 4), 0U) << "other bytes";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 32), 1), 0U) << "one block meets itself only";
}

// Whatever is staged can go by packets, but for plans whose receivers want other pieces than what was made.
TEST(PacketProgram, EveryAlgorithmHasOne) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (int num_ranks : {2, 3, 4, 8}) {
      const auto choice = algorithms::parse_choice(algorithm.kind, algorithm.name);
      if (algorithms::refusal(choice, num_ranks, 0)) continue;
      collectives::Operation operation{.kind = algorithm.kind, .count = 1000};
      if (algorithm.kind == collectives::Kind::all_to_all_v) continue;
      const auto plan = algorithms::make_plan(choice, num_ranks, 0);
      const auto program = lower_for_direct(plan, operation, {.stage_below_bytes = 1 << 30, .segment_bytes = 1 << 30});
      const auto made = make_packet_program(program, 0, kElemBytes, 4);
      EXPECT_TRUE(made.has_value()) << name_of(algorithm.kind) << ' ' << algorithm.name << ' ' << num_ranks;
    }
  }
}

TEST(DeviceProgram, AnImageHoldsWhatItWasMadeOf) {
  const DeviceProgram program = make_device_program(program_of("double_tree", 4, 3000), 1, kElemBytes, 2);
  std::vector<std::byte> memory(image_bytes(program));
  const ProgramImage image = image_of(program, memory.data());
  ASSERT_EQ(image.bytes.size(), memory.size());
  std::memcpy(memory.data(), image.bytes.data(), memory.size());
  const auto same = [](const auto* from, const auto& array) {
    return std::memcmp(from, array.data(), array.size() * sizeof(array[0])) == 0;
  };
  EXPECT_TRUE(same(image.view.lanes, program.lanes));
  EXPECT_TRUE(same(image.view.instructions, program.instructions));
  EXPECT_TRUE(same(image.view.waits, program.waits));
  EXPECT_TRUE(same(image.view.sources, program.sources));
  EXPECT_TRUE(same(image.view.destinations, program.destinations));
  EXPECT_TRUE(same(image.view.listeners, program.listeners));
  EXPECT_TRUE(same(image.view.exit_waits, program.exit_waits));
  EXPECT_EQ(image.view.num_exit_waits, program.exit_waits.size());
}

}  // namespace
}  // namespace lockstep::executors::cuda
