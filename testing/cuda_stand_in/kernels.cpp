#include "testing/cuda_stand_in/kernels.h"

#include <driver_types.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "testing/cuda_stand_in/refused.h"

namespace lockstep::cuda_stand_in {
namespace {

// As ci/kernel_facts.py writes it: "NAME REGISTERS STATIC_SHARED_BYTES LOCAL_BYTES MOST_THREADS OFFSET:BYTES ..."
std::unordered_map<std::string, KernelFacts> facts_in_file() {
  std::unordered_map<std::string, KernelFacts> all;
  const char* const path = std::getenv("LOCKSTEP_STAND_IN_FACTS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (path == nullptr) return all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    KernelFacts facts;
    words >> name >> facts.registers >> facts.static_shared_bytes >> facts.local_bytes >> facts.most_threads;
    Parameter parameter{};
    char colon = 0;
    while (words >> parameter.offset_bytes >> colon >> parameter.size_bytes) facts.parameters.push_back(parameter);
    all[name] = std::move(facts);
  }
  return all;
}

}  // namespace

void Kernels::add(const void* function, const char* name) {
  std::unique_ptr<Kernel>& kernel = kernels_[name];
  if (!kernel) kernel = std::make_unique<Kernel>(Kernel{.name = name});
  by_function_[function] = kernel.get();
  by_function_[kernel.get()] = kernel.get();
}

Kernel& Kernels::find(const void* function) {
  const auto found = by_function_.find(function);
  if (found == by_function_.end()) throw Refused(cudaErrorInvalidDeviceFunction, "the function is no kernel");
  return *found->second;
}

const KernelFacts& Kernels::facts_of(Kernel& kernel, Executor* executor) {
  if (kernel.facts) return *kernel.facts;
  if (executor != nullptr) {
    kernel.facts = executor->facts_of(kernel.name);
    if (!kernel.facts) {
      throw Refused(cudaErrorInvalidDeviceFunction, fmt::format("the executor has no kernel {}", kernel.name));
    }
    return *kernel.facts;
  }
  if (!file_) file_ = facts_in_file();
  return kernel.facts.emplace((*file_)[kernel.name]);
}

void Kernels::forget_facts() {
  for (auto& [name, kernel] : kernels_) kernel->facts.reset();
}

std::vector<std::byte> Kernels::laid_out(const KernelFacts& facts, void* const* arguments) {
  std::size_t end = 0;
  for (const Parameter& parameter : facts.parameters) {
    end = std::max(end, parameter.offset_bytes + parameter.size_bytes);
  }
  std::vector<std::byte> bytes(end);
  for (std::size_t i = 0; i < facts.parameters.size(); ++i) {
    const Parameter& parameter = facts.parameters[i];
    std::memcpy(bytes.data() + parameter.offset_bytes, arguments[i], parameter.size_bytes);
  }
  return bytes;
}

}  // namespace lockstep::cuda_stand_in
