// pipeline_perf: the costs of pipeline schedules. Example: pipeline_perf --schedule all --stages 4 --microbatches 8,32

#include "bench/pipeline_perf/cases.h"
#include "bench/pipeline_perf/output.h"
#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "schedules/schedule.h"

namespace lockstep::pipeline {
namespace {

void check_ranks(const PipelineFlags& flags, const Case& bench_case) {
  if (flags.mpi == nullptr || bench_case.schedule.num_ranks() == flags.mpi->placement().num_ranks) return;
  throw core::usage_error("schedule " + bench_case.name + " is for " + std::to_string(bench_case.schedule.num_ranks()) +
                          " ranks, and mpirun has started " + std::to_string(flags.mpi->placement().num_ranks) +
                          "; allowed: equally many");
}

// Runs all requested cases, prints a table, writes the files; returns the exit status. Throws core::Error. Under
// mpirun all ranks call it; rank 0 prints and writes.
int run_pipeline(PipelineFlags flags, const program::Print& plain) {
  if (flags.list) {
    plain(list_text());
    return 0;
  }
  Cases cases = make_cases(flags);  // before anything is timed, so that errors appear immediately
  program::Progress progress("schedules", cases.all.size());
  const program::Print print = progress.around(plain);
  program::check_single("--dump-csv", flags.dump_csv_file, cases.all.size(), "schedules");
  program::check_single("--trace", flags.trace_file, cases.all.size(), "schedules");
  for (const Case& bench_case : cases.all) check_ranks(flags, bench_case);
  const bool writes = program::writes_output(flags.mpi);
  if (writes) program::check_writable({flags.dump_csv_file, flags.trace_file});
  const core::RunRecord run = run_record(flags, cases);
  program::StepTable<Row> table(columns(flags), print, writes ? flags.json_file : "");
  table.write(run);
  if (flags.mode == Mode::real) {
    flags.times_ms = isolated_times_ms(flags);
    if (!flags.w_memory) flags.w_memory = kept_share_for_w(flags);
    cases = make_cases(flags);
  }
  if (writes && !flags.dump_csv_file.empty()) {
    const Case& bench_case = cases.all.front();
    program::write_file(flags.dump_csv_file,
                        schedules::to_csv(flags.lowered ? bench_case.messages : bench_case.schedule));
  }
  table.begin(heading_text(flags, cases));
  Agreement agreement(flags.mode);
  for (const Case& bench_case : cases.all) {
    const Result result = run_case(bench_case, flags);
    progress.one_done();
    std::string below = cases.all.size() == 1 ? footing_text(bench_case, result) : "";
    if (result.emulation && (result.emulation->energy || &bench_case == &cases.all.back())) {
      below += result.emulation->energy_text;
    }
    table.show({flags, bench_case, result}, "", below);
    agreement.add(bench_case, result);
    table.write(schedule_record(run, flags, bench_case, result));
    if (writes && !flags.trace_file.empty()) {
      program::write_file(flags.trace_file, trace_text(result, flags.mode));
    }
  }
  return table.end(agreement.text());
}

int run(int argc, char** argv) {
  PipelineFlags flags = parse_pipeline_flags(argc, argv);
  const std::chrono::seconds timeout(flags.timeout_s);
  if (flags.mode != Mode::real) {
    program::refuse_peers("--mode " + name_of(flags.mode), "no mpirun, or --mode real --transport mpi");
  }
  return program::run_in_place(flags.place, argc, argv, timeout, [&](transports::MpiWorld* mpi) {
    flags.mpi = mpi;
    if (mpi != nullptr && flags.all_ranks) flags.stages = {mpi->placement().num_ranks};
    return run_pipeline(flags, program::print_of(mpi));
  });
}

}  // namespace
}  // namespace lockstep::pipeline

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("pipeline_perf", [&] { return lockstep::pipeline::run(argc, argv); });
}
