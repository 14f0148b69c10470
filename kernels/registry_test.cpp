#include "kernels/registry.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

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

// Kernels without a row in the registry would be built, but neither tested nor timed.
TEST(Registry, HasEveryFolderWithKernels) {
  std::set<std::string> registered;
  for (const KernelFamily& family : kKernelFamilies) registered.insert(family.name);
  std::set<std::string> folders;
  std::istringstream names(LOCKSTEP_KERNEL_FOLDERS);  // from kernels/CMakeLists.txt: NAME of every NAME_cases.cpp
  for (std::string name; names >> name;) folders.insert(name);
  for (const std::string& folder : folders) {
    EXPECT_EQ(registered.count(folder), 1U) << "kernels/registry.h has no row for " << folder << "_cases.cpp";
  }
  for (const std::string& name : registered) {
    EXPECT_EQ(folders.count(name), 1U) << "kernels/registry.h has a row for " << name << ", but there is no " << name
                                       << "_cases.cpp";
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
