#include "collectives/backends/backend_kinds.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/executors/executors.h"
#include "collectives/libraries/mpi_library.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::backends {
namespace {

Prepared prepare_library(const BackendOptions& options, const collectives::Operation& operation,
                         std::string_view asked) {
  return {libraries::make_mpi_collective(operation, *options.mpi, asked), std::string(asked), "library", std::nullopt};
}

Prepared prepare_plan(transports::Transport& transport, const collectives::Operation& operation, plan::Plan plan,
                      std::chrono::milliseconds timeout) {
  executors::MessageOptions options;
  options.timeout = timeout;
  return prepared_plan(executors::make_message_collective(plan, operation, transport, options), "message",
                       std::move(plan));
}

void run_rank(transports::Transport& transport, const BackendOptions& options,
              const std::function<void(Endpoint&)>& body) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  Endpoint endpoint{transport, *device, *stream,
                    [&](const collectives::Operation& operation, plan::Plan plan) {
                      return prepare_plan(transport, operation, std::move(plan), options.timeout);
                    },
                    [&options](const collectives::Operation& operation, std::string_view asked) {
                      return prepare_library(options, operation, asked);
                    }};
  body(endpoint);
}

}  // namespace

std::optional<std::string> mpi_absence() {
  if (transports::mpi_is_built()) return std::nullopt;
  return transports::mpi_absence();
}

void run_mpi(const BackendOptions& options, const std::function<void(Endpoint&)>& body) {
  LOCKSTEP_CHECK(options.mpi != nullptr, "the mpi backend runs in a program that has started MPI");
  if (options.link)
    throw core::usage_error("--link emulates links between local ranks; allowed with --transport local");
  if (options.ranks_per_process > 1 && options.mpi->threads() != transports::MpiThreads::multiple) {
    throw core::usage_error("-t times -g is " + std::to_string(options.ranks_per_process) +
                            " ranks per process: " + options.mpi->library_version() +
                            " has no MPI_THREAD_MULTIPLE, with which several threads send; allowed: 1, and a process "
                            "for each rank");
  }
  transports::run_threads_of_process(*options.mpi, options.ranks_per_process, options.timeout,
                                     [&](transports::Transport& transport) { run_rank(transport, options, body); });
}

namespace {

using transports::MpiThreads;
using transports::MpiTransportOptions;

void check_options(const MeshOptions& options) {
  const int started = options.mpi->placement().num_ranks;
  if (options.num_ranks != started) {
    throw core::usage_error("the layout has " + std::to_string(options.num_ranks) + " ranks, mpirun has started " +
                            std::to_string(started) + "; they must be equal");
  }
  if (options.link) throw core::usage_error("--link emulates links between local ranks; not allowed under mpirun");
}

// This process's rank. Each channel has a communicator of its own, which only its members create.
class MpiMesh {
 public:
  MpiMesh(const MeshOptions& options, std::span<const Channel> channels)
      : options_(options),
        threaded_(options.mpi->threads() == MpiThreads::multiple),
        memory_(abort_),
        messages_(options.mpi->make_transport(messages_options())),
        groups_(channels.size()) {
    for (std::size_t c = 0; c < channels.size(); ++c) {
      if (!is_member(channels[c], messages_->rank())) continue;
      MpiTransportOptions group = channel_options();
      group.members = channels[c];
      groups_[c] = options.mpi->make_transport(group);
    }
  }

  // On GPUs collectives are NCCL's; MPI brings the members of a channel together, and moves messages.
  void run(const MeshBody& body) {
    const auto prepare_in = [this](std::size_t channel, const collectives::Operation& operation,
                                   std::string_view algorithm) {
      transports::Transport& group = *groups_[channel];
      return prepare_plan(group, operation, mesh_plan(options_, "mpi", operation, group.num_ranks(), algorithm),
                          options_.timeout);
    };
    const auto on = options_.device.nccl ? make_nccl_mesh_device(options_, *messages_, group_worlds(groups_))
                                         : make_cpu_mesh_device(options_, memory_, prepare_in);
    run_mesh_rank(*on, *messages_, abort_, threaded_, memberships(groups_), body);
  }

 private:
  // Waiting threads sleep if the rank has fewer cores than threads.
  MpiTransportOptions channel_options() const {
    const auto policy = core::WaitPolicy::beside_work(options_.threads_per_rank,
                                                      options_.mpi->placement().cores_per_rank, options_.timeout);
    return {.members = {}, .abort = &abort_, .naps = threaded_ && !policy.yields()};
  }
  MpiTransportOptions messages_options() const {
    MpiTransportOptions messages = channel_options();
    messages.progresses = threaded_;
    return messages;
  }

  const MeshOptions& options_;
  const bool threaded_;
  core::AbortFlag abort_;
  LastingMemory memory_;
  const std::unique_ptr<transports::Transport> messages_;
  std::vector<std::unique_ptr<transports::Transport>> groups_;  // [channel]
};

}  // namespace

void run_mpi_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body) {
  check_options(options);
  MpiMesh(options, channels).run(body);
}

}  // namespace lockstep::backends
