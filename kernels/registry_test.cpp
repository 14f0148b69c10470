#include "kernels/registry.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::kernels {
namespace {

TEST(Registry, EachCaseHasAnotherName) {
  for (const auto& cases : {all_test_cases(), all_bench_cases()}) {
    EXPECT_FALSE(cases.empty());
    std::set<std::string> names;
    for (const KernelCase& one : cases) EXPECT_TRUE(names.insert(one.name()).second) << one.name();
  }
}

TEST(Registry, FamiliesHaveNamesOfTheirOwnAndCases) {
  std::set<std::string> names;
  for (const KernelFamily& family : kernel_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.test_cases().empty()) << family.name;
    EXPECT_FALSE(family.bench_cases().empty()) << family.name;
  }
}

}  // namespace
}  // namespace lockstep::kernels
