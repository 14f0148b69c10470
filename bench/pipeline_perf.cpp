// The costs of pipeline schedules: pipeline_perf --schedule all --stages 4 --microbatches 8,32

#include "bench/pipeline/cases.h"
#include "bench/pipeline/flags.h"
#include "bench/pipeline/real.h"
#include "bench/pipeline/records.h"
#include "bench/pipeline/result.h"
#include "bench/pipeline/table.h"
#include "bench/program/program.h"
#include "schedules/text.h"

namespace lockstep::pipeline {
namespace {

// Runs all that the flags ask for, prints a table, writes the files; returns the exit status. Throws core::Error.
int run_pipeline(PipelineFlags flags) {
  if (flags.list) {
    program::to_stdout(list_text());
    return 0;
  }
  Cases cases = make_cases(flags);  // before anything is timed, so that what is wrong is refused at once
  program::check_single("--dump-csv", flags.dump_csv_file, cases.all.size(), "schedules");
  program::check_single("--trace", flags.trace_file, cases.all.size(), "schedules");
  core::RecordWriter writer(flags.json_file);
  const core::RunRecord run = run_record(flags, cases);
  writer.write(run);
  if (flags.mode == Mode::real) {
    flags.times_ms = isolated_times_ms(flags);
    if (!flags.w_memory) flags.w_memory = kept_share_for_w(flags);
    cases = make_cases(flags);
  }
  if (!flags.dump_csv_file.empty()) {
    const Case& one = cases.all.front();
    program::write_file(flags.dump_csv_file, schedules::to_csv(flags.lowered ? one.messages : one.schedule));
  }
  program::to_stdout(heading_text(flags, cases));
  Agreement agreement(flags.mode);
  for (const Case& one : cases.all) {
    const Result result = run_case(one, flags);
    if (&one == &cases.all.front()) program::to_stdout(columns_text(flags, one, result));
    program::to_stdout(row_text(flags, one, result));
    if (cases.all.size() == 1) program::to_stdout(footing_text(one, result));
    agreement.add(one, result);
    if (writer.is_open()) writer.write(schedule_record(run, flags, one, result));
    if (!flags.trace_file.empty()) {
      program::write_file(flags.trace_file, trace_text(result.step, result.timeline, result.emulation, flags.mode));
    }
  }
  program::to_stdout(agreement.text());
  writer.commit();
  return 0;
}

}  // namespace
}  // namespace lockstep::pipeline

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("pipeline_perf", [&] {
    return lockstep::pipeline::run_pipeline(lockstep::pipeline::parse_pipeline_flags(argc, argv));
  });
}
