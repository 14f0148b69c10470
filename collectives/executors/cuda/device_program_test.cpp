#include "collectives/executors/cuda/device_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "collectives/algorithms/algorithm.h"
#include "collectives/executors/executors.h"

namespace lockstep::executors::cuda {
namespace {

using collectives::Operation;

plan::Program program_of(std::string_view algorithm, int num_ranks, std::int64_t count) {
  const Operation operation{.kind = collectives::Kind::all_reduce, .count = count};
  const auto choice = algorithms::parse_choice(operation.kind, algorithm);
  return lower_for_direct(algorithms::make_plan(choice, num_ranks, 0), operation,
                          {.stage_below_bytes = 0, .segment_bytes = 1024});
}

// All waits of all ranks for instructions, waits for themselves included.
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
      for (int r = 0; r < num_ranks; ++r) ranks.push_back(make_device_program(program, {.count = 5000}, r, 4));
      std::set<std::array<std::int64_t, 4>> signalled;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        for (std::size_t l = 0; l < ranks[r].lanes.size(); ++l) {
          const DeviceLane lane = ranks[r].lanes[l];
          for (std::uint32_t i = 0; i < lane.num_instructions; ++i) {
            const DeviceInstruction& instruction = ranks[r].instructions[lane.first_instruction + i];
            for (std::uint32_t k = 0; k < instruction.num_listeners; ++k) {
              signalled.insert({static_cast<std::int64_t>(r), static_cast<std::int64_t>(l), i + 1,
                                ranks[r].listeners[instruction.first_listener + k]});
            }
          }
        }
      }
      EXPECT_EQ(signalled, waits_of(ranks)) << algorithm << ", " << num_ranks << " ranks";
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
  const auto num_waits = [](const plan::Program& program, int blocks, bool in_place = false) {
    const Operation operation{.count = 16, .in_place = in_place};
    return make_device_program(program, operation, 0, blocks).instructions.at(1).num_waits;
  };
  EXPECT_EQ(num_waits(copy_of_a_copy(16, 0), 4), 0U) << "equal slices";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 0), 4), 1U) << "other slices of the same bytes";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 32), 4), 1U);
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 64), 4), 0U) << "other bytes";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 64), 4, true), 1U) << "in place, other slices of what was the input";
  EXPECT_EQ(num_waits(copy_of_a_copy(16, 64), 4, true), 0U) << "in place, equal slices";
  EXPECT_EQ(num_waits(copy_of_a_copy(8, 32), 1), 0U) << "one block meets itself only";
}

// Every staged plan can use packets, except plans whose receivers read other pieces than the senders produce.
TEST(PacketProgram, EveryAlgorithmHasOne) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (int num_ranks : {2, 3, 4, 8}) {
      const auto choice = algorithms::parse_choice(algorithm.kind, algorithm.name);
      if (algorithms::refusal(choice, num_ranks, 0)) continue;
      collectives::Operation operation{.kind = algorithm.kind, .count = 1000};
      if (algorithm.kind == collectives::Kind::all_to_all_v) continue;
      const auto plan = algorithms::make_plan(choice, num_ranks, 0);
      const auto program = lower_for_direct(plan, operation, {.stage_below_bytes = 1 << 30, .segment_bytes = 1 << 30});
      const auto compiled = make_packet_program(program, operation, 0, 4);
      EXPECT_TRUE(compiled.has_value()) << name_of(algorithm.kind) << ' ' << algorithm.name << ' ' << num_ranks;
    }
  }
}

TEST(DeviceProgram, AnImageHoldsWhatItWasMadeOf) {
  const DeviceProgram program = make_device_program(program_of("double_tree", 4, 3000), {.count = 3000}, 1, 2);
  const ProgramImage image = image_of(program);
  EXPECT_EQ(image.bytes.size(), image.at.size_bytes);
  const auto same = [&image](std::uint32_t at, const auto& array) {
    EXPECT_EQ(at % 16, 0U);
    return std::memcmp(image.bytes.data() + at, array.data(), array.size() * sizeof(array[0])) == 0;
  };
  EXPECT_TRUE(same(image.at.lanes, program.lanes));
  EXPECT_TRUE(same(image.at.instructions, program.instructions));
  EXPECT_TRUE(same(image.at.waits, program.waits));
  EXPECT_TRUE(same(image.at.sources, program.sources));
  EXPECT_TRUE(same(image.at.destinations, program.destinations));
  EXPECT_TRUE(same(image.at.listeners, program.listeners));
  EXPECT_TRUE(same(image.at.exit_waits, program.exit_waits));
  EXPECT_EQ(image.at.num_exit_waits, program.exit_waits.size());
}

// The reason for the speed of --transport cuda: in a large two-shot every rank computes its part in one pass that reads
// from all ranks and stores to all ranks, in place or not, without waits in between.
TEST(DeviceProgram, TwoShotIsOnePassARank) {
  for (const bool in_place : {false, true}) {
    for (const int num_ranks : {2, 4, 8, 16}) {
      constexpr std::int64_t kCount = std::int64_t{16} << 20;
      const Operation operation{.kind = collectives::Kind::all_reduce, .count = kCount, .in_place = in_place};
      const auto choice = algorithms::parse_choice(operation.kind, "two_shot");
      const plan::Program program = lower_for_direct(algorithms::make_plan(choice, num_ranks, 0), operation,
                                                     {.segment_bytes = std::numeric_limits<std::int64_t>::max()});
      const DeviceProgram compiled = make_device_program(program, operation, 1, 4);
      EXPECT_EQ(program.scratch_bytes, 0);
      EXPECT_EQ(compiled.lanes.size(), 1U);
      const auto passes =
          std::count_if(compiled.instructions.begin(), compiled.instructions.end(),
                        [](const DeviceInstruction& instruction) { return instruction.num_destinations > 0; });
      EXPECT_EQ(passes, 1);
      const DeviceInstruction& pass = compiled.instructions.at(0);
      EXPECT_EQ(pass.count, kCount / num_ranks);
      EXPECT_EQ(pass.num_sources, static_cast<std::uint32_t>(num_ranks));
      EXPECT_EQ(pass.num_destinations, static_cast<std::uint32_t>(num_ranks));
    }
  }
}

}  // namespace
}  // namespace lockstep::executors::cuda
