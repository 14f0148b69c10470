#include "simulator/machine/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

std::string refusal_of(const std::string& path, double value) {
  try {
    with_number(load_machine("dgx-a100"), path, value);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Vary, EveryNumberCanBeSetToWhatItIs) {
  const Machine machine = load_machine("dgx-a100");
  const std::vector<MachineNumber> numbers = numbers_of(machine);
  EXPECT_GT(numbers.size(), 15U);
  for (const MachineNumber& number : numbers) {
    Machine same = with_number(machine, number.path, number.value);
    same.name = machine.name;
    EXPECT_EQ(to_json(same), to_json(machine)) << number.path;
  }
}

TEST(Vary, OneNumberChangesAndTheNameSaysSo) {
  const Machine changed = with_number(load_machine("dgx-a100"), "levels.1.gbps", 50);
  EXPECT_EQ(changed.levels[1].gbps, 50);
  EXPECT_EQ(changed.levels[0].gbps, load_machine("dgx-a100").levels[0].gbps);
  EXPECT_TRUE(changed.name.ends_with(", levels.1.gbps=50")) << changed.name;
}

TEST(Vary, ACurveKeepsItsShape) {
  const Machine machine = load_machine("dgx-a100");
  const EfficiencyCurve before = machine.device.product;
  const EfficiencyCurve after = with_number(machine, "device.product", before.back().share / 2).device.product;
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i].share, before[i].share / 2, 1e-12);
}

TEST(Vary, IsRefusedInOneLine) {
  EXPECT_NE(refusal_of("levels.7.gbps", 1).find("'levels.7.gbps' is not a number of DGX A100"), std::string::npos);
  EXPECT_NE(refusal_of("levels.7.gbps", 1).find("allowed: device.matrix_tflops"), std::string::npos);
  EXPECT_NE(refusal_of("levels.0.efficiency", 1.5).find("efficiency"), std::string::npos);
  EXPECT_NE(refusal_of("levels.1.gbps", -5).find("gbps"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::simulator
