// Holds on every machine and in every build: NCCL runs, or one line says why not.
#include "collectives/libraries/nccl_library.h"

#include <gtest/gtest.h>

#include "core/device_cpu.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::libraries {
namespace {

class WorldOfOne final : public transports::World {
 public:
  std::string_view name() const override { return "one"; }
  int rank() const override { return 0; }
  int num_ranks() const override { return 1; }
  void barrier() override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::memcpy(all.data(), mine.data(), mine.size());
  }
};

TEST(NcclLibrary, RunsOrSaysWhyNot) {
  const auto why = why_no_nccl();
  if (core::why_no_cuda()) {
    ASSERT_TRUE(why.has_value());
    EXPECT_TRUE(why->starts_with("NCCL ")) << *why;
    EXPECT_EQ(why->find('\n'), std::string::npos) << *why;
  }
  EXPECT_EQ(nccl_library_version().empty(),
            why && why->find("not built in") != std::string::npos && why->starts_with("NCCL is not built in"));
}

TEST(NcclLibrary, TheCpuCannotJoin) {
  WorldOfOne world;
  const auto cpu = core::make_cpu_device();
  try {
    join_nccl(world, *cpu, {});
    FAIL() << "joined";
  } catch (const core::Error& error) {
    EXPECT_TRUE(error.failure() == core::Failure::usage || error.failure() == core::Failure::not_built);
    EXPECT_TRUE(std::string(error.what()).starts_with("NCCL ")) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::libraries
