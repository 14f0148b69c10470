#include "kernels/registry.h"

#include <array>
#include <iterator>

#include "kernels/gelu/gelu_cases.h"

namespace lockstep::kernels {
namespace {

struct Family {
  std::vector<KernelCase> (*test_cases)();
  std::vector<KernelCase> (*bench_cases)();
};

constexpr std::array kFamilies{
    Family{gelu_test_cases, gelu_bench_cases},
};

std::vector<KernelCase> cases_of_all(std::vector<KernelCase> (*Family::*cases)()) {
  std::vector<KernelCase> all;
  for (const Family& family : kFamilies) {
    std::vector<KernelCase> some = (family.*cases)();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace

std::vector<KernelCase> all_test_cases() {
  return cases_of_all(&Family::test_cases);
}

std::vector<KernelCase> all_bench_cases() {
  return cases_of_all(&Family::bench_cases);
}

}  // namespace lockstep::kernels
