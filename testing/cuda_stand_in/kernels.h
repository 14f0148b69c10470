// The kernels of the program, as nvcc's host code registers them, and what was set for each.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "testing/cuda_stand_in/launch.h"

namespace lockstep::cuda_stand_in {

struct Kernel {
  std::string name;  // mangled
  std::size_t opted_in_bytes = 0;
  std::optional<KernelFacts> facts = {};  // once asked for
};

class Kernels {
 public:
  // `function`: the host function that stands for the kernel.
  void add(const void* function, const char* name);

  // By its host function or its handle, which is the Kernel's address. Throws Refused if there is none.
  Kernel& find(const void* function);

  // From the executor, or without one from the file that LOCKSTEP_STAND_IN_FACTS names (ci/gpu_dry_run.sh writes it),
  // or assumed: few registers, no static shared memory. Throws Refused if the executor has no such kernel.
  const KernelFacts& facts_of(Kernel& kernel, Executor* executor);

  void forget_facts();  // the executor is another from now on

  // The kernel's parameters in the form that it reads, from addresses of the arguments.
  static std::vector<std::byte> laid_out(const KernelFacts& facts, void* const* arguments);

 private:
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::unordered_map<const void*, Kernel*> by_function_;
  std::optional<std::unordered_map<std::string, KernelFacts>> file_;
};

}  // namespace lockstep::cuda_stand_in
