#include "collectives/backends/backend.h"

#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithm.h"
#include "collectives/backends/backend_kinds.h"
#include "collectives/backends/places.h"
#include "collectives/backends/plan_choice.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/transports/process_threads.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

std::optional<std::string> always_there() {
  return std::nullopt;
}

// Opens the GPU that this rank takes on its host, and a stream on it. Collective: all ranks of the world call it
// together.
RankGpu open_gpu(transports::World& world, const BackendOptions& options) {
  const HostPlacement places = host_placement(world);
  const int gpus = static_cast<int>(core::cuda_devices().size());
  const GpuAssignment place = assigned_gpu(places.rank_of_host, places.ranks_of_host, gpus);
  if (const auto why = null_stream_refusal(places, gpus); why && options.null_stream) throw core::usage_error(*why);
  RankGpu gpu;
  gpu.device = core::make_cuda_device(place.device, world.rank(), options.timeout);
  gpu.stream = options.null_stream ? core::make_null_stream(*gpu.device) : gpu.device->make_stream();
  return gpu;
}

constexpr std::array kBackends{
    Backend{"local", "direct", false, always_there, run_local},
    Backend{"mpi", "message", true, mpi_absence, run_mpi},
    Backend{"cuda", "cuda", false, cuda_absence, nullptr, core::cuda_devices, core::cuda_free_bytes, open_gpu,
            join_cuda},
    Backend{"nccl", "nccl", true, nccl_absence, nullptr, core::cuda_devices, core::cuda_free_bytes, open_gpu,
            join_nccl},
};

// Ranks on GPUs are threads of this process, or mpirun's processes: runs run_rank(world) on every rank of this process.
void run_gpu_ranks(const BackendOptions& options, const std::function<void(transports::World&)>& run_rank) {
  if (options.link) {
    throw core::usage_error("--link emulates links between local ranks; allowed with --transport local");
  }
  if (options.mpi != nullptr) {
    return transports::run_threads_of_process(*options.mpi, options.ranks_a_process, options.timeout, run_rank);
  }
  transports::LocalOptions local;
  local.num_ranks = options.num_ranks;
  local.deadline = options.timeout;
  local.bind = false;
  transports::LocalGroup group(local);
  group.run([&](transports::LocalWorld& world) { run_rank(world); });
}

// Backends are left in the reverse of the order in which they were joined.
void run_on_gpu(transports::World& world, std::span<const Backend* const> backends, const BackendOptions& options,
                const EndpointsBody& body) {
  RankGpu gpu = backends.front()->open(world, options);
  std::vector<std::unique_ptr<GpuMember>> members;
  std::vector<Endpoint*> endpoints;
  const auto free_bytes = [&] {
    return options.watches_memory ? free_bytes_at_rest(*backends.front(), *gpu.device, world) : 0;
  };
  const std::size_t at_start_bytes = free_bytes();
  std::size_t before_bytes = at_start_bytes;
  for (const Backend* backend : backends) {
    members.push_back(backend->join(world, gpu, options));
    endpoints.push_back(&members.back()->endpoint());
    const std::size_t after_bytes = free_bytes();
    endpoints.back()->memory = {at_start_bytes, before_bytes - std::min(before_bytes, after_bytes)};
    before_bytes = after_bytes;
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

std::size_t free_bytes_at_rest(const Backend& backend, const core::Device& device, transports::World& world) {
  world.barrier();
  const std::size_t bytes = backend.free_bytes(device.index());
  world.barrier();
  return bytes;
}

std::span<const Backend> all_backends() {
  return kBackends;
}

bool is_backend(std::string_view name) {
  return std::any_of(kBackends.begin(), kBackends.end(), [name](const Backend& one) { return one.name == name; });
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
