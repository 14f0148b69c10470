#include "collectives/backends/backend.h"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/algorithms/algorithm.h"
#include "collectives/backends/backend_kinds.h"
#include "collectives/backends/places.h"
#include "collectives/executors/executors.h"
#include "collectives/plan/cost.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device.h"
#include "core/error.h"

namespace lockstep::backends {

plan::Plan plan_for(const collectives::Operation& operation, int num_ranks, std::string_view algorithm) {
  constexpr std::int64_t kMostChunks = 32;
  algorithms::Choice choice = algorithms::parse_choice(operation.kind, algorithm);
  const std::string label = choice.label();
  const auto chunks = choice.options.find("chunks");
  if (chunks != choice.options.end() && algorithm.find("chunks=") == std::string_view::npos) {
    const std::int64_t bytes = operation.count * static_cast<std::int64_t>(core::size_of(operation.dtype));
    chunks->second = static_cast<int>(std::clamp<std::int64_t>(bytes / kChunkBytes, 1, kMostChunks));
  }
  plan::Plan plan = algorithms::make_plan(choice, num_ranks, operation.root);
  plan.algorithm = label;
  return plan;
}

Prepared prepared_plan(std::unique_ptr<collectives::Collective> collective, std::string_view executor,
                       plan::Plan&& plan) {
  std::string label = plan.algorithm;
  return {std::move(collective), std::move(label), std::string(executor), std::move(plan)};
}

std::int64_t sent_bytes(const Prepared& prepared, const collectives::Operation& operation, int member) {
  if (!prepared.plan) return -1;
  const plan::Plan& plan = *prepared.plan;
  return plan::count(plan, plan::contents_of(plan), operation).ranks[static_cast<std::size_t>(member)].bytes_sent;
}

namespace {

using transports::LocalWorld;

// A rank's memory is released in one piece when the group ends.
core::HostAllocator allocator_of(LocalWorld& world) {
  return {[&world](std::size_t size_bytes) -> void* { return world.arena().allocate(size_bytes); },
          [](void*, std::size_t) {}};
}

void run_rank(LocalWorld& world, const std::function<void(Endpoint&)>& body) {
  const auto device = core::make_cpu_device(allocator_of(world));
  const auto stream = device->make_stream();
  Endpoint endpoint{world, *device, *stream, [&world](const collectives::Operation& operation, plan::Plan plan) {
                      return prepared_plan(executors::make_direct(plan, operation, world, {}), "direct",
                                           std::move(plan));
                    }};
  body(endpoint);
}

}  // namespace

void run_local(const BackendOptions& options, const std::function<void(Endpoint&)>& body) {
  // Reserves address space only: pages are committed when touched. The plan with the most scratch (Bruck's) keeps every
  // rank's message, twice for even and odd calls; scratch that grows leaves its smaller predecessors allocated.
  const std::size_t scratch_factor = 4 * (static_cast<std::size_t>(options.num_ranks) + 1);
  transports::LocalOptions local;
  local.num_ranks = options.num_ranks;
  local.sharing = options.sharing;
  local.memory_bytes_per_rank = scratch_factor * options.memory_bytes_per_rank + (std::size_t{256} << 20);
  local.deadline = options.timeout;
  local.link = options.link;
  transports::LocalGroup group(local);
  group.run([&body](LocalWorld& world) { run_rank(world, body); });
}

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
    return transports::run_threads_of_process(*options.mpi, options.ranks_per_process, options.timeout, run_rank);
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
      Endpoint* const only = &endpoint;
      body({&only, 1});
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
  return std::any_of(kBackends.begin(), kBackends.end(),
                     [name](const Backend& backend) { return backend.name == name; });
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
