#include "bench/collective_perf/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "bench/collective_perf/session.h"
#include "bench/collective_perf/table.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/transports/mpi_transport.h"
#include "core/provenance.h"
#include "core/statistics.h"

namespace lockstep::sweep {
namespace {

Measured measured_of(const RowResult& result, const SweepFlags& flags) {
  Measured measured;
  measured.time_us = *(flags.device.report_cpu_time ? result.queued_us : result.time_us);
  measured.algbw_gbps = *result.algbw_gbps;
  measured.busbw_gbps = *result.busbw_gbps;
  measured.wrong = result.wrong;
  const std::span<const double> samples(result.samples_us);
  if (samples.empty()) return measured;
  const auto skip = std::min(static_cast<std::size_t>(flags.per_iteration_skip), samples.size() - 1);
  measured.samples = core::summarize(samples.subspan(skip));
  if (result.facts && result.facts->predicted_us && *result.facts->predicted_us > 0) {
    measured.measured_over_predicted = measured.samples.median / *result.facts->predicted_us;
  }
  return measured;
}

Row new_row(const core::RowRecord& of, const backends::Backend& backend) {
  Row row;
  row.of = of;
  row.of.transport = backend.name;
  row.timestamp = timestamp_now();
  return row;
}

Row table_row(const Comparison& comparison, const SweepFlags& flags) {
  Row row = new_row(comparison.out_of_place, *comparison.backend);
  row.out_of_place = measured_of(comparison.out_of_place, flags);
  if (comparison.in_place) row.in_place = measured_of(*comparison.in_place, flags);
  row.in_place.absent = !comparison.in_place;
  row.plan = comparison.out_of_place.facts;
  return row;
}

Row failed_row(const collectives::Operation& operation, const Candidate& candidate, int num_ranks) {
  Row row = new_row(record_of(operation, num_ranks), *candidate.backend);
  row.of.algorithm = candidate.algorithm;
  row.out_of_place.failed = true;
  row.in_place.failed = true;
  return row;
}

Columns columns_of(const SessionPlan& session) {
  const SweepFlags& flags = session.flags;
  return {.per_iteration = flags.per_iteration_timing,
          .timestamps = flags.timestamps,
          .cpu_time = flags.device.report_cpu_time,
          .choice = true,
          .transport = session.backends.size() > 1,
          .explain = flags.explain,
          .links = flags.explain && !flags.link.empty(),
          .stats = flags.stats};
}

std::string names_of(const Backends& backends) {
  std::string names;
  for (const auto* backend : backends) names += (names.empty() ? "" : " and ") + std::string(backend->name);
  return names;
}

constexpr int kZeroCtas = 2;  // -x, NCCL_CTA_POLICY_ZERO

core::NcclConfigRecord nccl_config_record(const DeviceFlags& flags) {
  const libraries::NcclConfig& config = flags.nccl;
  core::NcclConfigRecord record;
  record.registration = flags.registration;
  record.min_ctas = config.min_ctas;
  record.max_ctas = config.max_ctas;
  record.cga_cluster_size = config.cga_cluster_size;
  record.cta_policy = config.cta_policy;
  record.split_share = config.split_share;
  if (!config.net_name.empty()) record.net = config.net_name;
  return record;
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void set_run(core::RowRecord& record, const core::RunRecord& run) {
  record.run = run.run;
  record.transport = run.transport;
  record.basis = run.basis;
}

}  // namespace

void Recorder::begin_run(const core::RunRecord& run) {
  writer_.write(run);
  runs_.insert_or_assign(run.transport, run);
}

void Recorder::add_result(const core::RunRecord& run, const RowResult& result) {
  core::RowRecord record = result;
  set_run(record, run);
  if (!run.gpu) record.queued_us.reset();
  record.plan = result.facts;
  writer_.write(record);
}

void Recorder::add(const Comparison& comparison) {
  const core::RunRecord& run = run_of(*comparison.backend);
  add_result(run, comparison.out_of_place);
  if (comparison.in_place) add_result(run, *comparison.in_place);
}

void Recorder::add_failure(const collectives::Operation& operation, const Candidate& candidate,
                           const std::string& error) {
  const core::RunRecord& run = run_of(*candidate.backend);
  core::RowRecord record = record_of(operation, static_cast<int>(run.ranks));
  set_run(record, run);
  record.algorithm = candidate.algorithm;
  record.executor = backends::asks_library(candidate.algorithm) ? "library" : candidate.backend->executor;
  record.status = "failed";
  record.error = error;
  writer_.write(record);
}

Sinks::Sinks(const SweepFlags& flags, const SweepOutput& output, const transports::MpiWorld* mpi,
             std::string tuning_note, std::optional<double> min_busbw_gbps)
    : flags_(flags),
      output_(output),
      mpi_(mpi),
      tuning_note_(std::move(tuning_note)),
      min_busbw_gbps_(min_busbw_gbps),
      machine_(core::this_machine()) {
  if (prints() && !flags.json_file.empty()) recorder_.emplace(flags.json_file);
  if (!prints() || flags.nccl_json_file.empty()) return;
  nccl_json_.emplace(flags.nccl_json_file);
  output_.print("# Writing JSON output to " + nccl_json_->path() + "\n");
}

bool Sinks::prints() const {
  return mpi_ == nullptr || mpi_->placement().rank == 0;
}

bool Sinks::oversubscribed(const SessionPlan& session) const {
  if (is_simulated(session)) return false;
  if (mpi_ == nullptr) return session.num_ranks > machine_.cores;
  return mpi_->placement().oversubscribed || mpi_->placement().cores_per_rank < session.flags.ranks_per_process();
}

std::string Sinks::mpi_ranks_text() const {
  const int threads = flags_.ranks_per_process();
  if (threads == 1) return "processes of MPI";
  return std::to_string(mpi_->placement().num_ranks) + " processes of MPI, " + std::to_string(threads) +
         " threads in each";
}

std::vector<std::string> Sinks::notes(const SessionPlan& session, const std::vector<DeviceLine>& places) const {
  std::vector<std::string> lines;
  if (is_simulated(session)) {
    lines.push_back("SIMULATED: " + std::to_string(session.num_ranks) + " devices of " + flags_.machine +
                    " in virtual time; nothing is run or verified, and both placements take the same time");
  }
  const std::string ranks = mpi_ != nullptr ? mpi_ranks_text() : flags_.processes ? "processes" : "threads";
  std::string line = "transport " + names_of(session.backends) + ", " + std::to_string(session.num_ranks) + " ranks (" +
                     ranks + ") on " + std::to_string(machine_.cores) + " cores" +
                     (mpi_ != nullptr ? " per host, " + std::to_string(mpi_->placement().num_hosts) + " hosts" : "");
  if (oversubscribed(session)) line += ", oversubscribed";
  if (!is_simulated(session)) lines.push_back(line);
  if (session.backends.size() > 1)
    lines.push_back("the transports alternate: a batch of calls on each, then on the next");
  if (session.on_gpus()) {
    for (const std::string& note : sharing_notes(places)) lines.push_back(note);
  }
  if (!flags_.link.empty()) lines.push_back("EMULATED links: " + flags_.link + "; times are not this machine's own");
  for (const Candidate& candidate : session.candidates.front()) {
    const bool is_own = candidate.own_plan != nullptr && candidate.backend == session.backends.front();
    if (is_own) lines.push_back(candidate.algorithm + ": the user's own plan, proved");
  }
  if (flags_.device.nccl.cta_policy == kZeroCtas) lines.push_back(zero_cta_note(session));
  const auto looks_up = [](const auto* backend) { return backend->has_plans() && !backend->auto_is_library(); };
  for (const std::string& algorithm : flags_.algorithms) {
    if (algorithm == "auto" && std::any_of(session.backends.begin(), session.backends.end(), looks_up))
      lines.push_back("auto: " + tuning_note_);
  }
  if (flags_.explain && is_simulated(session)) {
    lines.push_back("steps, wire: counted from the plan; predict, m/p: N/A, as the times are predictions themselves");
  } else if (flags_.explain) {
    lines.push_back("steps, wire: counted from the plan; predict: the plan's time by measured or given links;");
    lines.push_back("  m/p: median of the measured times over predict; ip_m/p: the same in place");
  }
  return lines;
}

// Whether calls by NCCL's own algorithms take no thread blocks, as -x 2 asks. Plans always take them.
std::string Sinks::zero_cta_note(const SessionPlan& session) const {
  const collectives::Kind kind = session.operations.front().kind;
  const std::string name(collectives::name_of(kind));
  const auto registration = static_cast<libraries::NcclRegistration>(flags_.device.registration);
  const int hosts = mpi_ != nullptr ? mpi_->placement().num_hosts : 1;
  const auto why = libraries::zero_cta_refusal(kind, registration, hosts, libraries::nccl_version_code());
  if (why) return "-x 2: " + name + " takes thread blocks: " + *why;
  return "-x 2: " + name + " by NCCL's own algorithms takes no thread blocks where GPUs are joined by NVLink";
}

void Sinks::show_heading(const SessionPlan& session, const std::vector<DeviceLine>& places) {
  const Heading heading{.flags = flags_,
                        .version = core::build().version,
                        .threads = flags_.threads > 0 ? flags_.threads
                                   : mpi_ != nullptr  ? 1
                                                      : session.num_ranks,
                        .gpus = std::max(flags_.gpus_per_thread, 1),
                        .timed_by_events = session.on_gpus() && flags_.device.blocking == Blocking::none,
                        .notes = notes(session, places),
                        .devices = places};
  output_.print(heading_text(heading) + table_heading_text(columns_of(session)));
  const auto is_nccl = [](const auto* backend) { return backend->name == "nccl"; };
  const bool uses_nccl = std::any_of(session.backends.begin(), session.backends.end(), is_nccl);
  if (nccl_json_) nccl_json_->begin(heading, uses_nccl ? libraries::nccl_version_code() : 0);
}

core::RunRecord Sinks::run_record(const SessionPlan& session, const backends::Backend& backend,
                                  const std::vector<DeviceLine>& places) const {
  core::RunRecord run = core::new_run(flags_.program, flags_.command);
  run.machine = machine_;
  run.machine.hosts = mpi_ != nullptr ? mpi_->placement().num_hosts : 1;
  run.ranks = session.num_ranks;
  run.transport = backend.name;
  run.rank_kind = mpi_ != nullptr ? "mpi" : flags_.processes ? "processes" : "threads";
  if (mpi_ != nullptr) run.mpi_processes = mpi_->placement().num_ranks;
  if (flags_.threads > 0) run.gpus_per_thread = flags_.gpus_per_thread;
  run.oversubscribed = oversubscribed(session);
  run.seed = flags_.seed;
  if (is_simulated(session)) {
    run.rank_kind = kSimulated;
    run.basis = kSimulated;
    run.simulated_machine = std::filesystem::path(flags_.machine).filename().string();
  }
  if (mpi_ != nullptr) run.libraries["mpi"] = mpi_->library_version();
  if (!flags_.link.empty()) {
    run.link = program::link_record(transports::parse_link(flags_.link));
    run.basis = "emulated";
  }
  if (!backend.on_gpus()) return run;
  for (const core::CudaDeviceInfo& gpu : backend.gpus()) run.machine.gpus.push_back(gpu.name);
  run.gpu = core::gpu_record(backend.gpus(), ranks_per_gpu(places));
  run.libraries.merge(core::gpu_libraries(backend.gpus()));
  const std::string nccl = run.transport == "nccl" ? libraries::nccl_version() : "";
  if (!nccl.empty()) run.libraries["nccl"] = nccl;
  if (run.transport == "nccl") run.nccl_config = nccl_config_record(flags_.device);
  if (flags_.device.null_stream) run.null_stream = true;
  return run;
}

// A record file that cannot be written ends the run; writing it is not tried again.
void Sinks::record(const std::function<void(Recorder&)>& write) {
  if (!recorder_) return;
  try {
    write(*recorder_);
  } catch (...) {
    recorder_.reset();
    throw;
  }
}

void Sinks::begin(const SessionPlan& session, const std::vector<DeviceLine>& places) {
  show_heading(session, places);
  for (const auto* backend : session.backends) {
    record([&](Recorder& recorder) { recorder.begin_run(run_record(session, *backend, places)); });
  }
}

namespace {

// Returns the line on a row whose samples were not taken at one clock; empty for other rows.
std::string clocks_text(const RowResult& result) {
  if (!result.gpu_clocks || !result.gpu_clocks->disturbance) return "";
  return fmt::format("# clocks changed while this row was measured, and in {} repetitions: {}\n",
                     result.gpu_clocks->most_repeats, *result.gpu_clocks->disturbance);
}

}  // namespace

void Sinks::show(const SessionPlan& session, const Comparison& comparison) {
  for (const RowResult* result : {&comparison.out_of_place, comparison.in_place ? &*comparison.in_place : nullptr}) {
    if (result == nullptr) continue;
    if (result->wrong.value_or(0) != 0) ++wrong_rows_;
    busbw_gbps_ += *result->busbw_gbps;
    ++placements_;
  }
  const Row row = table_row(comparison, flags_);
  output_.print(row_text(columns_of(session), row));
  output_.print(clocks_text(comparison.out_of_place));
  if (nccl_json_) nccl_json_->add(row, comparison, flags_);
  record([&](Recorder& recorder) { recorder.add(comparison); });
  output_.measured(*comparison.backend, session.num_ranks, comparison);
}

void Sinks::show_memory(const core::GpuMemoryRecord& memory) {
  const std::int64_t known = std::min(memory.taken_bytes, memory.joining_bytes + memory.buffer_bytes);
  output_.print(
      fmt::format("# GPU memory: {} used: {} by initialization, {} by buffers, {} by the calls; on the GPU with the "
                  "largest total, for all of its ranks\n",
                  mebibytes(memory.taken_bytes), mebibytes(memory.joining_bytes), mebibytes(memory.buffer_bytes),
                  mebibytes(memory.taken_bytes - known)));
}

void Sinks::show_failure(const SessionPlan& session, const collectives::Operation& operation,
                         const Candidate& candidate, const std::string& error) {
  if (!prints()) return;
  ++wrong_rows_;
  const Row row = failed_row(operation, candidate, session.num_ranks);
  output_.print(row_text(columns_of(session), row));
  if (nccl_json_) {
    nccl_json_->add_failure(row, error);
    nccl_json_->finish(footing());
  }
  record([&](Recorder& recorder) {
    recorder.add_failure(operation, candidate, error);
    recorder.commit();
  });
}

Footing Sinks::footing() const {
  const double average_gbps = placements_ > 0 ? busbw_gbps_ / placements_ : 0;
  return {flags_.program, wrong_rows_, average_gbps, min_busbw_gbps_};
}

bool Sinks::finish() {
  if (prints()) output_.print(footing_text(footing()));
  if (nccl_json_) nccl_json_->finish(footing());
  record([](Recorder& recorder) { recorder.commit(); });
  return wrong_rows_ == 0 && !below_minimum(footing());
}

}  // namespace lockstep::sweep
