#include "bench/pipeline/overlap_program.h"

#include <optional>
#include <vector>

#include "bench/pipeline/overlap_records.h"
#include "bench/pipeline/overlap_result.h"
#include "bench/pipeline/overlap_table.h"
#include "bench/pipeline/records.h"
#include "core/error.h"

namespace lockstep::pipeline {
namespace {

// Where parameters are sharded too, a layer is a unit and buckets are of no meaning: one row.
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

// Before anything is printed or written.
void check_algorithm(const OverlapFlags& flags, const std::vector<OverlapCase>& cases) {
  for (const OverlapCase& one : cases) {
    for (const schedules::Comm comm : comms_of(one)) plan_of(flags, comm, one.replicas);
  }
}

}  // namespace

int run_overlaps(const OverlapFlags& flags, const Print& print) {
  const std::vector<OverlapCase> cases = cases_of(flags);
  check_algorithm(flags, cases);
  if (!flags.trace_file.empty() && cases.size() != 1) {
    throw core::usage_error("--trace " + flags.trace_file + ": there are " + std::to_string(cases.size()) +
                            " rows; allowed: one");
  }
  std::optional<core::RecordWriter> writer;
  if (!flags.json_file.empty()) writer.emplace(flags.json_file);
  const core::RunRecord run = overlap_run_record(flags);
  if (writer) writer->write(run);
  print(overlap_heading_text(flags));
  for (const OverlapCase& one : cases) {
    const OverlapResult result = run_overlap(flags, one);
    print(overlap_row_text(one, result));
    if (writer) writer->write(overlap_record(run, flags, one, result));
    if (flags.trace_file.empty()) continue;
    write_file(flags.trace_file, trace_text(result.step, result.timeline, result.emulation));
  }
  if (writer) writer->commit();
  return 0;
}

int overlap_main(int argc, char** argv) {
  return exit_status_of("overlap_perf", [&] {
    const auto parsed = parse_overlap_flags(argc, argv);
    if (const auto* help = std::get_if<sweep::HelpRequested>(&parsed)) {
      to_stdout(help->text);
      return 0;
    }
    return run_overlaps(std::get<OverlapFlags>(parsed), to_stdout);
  });
}

}  // namespace lockstep::pipeline
