#include "collectives/backends/backend_kinds.h"

#include <utility>

#include "collectives/executors/message_executor.h"
#include "collectives/libraries/mpi_library.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/transports/process_threads.h"
#include "core/device_cpu.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

Prepared prepare_library(const BackendOptions& options, const collectives::Operation& operation,
                         std::string_view asked) {
  if (asked != kLibrary)
    throw core::usage_error(std::string(asked) + ": MPI's own collectives have no options; allowed: library");
  transports::MpiWorld& mpi = *options.mpi;
  return {libraries::make_mpi_collective(operation, mpi), std::string(kLibrary), "library", std::nullopt};
}

Prepared prepare_plan(transports::Transport& transport, const collectives::Operation& operation, plan::Plan plan,
                      std::chrono::milliseconds timeout) {
  executors::MessageOptions options;
  options.timeout = timeout;
  auto collective = executors::make_message_collective(plan, operation, transport, options);
  std::string label = plan.algorithm;
  return {std::move(collective), std::move(label), "message", std::move(plan)};
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
  if (options.ranks_a_process > 1 && options.mpi->threads() != transports::MpiThreads::multiple) {
    throw core::usage_error("-t times -g is " + std::to_string(options.ranks_a_process) +
                            " ranks a process: " + options.mpi->library_version() +
                            " has no MPI_THREAD_MULTIPLE, with which several threads send; allowed: 1, and a process "
                            "for each rank");
  }
  transports::run_threads_of_process(*options.mpi, options.ranks_a_process, options.timeout,
                                     [&](transports::Transport& transport) { run_rank(transport, options, body); });
}

}  // namespace lockstep::backends
