// overlap_perf: how much communication of gradients and parameters kernels hide. Example: overlap_perf --ranks 4 --zero
// 0,1,3
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/pipeline_perf/output.h"
#include "bench/pipeline_perf/overlap.h"
#include "bench/program/columns.h"
#include "bench/program/program.h"
#include "bench/program/run_records.h"
#include "core/options.h"
#include "core/provenance.h"
#include "core/record.h"

namespace lockstep::pipeline {
namespace {

struct OverlapRow {
  const OverlapCase& one;
  const OverlapResult& result;
};

std::vector<program::Column<OverlapRow>> overlap_columns() {
  using program::kWhole;
  constexpr program::Shown kMs{.decimals = 3};
  const auto cap = [](auto& r) { return r.one.zero_stage == 3 ? "layer" : fmt::format("{:g}", r.one.bucket_cap_mb); };
  const auto closed = [](auto& r) {
    return r.result.closed_form_ms ? fmt::format("{:.3f}", *r.result.closed_form_ms) : "N/A";
  };
  const auto difference = [](auto& r) {
    return r.result.emulation ? fmt::format("{:+.2f}", 100 * (r.result.step_ms / r.result.simulated_ms - 1)) : "N/A";
  };
  const auto late = [](auto& r) {
    return r.result.emulation ? fmt::format("{:.0f}", r.result.emulation->late_us) : "N/A";
  };
  return {{{"zero", "", 4}, kWhole, [](auto& r) { return r.one.zero_stage; }},
          {{"ranks", "", 5}, kWhole, [](auto& r) { return r.one.replicas; }},
          {{"cap", "(MiB)", 8}, cap},
          {{"calls", "", 6}, kWhole, [](auto& r) { return r.result.collectives; }},
          {{"sent", "(MB/rank)", 10}, {2, 1e-6}, [](auto& r) { return r.result.sent_bytes; }},
          {{"compute", "(ms)", 10}, kMs, [](auto& r) { return r.result.compute_ms; }},
          {{"comm", "(ms)", 10}, kMs, [](auto& r) { return r.result.communication_ms; }},
          {{"step", "(ms)", 10}, kMs, [](auto& r) { return r.result.step_ms; }},
          {{"exposed", "(ms)", 10}, kMs, [](auto& r) { return r.result.exposed_ms(); }},
          {{"hidden", "(%)", 9}, [](auto& r) { return program::share_text(r.result.hidden()); }},
          {{"closed", "(ms)", 10}, closed},
          {{"emu/sim", "(%)", 8}, difference},
          {{"late", "(us)", 7}, late}};
}

std::string overlap_heading_text(const OverlapFlags& flags) {
  std::string text = fmt::format(
      "# lockstep version {}, {}: {}\n", core::build().version, flags.program,
      flags.mode == Mode::simulated ? "SIMULATED, in virtual time" : "EMULATED, in wall-clock time; kernels wait");
  text += fmt::format("# {} layers of {}, forward {:g} ms, backward {:g} ms each; {} microbatches; optimizer {:g} ms\n",
                      flags.layers, core::format_size(flags.bytes_per_layer), flags.forward_ms, flags.backward_ms,
                      flags.microbatches, flags.optimizer_ms);
  text += fmt::format("# collectives: {}; each rank's link: {:g} us, {:g} GB/s each way\n", flags.algorithm,
                      flags.link.latency_us, flags.link.gbps);
  text += "# compute: kernels alone; comm: collectives alone, in the same order; exposed: step - compute;\n";
  text += "#   hidden: 1 - exposed/comm; closed: the buckets' recurrence; emu/sim: step over its simulation\n";
  return text;
}

std::string source_of(const OverlapCase& bench_case) {
  if (bench_case.zero_stage == 0) return "gradient buckets: Li et al. 2020 (arXiv:2006.15704)";
  return "ZeRO: Rajbhandari et al. 2019 (arXiv:1910.02054)";
}

core::OverlapRecord overlap_of(const OverlapFlags& flags, const OverlapCase& bench_case, const OverlapResult& result) {
  return {.layers = flags.layers,
          .bytes_per_layer = flags.bytes_per_layer,
          .replicas = bench_case.replicas,
          .bucket_cap_bytes = static_cast<std::int64_t>(bench_case.bucket_cap_mb * (1 << 20)),
          .zero_stage = bench_case.zero_stage,
          .prefetch = flags.prefetch,
          .algorithm = flags.algorithm,
          .collectives = result.collectives,
          .compute_alone_ms = result.compute_ms,
          .communication_alone_ms = result.communication_ms,
          .efficiency = result.hidden().value};
}

core::RunRecord overlap_run_record(const OverlapFlags& flags) {
  core::RunRecord run = program::new_run_record(flags, basis_of(flags.mode),
                                                *std::max_element(flags.replicas.begin(), flags.replicas.end()));
  run.link = program::link_record(flags.link);
  return run;
}

core::ScheduleRecord overlap_record(const core::RunRecord& run, const OverlapFlags& flags,
                                    const OverlapCase& bench_case, const OverlapResult& result) {
  core::ScheduleRecord record =
      program::replicas_record(run, bench_case.replicas, flags.microbatches, result.step_ms, result.compute_ms);
  record.schedule = result.step.name;
  record.source = source_of(bench_case);
  add_times(result, record);
  if (result.closed_form_ms) record.closed_form_ms = core::ClosedFormRecord{*result.closed_form_ms, "makespan"};
  record.overlap = overlap_of(flags, bench_case, result);
  return record;
}

// If parameters are sharded, too, a layer is a unit and buckets do not matter: one row.
std::vector<OverlapCase> cases_of(const OverlapFlags& flags) {
  std::vector<OverlapCase> cases;
  for (const int replicas : flags.replicas) {
    for (const int zero_stage : flags.zero_stages) {
      for (const double cap_mb : flags.bucket_caps_mb) {
        if (zero_stage == 3 && cap_mb != flags.bucket_caps_mb.front()) continue;
        cases.push_back({replicas, zero_stage, cap_mb});
      }
    }
  }
  return cases;
}

// Refuses invalid flags before anything is printed or written.
void check_algorithm(const OverlapFlags& flags, const std::vector<OverlapCase>& cases) {
  for (const OverlapCase& bench_case : cases) {
    for (const schedules::Comm comm : comms_of(bench_case)) plan_of(flags, comm, bench_case.replicas);
  }
}

int run_overlaps(const OverlapFlags& flags) {
  const std::vector<OverlapCase> cases = cases_of(flags);
  check_algorithm(flags, cases);
  program::check_single("--trace", flags.trace_file, cases.size(), "rows");
  program::check_writable({flags.trace_file});
  const core::RunRecord run = overlap_run_record(flags);
  program::StepTable<OverlapRow> table(overlap_columns(), program::to_stdout, flags.json_file);
  table.write(run);
  table.begin(overlap_heading_text(flags));
  for (const OverlapCase& bench_case : cases) {
    const OverlapResult result = run_overlap(flags, bench_case);
    table.show({bench_case, result}, "", "");
    table.write(overlap_record(run, flags, bench_case, result));
    if (flags.trace_file.empty()) continue;
    program::write_file(flags.trace_file, trace_text(result, flags.mode));
  }
  return table.end("");
}

}  // namespace
}  // namespace lockstep::pipeline

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("overlap_perf", [&] {
    const lockstep::pipeline::OverlapFlags flags = lockstep::pipeline::parse_overlap_flags(argc, argv);
    lockstep::program::refuse_peers("ranks are simulated or emulated by one process",
                                    "no mpirun, or ddp_overlap_bench --transport mpi");
    return lockstep::pipeline::run_overlaps(flags);
  });
}
