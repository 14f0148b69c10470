#include "bench/pipeline/program.h"

#include <optional>

#include "bench/pipeline/cases.h"
#include "bench/pipeline/real.h"
#include "bench/pipeline/records.h"
#include "bench/pipeline/result.h"
#include "bench/pipeline/table.h"
#include "core/error.h"
#include "schedules/text.h"

namespace lockstep::pipeline {
namespace {

void check_single(const char* flag, const std::string& path, const Cases& cases) {
  if (path.empty() || cases.all.size() == 1) return;
  throw core::usage_error(std::string(flag) + " " + path + ": there are " + std::to_string(cases.all.size()) +
                          " schedules; allowed: one");
}

}  // namespace

int run_pipeline(PipelineFlags flags, const Print& print) {
  if (flags.list) {
    print(list_text());
    return 0;
  }
  Cases cases = make_cases(flags);  // before anything is timed, so that what is wrong is refused at once
  check_single("--dump-csv", flags.dump_csv_file, cases);
  check_single("--trace", flags.trace_file, cases);
  std::optional<core::RecordWriter> writer;
  if (!flags.json_file.empty()) writer.emplace(flags.json_file);
  const core::RunRecord run = run_record(flags, cases);
  if (writer) writer->write(run);
  if (flags.mode == Mode::real) {
    flags.times_ms = isolated_times_ms(flags);
    if (!flags.w_memory) flags.w_memory = kept_share_for_w(flags);
    cases = make_cases(flags);
  }
  if (!flags.dump_csv_file.empty()) {
    const Case& one = cases.all.front();
    write_file(flags.dump_csv_file, schedules::to_csv(flags.lowered ? one.messages : one.schedule));
  }
  print(heading_text(flags, cases));
  Agreement agreement(flags.mode);
  for (const Case& one : cases.all) {
    const Result result = run_case(one, flags);
    if (&one == &cases.all.front()) print(columns_text(flags, one, result));
    print(row_text(flags, one, result));
    if (cases.all.size() == 1) print(footing_text(one, result));
    agreement.add(one, result);
    if (writer) writer->write(schedule_record(run, flags, one, result));
    if (!flags.trace_file.empty()) {
      write_file(flags.trace_file, trace_text(result.step, result.timeline, result.emulation, flags.mode));
    }
  }
  print(agreement.text());
  if (writer) writer->commit();
  return 0;
}

int pipeline_main(int argc, char** argv) {
  return exit_status_of("pipeline_perf", [&] {
    const auto parsed = parse_pipeline_flags(argc, argv);
    if (const auto* help = std::get_if<sweep::HelpRequested>(&parsed)) {
      to_stdout(help->text);
      return 0;
    }
    return run_pipeline(std::get<PipelineFlags>(parsed), to_stdout);
  });
}

}  // namespace lockstep::pipeline
