#include "collectives/backends/backend_kinds.h"

#include <utility>

#include "collectives/executors/direct_executor.h"
#include "collectives/transports/local_world.h"
#include "core/device_cpu.h"

namespace lockstep::backends {
namespace {

using transports::LocalWorld;

// A rank's memory is released in one piece when the group ends.
core::HostAllocator allocator_of(LocalWorld& world) {
  return {[&world](std::size_t size_bytes) -> void* { return world.arena().allocate(size_bytes); },
          [](void*, std::size_t) {}};
}

Prepared prepare_plan(LocalWorld& world, const collectives::Operation& operation, plan::Plan plan) {
  auto collective = executors::make_direct(plan, operation, world, {});
  std::string label = plan.algorithm;
  return {std::move(collective), std::move(label), "direct", std::move(plan)};
}

void run_rank(LocalWorld& world, const std::function<void(Endpoint&)>& body) {
  const auto device = core::make_cpu_device(allocator_of(world));
  const auto stream = device->make_stream();
  Endpoint endpoint{world, *device, *stream, [&world](const collectives::Operation& operation, plan::Plan plan) {
                      return prepare_plan(world, operation, std::move(plan));
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

}  // namespace lockstep::backends
