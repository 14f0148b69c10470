// ptx_check run: every case whose name contains a text, and from them the table of entries.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "testing/ptx/case_runs.h"

namespace lockstep::ptx {

int run_cases(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> cases = device_cases(settings.elems);
  const std::vector<CaseRun> runs = run_all(library, cases, settings);
  const Table table = table_of(runs);
  if (settings.cases.empty()) print_missing(library, table);
  if (!settings.table.empty()) write_table(settings.table, table);
  double cpu_s = 0;
  for (const CaseRun& run : runs) cpu_s += run.result.cpu_s;
  const auto wrong = std::count_if(runs.begin(), runs.end(), [](const CaseRun& run) { return !run.right(); });
  std::printf("%zu cases, %td wrong; %zu entries ran; %.1f s of CPU\n", runs.size(), wrong, table.size(), cpu_s);
  return wrong == 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
