#include "collectives/backends/backend.h"

#include <array>

#include "collectives/algorithms/algorithm.h"
#include "collectives/backends/cuda_backend.h"
#include "collectives/backends/local_backend.h"
#include "collectives/backends/mpi_backend.h"
#include "collectives/backends/nccl_backend.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

std::optional<std::string> always_there() {
  return std::nullopt;
}

constexpr std::array kBackends{
    Backend{"local", "direct", false, always_there, run_local},
    Backend{"mpi", "message", true, mpi_absence, run_mpi},
    Backend{"cuda", "cuda", false, cuda_absence, run_cuda, core::cuda_devices},
    Backend{"nccl", "nccl", true, nccl_absence, run_nccl, core::cuda_devices},
};

}  // namespace

std::span<const Backend> all_backends() {
  return kBackends;
}

const Backend& find_backend(std::string_view name) {
  std::string allowed;
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return backend;
    allowed += " " + std::string(backend.name);
  }
  throw core::usage_error("--transport '" + std::string(name) + "': there is no such transport; allowed:" + allowed);
}

std::vector<std::string> algorithm_names(const Backend& backend, collectives::Kind kind, int num_ranks) {
  std::vector<std::string> names;
  if (backend.has_library) names.emplace_back(kLibrary);
  if (!backend.has_plans()) return names;
  for (const algorithms::Algorithm* algorithm : algorithms::algorithms_of(kind)) {
    const algorithms::Choice choice = algorithms::parse_choice(kind, algorithm->name);
    if (!algorithms::refusal(choice, num_ranks, 0)) names.emplace_back(algorithm->name);
  }
  return names;
}

}  // namespace lockstep::backends
