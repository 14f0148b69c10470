#include <memory>
#include <string>
#include <utility>

#include "collectives/backends/mesh_kinds.h"
#include "collectives/executors/message_executor.h"
#include "collectives/transports/group_transport.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cpu.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

// A channel's share of the tags: one for each lane of a plan, and one for meetings.
constexpr int kTagsAChannel = 256;

void check_options(const MeshOptions& options) {
  const int started = options.mpi->placement().num_ranks;
  if (options.num_ranks != started) {
    throw core::usage_error("the layout has " + std::to_string(options.num_ranks) + " ranks, mpirun has started " +
                            std::to_string(started) + "; they must be equal");
  }
  if (options.link) throw core::usage_error("--link emulates links between local ranks; not allowed under mpirun");
}

}  // namespace

void run_mpi_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body) {
  check_options(options);
  const auto messages = options.mpi->make_transport();
  const auto collectives_of_all = options.mpi->make_transport();  // a communicator of its own: its tags are free
  std::vector<std::unique_ptr<transports::GroupTransport>> groups(channels.size());
  for (std::size_t c = 0; c < channels.size(); ++c) {
    if (!is_member(channels[c], messages->rank())) continue;
    groups[c] = std::make_unique<transports::GroupTransport>(*collectives_of_all, channels[c],
                                                             static_cast<int>(c) * kTagsAChannel, options.timeout);
  }
  const auto device = core::make_cpu_device();
  core::AbortFlag abort;
  const auto prepare = [&](std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) {
    LOCKSTEP_CHECK(groups.at(channel) != nullptr, "this rank is no member of the channel");
    transports::GroupTransport& group = *groups[channel];
    plan::Plan plan = mesh_plan(options, "mpi", operation, group.num_ranks(), algorithm);
    LOCKSTEP_CHECK(plan::num_lanes(plan) < kTagsAChannel, "more lanes than a channel has tags");
    executors::MessageOptions message_options;
    message_options.timeout = options.timeout;
    auto collective = executors::make_message_collective(plan, operation, group, message_options);
    std::string label = plan.algorithm;
    return Prepared{std::move(collective), std::move(label), "message", std::move(plan)};
  };
  MeshRank rank{*messages, *device, abort, false, prepare};
  body(rank);
}

}  // namespace lockstep::backends
