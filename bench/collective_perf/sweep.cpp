#include "bench/collective_perf/sweep.h"

#include <span>
#include <string>

#include "bench/collective_perf/plan.h"
#include "bench/collective_perf/session.h"
#include "bench/program/progress.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"
#include "core/provenance.h"

namespace lockstep::sweep {
namespace {

backends::BackendOptions backend_options(const SessionPlan& session, transports::MpiWorld* mpi) {
  backends::BackendOptions options;
  options.num_ranks = session.num_ranks;
  if (mpi != nullptr) options.ranks_per_process = session.flags.ranks_per_process();
  options.sharing = session.flags.processes ? core::Sharing::processes : core::Sharing::threads;
  if (!session.flags.link.empty()) options.link = transports::parse_link(session.flags.link);
  options.timeout = std::chrono::seconds(session.flags.timeout_s);
  options.memory_bytes_per_rank = session_bytes(session);
  options.mpi = mpi;
  options.protocol = session.flags.device.protocol;
  options.most_blocks = session.flags.device.blocks;
  options.nccl_config = session.flags.device.nccl;
  options.null_stream = session.flags.device.null_stream;
  options.watches_memory = session.flags.device.reports_memory;
  options.registration = static_cast<libraries::NcclRegistration>(session.flags.device.registration);
  return options;
}

void run_planned(const SessionPlan& session, const SweepEnvironment& environment, transports::MpiWorld* mpi,
                 Sinks& sinks) {
  if (!is_simulated(session)) check_memory(session, mpi);
  struct Running {
    collectives::Operation operation;
    Candidate candidate;
  };
  std::optional<Running> running;
  Sink sink;
  sink.started = [&](const std::vector<DeviceLine>& places) { sinks.begin(session, places); };
  sink.measured = [&](const Comparison& comparison) { sinks.show(session, comparison); };
  sink.ended = [&](const core::GpuMemoryRecord& memory) { sinks.show_memory(memory); };
  sink.running = [&](const collectives::Operation& operation, const Candidate& candidate) {
    running = Running{operation, candidate};
  };
  if (is_simulated(session)) return run_simulated(session, sink);
  if (session.on_gpus()) sink.look = environment.watch(session.backends.front()->gpus());
  try {
    backends::run_together(
        session.backends, backend_options(session, mpi),
        [&](std::span<backends::Endpoint* const> endpoints) { run_session(session, endpoints, sink); });
  } catch (const core::Error& error) {
    if (error.failure() != core::Failure::usage && running) {
      sinks.show_failure(session, running->operation, running->candidate, error.what());
    }
    throw;
  }
}

std::size_t rows_of(const std::vector<SessionPlan>& sessions) {
  std::size_t rows = 0;
  for (const SessionPlan& session : sessions) {
    for (const auto& candidates : session.candidates) rows += candidates.size();
  }
  return rows;
}

// Prints and records nothing: the program that sends the orders does.
int serve(const std::vector<SessionPlan>& sessions, transports::MpiWorld* mpi) {
  const SessionPlan& session = sessions.front();
  if (sessions.size() != 1) {
    throw core::usage_error("--serve: " + std::to_string(sessions.size()) +
                            " sessions; allowed: one number of ranks, and one transport or those that share ranks");
  }
  check_memory(session, mpi);
  backends::run_together(session.backends, backend_options(session, mpi),
                         [&](std::span<backends::Endpoint* const> endpoints) { serve_session(session, endpoints); });
  return 0;
}

}  // namespace

SweepEnvironment read_environment(const SweepFlags& /*flags*/) {
  SweepEnvironment environment;
  environment.min_busbw_gbps = min_busbw_of_environment();
  const std::string path = tuning::default_table_path();
  if (!tuning::has_table(path)) {
    environment.tuning_note = "rule of thumb; no measured table at " + path + " (tune writes one)";
    return environment;
  }
  tuning::Table table = tuning::load_table(path);
  if (table.machine == core::fingerprint(core::this_machine())) {
    environment.tuning = std::move(table);
    environment.tuning_note = "measured table " + path;
  } else {
    environment.tuning_note = "rule of thumb; " + path + " was measured on another machine (tune writes a new one)";
  }
  return environment;
}

int run_sweep(const SweepFlags& flags, const SweepEnvironment& environment, transports::MpiWorld* mpi,
              const SweepOutput& output) {
  const std::vector<SessionPlan> sessions = plan_sweep(flags, environment.find_backend, environment.tuning, mpi);
  if (flags.only_shows_plans()) {
    const std::string text = plans_text(flags, sessions);  // on all ranks, which refuse alike
    if (mpi == nullptr || mpi->placement().rank == 0) output.print(text);
    return 0;
  }
  program::Progress progress("rows", rows_of(sessions) * static_cast<std::size_t>(flags.run_cycles));
  const SweepOutput shown{progress.around(output.print),
                          [&](const backends::Backend& backend, int ranks, const Comparison& row) {
                            progress.one_done();
                            output.measured(backend, ranks, row);
                          }};
  Sinks sinks(flags, shown, mpi, environment.tuning_note, environment.min_busbw_gbps);
  if (flags.serve) return serve(sessions, mpi);
  for (int cycle = 0; cycle < flags.run_cycles; ++cycle) {
    for (const SessionPlan& session : sessions) run_planned(session, environment, mpi, sinks);
  }
  return sinks.finish() ? 0 : static_cast<int>(core::Failure::wrong_data);
}

}  // namespace lockstep::sweep
