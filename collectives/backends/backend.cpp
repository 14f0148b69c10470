#include "collectives/backends/backend.h"

#include <array>

#include "collectives/algorithms/algorithm.h"
#include "collectives/backends/cuda_backend.h"
#include "collectives/backends/gpu_ranks.h"
#include "collectives/backends/local_backend.h"
#include "collectives/backends/mpi_backend.h"
#include "collectives/backends/nccl_backend.h"
#include "collectives/backends/plan_choice.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

std::optional<std::string> always_there() {
  return std::nullopt;
}

constexpr std::array kBackends{
    Backend{"local", "direct", false, always_there, run_local},
    Backend{"mpi", "message", true, mpi_absence, run_mpi},
    Backend{"cuda", "cuda", false, cuda_absence, nullptr, core::cuda_devices, open_gpu, join_cuda},
    Backend{"nccl", "nccl", true, nccl_absence, nullptr, core::cuda_devices, open_gpu, join_nccl},
};

// The last to join is the first to go.
void run_on_gpu(transports::World& world, std::span<const Backend* const> backends, const BackendOptions& options,
                const EndpointsBody& body) {
  RankGpu gpu = backends.front()->open(world, options);
  std::vector<std::unique_ptr<GpuMember>> members;
  std::vector<Endpoint*> endpoints;
  for (const Backend* backend : backends) {
    members.push_back(backend->join(world, gpu, options));
    endpoints.push_back(&members.back()->endpoint());
  }
  body(endpoints);
  while (!members.empty()) {
    members.back()->leave();
    members.pop_back();
  }
}

}  // namespace

Prepared Endpoint::prepare(const collectives::Operation& operation, std::string_view algorithm) const {
  if (prepare_library && asks_library(algorithm)) return prepare_library(operation, algorithm);
  return prepare_plan(operation, plan_for(operation, world.num_ranks(), algorithm));
}

void run_together(std::span<const Backend* const> backends, const BackendOptions& options, const EndpointsBody& body) {
  if (backends.size() == 1 && backends.front()->run != nullptr) {
    return backends.front()->run(options, [&body](Endpoint& endpoint) {
      Endpoint* const one = &endpoint;
      body({&one, 1});
    });
  }
  for (const Backend* backend : backends) {
    LOCKSTEP_CHECK(backend->join != nullptr, "backends that share a rank are on GPUs");
  }
  run_gpu_ranks(options, [&](transports::World& world) { run_on_gpu(world, backends, options, body); });
}

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
