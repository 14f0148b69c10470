#include "bench/experts/program.h"

#include <vector>

#include "bench/experts/records.h"
#include "bench/experts/run.h"
#include "bench/experts/text.h"
#include "core/error.h"

namespace lockstep::experts_bench {

int run_experts(const ExpertsFlags& flags, const program::Print& print) {
  core::RecordWriter writer(flags.json_file);
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  print(heading_text(flags));
  int rows = 0;
  int wrong_rows = 0;
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& one : cases) {
    const Result result = run_case(flags, one);
    print(row_text(flags, one, result));
    if (result.energy || &one == &cases.back()) print(result.energy_text);
    if (writer.is_open()) writer.write(experts_record(run, flags, one, result));
    ++rows;
    wrong_rows += result.is_wrong() ? 1 : 0;
  }
  print(ending_text(rows, wrong_rows));
  writer.commit();
  return wrong_rows > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::experts_bench
