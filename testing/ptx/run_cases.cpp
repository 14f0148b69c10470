// ptx_check run: every case whose name contains a text, and from them the table of entries. Entries that some of the
// cases do not run keep theirs.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "testing/ptx/case_runs.h"

namespace lockstep::ptx {

namespace {

// The table without entries that the kernels no longer have.
Table entries_of(const Library& library, Table table) {
  const std::vector<std::string> names = library.entry_names();
  const std::set<std::string> known(names.begin(), names.end());
  std::erase_if(table, [&](const auto& entry) { return known.count(entry.first) == 0; });
  return table;
}

}  // namespace

int run_cases(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> cases = device_cases(settings.elems);
  const std::vector<CaseRun> runs = run_all(library, cases, settings);
  Table table = table_of(runs);
  if (!settings.cases.empty() && !settings.table.empty()) table.merge(entries_of(library, read_table(settings.table)));
  print_missing(library, table);
  if (!settings.table.empty()) write_table(settings.table, table);
  double cpu_s = 0;
  for (const CaseRun& run : runs) cpu_s += run.result.cpu_s;
  const auto wrong = std::count_if(runs.begin(), runs.end(), [](const CaseRun& run) { return !run.right(); });
  std::printf("%zu cases, %td wrong; %zu entries ran; %.1f s of CPU\n", runs.size(), wrong, table.size(), cpu_s);
  return wrong == 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
