#include "kernels/registry.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::kernels {
namespace {

TEST(Registry, EachCaseHasAnotherName) {
  for (const auto cases : {&KernelFamily::test_cases, &KernelFamily::bench_cases}) {
    std::set<std::string> names;
    for (const KernelFamily& family : kKernelFamilies) {
      for (const KernelCase& one : (family.*cases)()) EXPECT_TRUE(names.insert(one.name()).second) << one.name();
    }
  }
}

TEST(Registry, FamiliesHaveNamesOfTheirOwnAndCases) {
  std::set<std::string> names;
  for (const KernelFamily& family : kKernelFamilies) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.test_cases().empty()) << family.name;
    EXPECT_FALSE(family.bench_cases().empty()) << family.name;
  }
}

}  // namespace
}  // namespace lockstep::kernels
