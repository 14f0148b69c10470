#include "bench/parallel/ddp_program.h"

#include <optional>
#include <vector>

#include "bench/parallel/ddp_records.h"
#include "bench/parallel/ddp_run.h"
#include "bench/parallel/ddp_text.h"
#include "core/error.h"

namespace lockstep::parallel_bench {

int run_ddp_overlap(const DdpFlags& flags, const pipeline::Print& print) {
  const std::vector<DdpCase> cases = ddp_cases(flags);
  for (const DdpCase& one : cases) options_of(flags, one);  // refuses before anything is printed
  std::optional<core::RecordWriter> writer;
  if (!flags.step.json_file.empty()) writer.emplace(flags.step.json_file);
  print(ddp_heading_text(flags));
  std::vector<DdpResult> results;
  bool wrong = false;
  for (const DdpCase& one : cases) {
    results.push_back(run_ddp(flags, one));
    print(ddp_row_text(flags, one, results.back()));
    wrong = wrong || !results.back().is_right();
    if (writer) write_ddp_records(*writer, flags, one, results.back());
  }
  print(ddp_ending_text(cases, results));
  if (writer) writer->commit();
  return wrong ? static_cast<int>(core::Failure::wrong_data) : 0;
}

int ddp_overlap_main(int argc, char** argv) {
  return pipeline::exit_status_of("ddp_overlap_bench", [&] {
    const auto parsed = parse_ddp_flags(argc, argv);
    if (const auto* help = std::get_if<sweep::HelpRequested>(&parsed)) {
      pipeline::to_stdout(help->text);
      return 0;
    }
    return run_ddp_overlap(std::get<DdpFlags>(parsed), pipeline::to_stdout);
  });
}

}  // namespace lockstep::parallel_bench
