#include "bench/parallel/ddp_program.h"

#include <string>
#include <vector>

#include "bench/parallel/ddp_records.h"
#include "bench/parallel/ddp_run.h"
#include "bench/parallel/ddp_steps.h"
#include "bench/parallel/ddp_text.h"
#include "bench/serve/orders.h"
#include "bench/trainer/text.h"
#include "core/error.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {

namespace {

// Refuses cases that cannot run before anything is printed.
void check(const DdpFlags& flags, const DdpCase& one) {
  if (one.replicas == 1) {
    throw core::usage_error(
        "--dp 1 has nothing to reduce; allowed: 2 to 64; with --transport mpi, start 2 to 64 ranks with mpirun");
  }
  const trainer::TrainOptions options = options_of(flags, one);
  trainer::check_room(options, ddp_steps(options).made);
}

int serve_row(const DdpFlags& flags) {
  const std::vector<DdpCase> cases = ddp_cases(flags);
  serve::check_one(cases.size(), "row");
  check(flags, cases.front());
  serve_ddp(flags, cases.front());
  return 0;
}

}  // namespace

int run_ddp_overlap(const DdpFlags& flags, const program::Print& print) {
  if (flags.step.serve) return serve_row(flags);
  const std::vector<DdpCase> cases = ddp_cases(flags);
  for (const DdpCase& one : cases) check(flags, one);
  const bool tells = program::tells(flags.step.options.mpi);
  core::RecordWriter writer(tells ? flags.step.json_file : "");
  print(mini_train::place_text(options_of(flags, cases.front())));
  print(ddp_heading_text(flags));
  std::vector<DdpResult> results;
  bool wrong = false;
  for (const DdpCase& one : cases) {
    results.push_back(run_ddp(flags, one));
    if (!tells) continue;
    print(ddp_row_text(flags, one, results.back()));
    if (results.back().energy || &one == &cases.back()) print(results.back().energy_text);
    wrong = wrong || !results.back().is_right();
    if (writer.is_open()) write_ddp_records(writer, flags, one, results.back());
  }
  if (!tells) return 0;
  print(ddp_ending_text(cases, results));
  writer.commit();
  return wrong ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::parallel_bench
