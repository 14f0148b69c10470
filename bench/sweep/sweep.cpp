#include "bench/sweep/sweep.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>

#include "bench/sweep/gpu_facts.h"
#include "bench/sweep/nccl_json.h"
#include "bench/sweep/own_plans.h"
#include "bench/sweep/places.h"
#include "bench/sweep/recorder.h"
#include "bench/sweep/report.h"
#include "bench/sweep/serve_session.h"
#include "bench/sweep/session.h"
#include "bench/sweep/table.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cpu.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/size.h"

namespace lockstep::sweep {
namespace {

// The sum over rows of a whole sweep, for the closing lines.
struct Totals {
  int wrong_rows = 0;
  double busbw_gbps = 0;
  int placements = 0;

  void add(const RowResult& result) {
    if (result.wrong.value_or(0) != 0) ++wrong_rows;
    busbw_gbps += result.busbw_gbps;
    ++placements;
  }
};

class Sweep {
 public:
  Sweep(const SweepFlags& flags, const SweepEnvironment& environment, transports::MpiWorld* mpi,
        const SweepOutput& output)
      : flags_(flags),
        environment_(environment),
        mpi_(mpi),
        output_(output),
        machine_(core::this_machine()),
        prints_(mpi == nullptr || mpi->placement().rank == 0),
        own_plans_(read_own_plans(flags)) {
    plan_sessions();
    if (prints_ && !flags.json_file.empty()) recorder_.emplace(flags.json_file);
    if (prints_ && !flags.nccl_json_file.empty()) {
      nccl_json_.emplace(flags.nccl_json_file);
      output_.print("# Writing JSON output to " + nccl_json_->path() + "\n");
    }
  }

  int run();

 private:
  void plan_sessions();
  std::vector<int> numbers_of_ranks() const;
  int serve();
  void run_session_of(const SessionPlan& session);
  void show_heading(const SessionPlan& session, const std::vector<DeviceLine>& places);
  std::vector<std::string> notes(const SessionPlan& session, const std::vector<DeviceLine>& places) const;
  void show(const SessionPlan& session, const Comparison& comparison);
  void show_failure(const SessionPlan& session, const core::Error& error);
  void begin(const SessionPlan& session, const std::vector<DeviceLine>& places);
  backends::BackendOptions backend_options(const SessionPlan& session) const;
  void record(const std::function<void(Recorder&)>& write);
  Footing footing() const;
  void check_memory(const SessionPlan& session) const;
  bool oversubscribed(const SessionPlan& session) const;
  RunFacts run_facts(const SessionPlan& session, const backends::Backend& backend,
                     const std::vector<DeviceLine>& places) const;
  void check_ranks(const backends::Backend& backend) const;
  void check_registration(const backends::Backend& backend) const;

  const SweepFlags& flags_;
  const SweepEnvironment& environment_;
  transports::MpiWorld* const mpi_;
  const SweepOutput& output_;
  const core::Machine machine_;  // seen before ranks are bound to cores
  const bool prints_;
  const std::vector<OwnPlan> own_plans_;
  std::optional<Recorder> recorder_;
  std::optional<NcclJson> nccl_json_;
  std::vector<SessionPlan> sessions_;
  Totals totals_;
  // What is being run.
  struct Running {
    collectives::Operation operation;
    Contender contender;
  };
  std::optional<Running> running_;
};

std::string names_of(const Backends& backends) {
  std::string names;
  for (const auto* backend : backends) names += (names.empty() ? "" : " and ") + std::string(backend->name);
  return names;
}

bool Sweep::oversubscribed(const SessionPlan& session) const {
  return mpi_ != nullptr ? mpi_->placement().oversubscribed : session.num_ranks > machine_.cores;
}

std::vector<std::string> Sweep::notes(const SessionPlan& session, const std::vector<DeviceLine>& places) const {
  std::vector<std::string> lines;
  const std::string ranks = mpi_ != nullptr ? "processes of MPI" : flags_.processes ? "processes" : "threads";
  std::string line = "transport " + names_of(session.backends) + ", " + std::to_string(session.num_ranks) + " ranks (" +
                     ranks + ") on " + std::to_string(machine_.cores) + " cores" +
                     (mpi_ != nullptr ? " a host, " + std::to_string(mpi_->placement().num_hosts) + " hosts" : "");
  if (oversubscribed(session)) line += ", oversubscribed";
  lines.push_back(line);
  if (session.backends.size() > 1)
    lines.push_back("the transports take turns: a batch of calls of each, then the next");
  if (session.on_gpus()) {
    for (const std::string& note : sharing_notes(places)) lines.push_back(note);
  }
  if (!flags_.link.empty()) lines.push_back("EMULATED links: " + flags_.link + "; times are not this machine's own");
  for (const OwnPlan& plan : own_plans_) lines.push_back(plan->algorithm + ": the user's own plan, proved");
  const auto looks_up = [](const auto* backend) { return backend->has_plans() && !backend->auto_is_library(); };
  for (const std::string& algorithm : flags_.algorithms) {
    if (algorithm == "auto" && std::any_of(session.backends.begin(), session.backends.end(), looks_up))
      lines.push_back("auto: " + environment_.tuning_note);
  }
  return lines;
}

void Sweep::show_heading(const SessionPlan& session, const std::vector<DeviceLine>& places) {
  Heading heading;
  heading.program = flags_.program;
  heading.version = core::build().version;
  heading.threads = mpi_ != nullptr ? 1 : flags_.threads > 0 ? flags_.threads : session.num_ranks;
  heading.gpus = std::max(flags_.gpus_a_thread, 1);
  heading.sizes = flags_.sizes;
  heading.warmup_iterations = flags_.warmup_iterations;
  heading.iterations = flags_.iterations;
  heading.calls_per_iteration = flags_.calls_per_iteration;
  heading.check = flags_.check;
  heading.graph_launches = flags_.device.graph_launches;
  heading.unalign_elems = flags_.unalign_elems;
  heading.per_iteration_timing = flags_.per_iteration_timing;
  heading.timed_by_events = session.on_gpus() && flags_.device.blocking == Blocking::none;
  heading.notes = notes(session, places);
  heading.devices = places;
  output_.print(heading_text(heading) + table_heading_text(columns_of(session)));
  const auto is_nccl = [](const auto* backend) { return backend->name == "nccl"; };
  const bool uses_nccl = std::any_of(session.backends.begin(), session.backends.end(), is_nccl);
  if (nccl_json_) nccl_json_->begin(flags_, heading, uses_nccl ? libraries::nccl_library_version_code() : 0);
}

RunFacts Sweep::run_facts(const SessionPlan& session, const backends::Backend& backend,
                          const std::vector<DeviceLine>& places) const {
  RunFacts facts;
  facts.num_ranks = session.num_ranks;
  facts.transport = backend.name;
  facts.rank_kind = mpi_ != nullptr ? "mpi" : flags_.processes ? "processes" : "threads";
  facts.oversubscribed = oversubscribed(session);
  facts.machine = machine_;
  facts.machine.hosts = mpi_ != nullptr ? mpi_->placement().num_hosts : 1;
  if (mpi_ != nullptr) facts.libraries["mpi"] = mpi_->library_version();
  if (backend.on_gpus()) add_gpu_facts(backend.gpus(), ranks_per_gpu(places), facts);
  return facts;
}

// A record file that cannot be written ends the run, and is not tried again.
void Sweep::record(const std::function<void(Recorder&)>& write) {
  if (!recorder_) return;
  try {
    write(*recorder_);
  } catch (...) {
    recorder_.reset();
    throw;
  }
}

void Sweep::show(const SessionPlan& session, const Comparison& comparison) {
  totals_.add(comparison.out_of_place);
  if (comparison.in_place) totals_.add(*comparison.in_place);
  const Row row = table_row(comparison, flags_, session.num_ranks);
  output_.print(row_text(columns_of(session), row));
  if (nccl_json_) nccl_json_->add(row, comparison, flags_);
  record([&](Recorder& recorder) { recorder.add(comparison); });
  output_.measured(*comparison.backend, session.num_ranks, comparison);
}

void Sweep::show_failure(const SessionPlan& session, const core::Error& error) {
  if (!prints_ || !running_) return;
  ++totals_.wrong_rows;
  const Row row = failed_row(running_->operation, running_->contender, session.num_ranks);
  output_.print(row_text(columns_of(session), row));
  if (nccl_json_) {
    nccl_json_->add_failure(row, error.what());
    nccl_json_->finish(footing());
  }
  record([&](Recorder& recorder) {
    recorder.add_failure(running_->operation, running_->contender, error.what());
    recorder.commit();
  });
}

// Before anything is allocated; what the caches of the system hold can be given up.
void Sweep::check_memory(const SessionPlan& session) const {
  const std::size_t ranks_here = mpi_ != nullptr ? static_cast<std::size_t>(mpi_->placement().most_ranks_of_a_host)
                                                 : static_cast<std::size_t>(session.num_ranks);
  if (session.on_gpus()) {
    check_gpu_memory(session.backends.front()->gpus(), static_cast<int>(ranks_here), session_bytes(session),
                     flags_.sizes.max_bytes);
  }
  // Of ranks on GPUs, a rank's host has copies of one call's buffers.
  const std::size_t needed = (session.on_gpus() ? mirror_bytes(session) : session_bytes(session)) * ranks_here;
  const std::size_t available = core::available_host_bytes();
  if (needed <= available / 10 * 9) return;
  throw core::usage_error("-e,--maxbytes " + core::format_size(flags_.sizes.max_bytes) + ": " +
                          std::to_string(ranks_here) + " ranks need " +
                          core::format_size(static_cast<std::int64_t>(needed)) +
                          " of memory here; available: " + core::format_size(static_cast<std::int64_t>(available)));
}

// -t times -g, and --ranks, are ranks of one process; GPUs of -g are not shared.
void Sweep::check_ranks(const backends::Backend& backend) const {
  if (mpi_ != nullptr && flags_.ranks_given) {
    const int ranks = mpi_->placement().num_ranks;
    const bool agreed = flags_.threads > 0 ? flags_.ranks.front() == 1 : flags_.ranks == std::vector{ranks};
    if (agreed) return;
    throw core::usage_error(std::string(flags_.threads > 0 ? "-t times -g" : "--ranks") +
                            ": under mpirun each process is one rank, and there are " + std::to_string(ranks) +
                            "; allowed: " + (flags_.threads > 0 ? "1" : std::to_string(ranks)));
  }
  if (!backend.on_gpus() || flags_.threads == 0) return;
  const auto gpus = static_cast<int>(backend.gpus().size());
  if (flags_.ranks.front() <= gpus) return;
  throw core::usage_error("-t times -g is " + std::to_string(flags_.ranks.front()) + " GPUs, and there are " +
                          std::to_string(gpus) + "; allowed: at most so many, or --ranks " +
                          std::to_string(flags_.ranks.front()) + ", which may share GPUs");
}

void Sweep::check_registration(const backends::Backend& backend) const {
  const auto how = static_cast<libraries::NcclRegistration>(flags_.device.registration);
  if (how == libraries::NcclRegistration::none || !backend.has_library) return;
  if (const auto why = libraries::why_no_registration(how)) {
    throw core::usage_error("-R,--local_register " + std::to_string(flags_.device.registration) + ": " + *why);
  }
}

// Everything that can be refused is refused here, alike on all ranks.
void Sweep::plan_sessions() {
  for (const Backends& backends : backends_of_sessions(flags_.transports, environment_.find_backend)) {
    for (const auto* backend : backends) {
      if (const auto why = backend->absence()) {
        throw core::Error(core::Failure::not_built, "--transport " + std::string(backend->name) + ": " + *why);
      }
      check_ranks(*backend);
      check_registration(*backend);
    }
    for (int num_ranks : numbers_of_ranks()) {
      check_own_plans(flags_, own_plans_, num_ranks);
      sessions_.push_back(plan_session(flags_, backends, num_ranks, {environment_.tuning, own_plans_}));
    }
  }
}

std::vector<int> Sweep::numbers_of_ranks() const {
  if (mpi_ != nullptr) return {mpi_->placement().num_ranks};
  if (!flags_.ranks_given && !own_plans_.empty()) return {own_plans_.front()->num_ranks};
  return flags_.ranks;
}

backends::BackendOptions Sweep::backend_options(const SessionPlan& session) const {
  backends::BackendOptions options;
  options.num_ranks = session.num_ranks;
  options.sharing = flags_.processes ? core::Sharing::processes : core::Sharing::threads;
  if (!flags_.link.empty()) options.link = transports::parse_link(flags_.link);
  options.timeout = std::chrono::seconds(flags_.timeout_s);
  options.memory_bytes_per_rank = session_bytes(session);
  options.mpi = mpi_;
  options.protocol = flags_.device.protocol;
  options.registration = static_cast<libraries::NcclRegistration>(flags_.device.registration);
  return options;
}

void Sweep::begin(const SessionPlan& session, const std::vector<DeviceLine>& places) {
  show_heading(session, places);
  for (const auto* backend : session.backends) {
    record([&](Recorder& recorder) { recorder.begin_run(flags_, run_facts(session, *backend, places)); });
  }
}

void Sweep::run_session_of(const SessionPlan& session) {
  check_memory(session);
  Sink sink;
  sink.started = [&](const std::vector<DeviceLine>& places) { begin(session, places); };
  sink.measured = [&](const Comparison& comparison) { show(session, comparison); };
  sink.running = [&](const collectives::Operation& operation, const Contender& contender) {
    running_ = Running{operation, contender};
  };
  running_.reset();
  try {
    backends::run_together(
        session.backends, backend_options(session),
        [&](std::span<backends::Endpoint* const> endpoints) { run_session(session, endpoints, sink); });
  } catch (const core::Error& error) {
    if (error.failure() != core::Failure::usage) show_failure(session, error);
    throw;
  }
}

Footing Sweep::footing() const {
  const double average_gbps = totals_.placements > 0 ? totals_.busbw_gbps / totals_.placements : 0;
  return {flags_.program, totals_.wrong_rows, average_gbps, environment_.min_busbw_gbps};
}

// Nothing is printed or recorded: whoever gives the orders does.
int Sweep::serve() {
  const SessionPlan& session = sessions_.front();
  if (sessions_.size() != 1) {
    throw core::usage_error("--serve: " + std::to_string(sessions_.size()) +
                            " sessions; allowed: one number of ranks, and one transport or those that share ranks");
  }
  check_memory(session);
  backends::run_together(session.backends, backend_options(session),
                         [&](std::span<backends::Endpoint* const> endpoints) { serve_session(session, endpoints); });
  return 0;
}

int Sweep::run() {
  if (flags_.print_plan || flags_.draw) {
    if (prints_) output_.print(plans_text(flags_, sessions_));
    return 0;
  }
  if (flags_.serve) return serve();
  for (int cycle = 0; cycle < flags_.run_cycles; ++cycle) {
    for (const SessionPlan& session : sessions_) run_session_of(session);
  }
  if (prints_) output_.print(footing_text(footing()));
  if (nccl_json_) nccl_json_->finish(footing());
  record([](Recorder& recorder) { recorder.commit(); });
  const bool bad = totals_.wrong_rows > 0 || below_minimum(footing());
  return bad ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace

SweepEnvironment read_environment(const SweepFlags& /*flags*/) {
  SweepEnvironment environment;
  environment.min_busbw_gbps = min_busbw_of_environment();
  const std::string path = tuning::default_table_path();
  if (!tuning::has_table(path)) {
    environment.tuning_note = "rule of thumb; no measured table at " + path + " (bench/tune writes one)";
    return environment;
  }
  tuning::Table table = tuning::load_table(path);
  if (table.machine == core::this_machine().fingerprint()) {
    environment.tuning = std::move(table);
    environment.tuning_note = "measured table " + path;
  } else {
    environment.tuning_note = "rule of thumb; " + path + " was measured on another machine (bench/tune writes it anew)";
  }
  return environment;
}

SweepOutput to_stdout() {
  return {[](const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }};
}

int run_sweep(const SweepFlags& flags, const SweepEnvironment& environment, transports::MpiWorld* mpi,
              const SweepOutput& output) {
  std::optional<Sweep> sweep;
  try {
    sweep.emplace(flags, environment, mpi, output);
  } catch (const core::Error& error) {
    // All ranks of MPI refuse alike: one says so, and none needs to be aborted.
    if (mpi == nullptr || error.failure() != core::Failure::usage) throw;
    if (mpi->placement().rank == 0) std::fprintf(stderr, "%s: %s\n", flags.program.c_str(), error.what());
    return error.exit_status();
  }
  return sweep->run();
}

}  // namespace lockstep::sweep
