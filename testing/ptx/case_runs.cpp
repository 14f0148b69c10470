#include "testing/ptx/case_runs.h"

#include <cstdio>
#include <map>
#include <string>

namespace lockstep::ptx {

std::vector<CaseRun> run_all(Library& library, const std::vector<DeviceCase>& cases, const Settings& settings) {
  std::vector<Job> jobs;
  std::vector<CaseRun> runs;
  for (const DeviceCase& one : cases) {
    if (one.name.find(settings.cases) == std::string::npos || one.most_elems <= settings.above) continue;
    jobs.push_back({.device_case = &one, .options = {.seed = settings.seed}});
    runs.push_back({.device_case = &one});
  }
  run_apart(library, jobs, settings.workers, [&](std::size_t index, const Result& result) {
    runs[index].result = result;
    print_result(runs[index].device_case->name, result);
  });
  return runs;
}

Table table_of(const std::vector<CaseRun>& runs) {
  std::map<std::string, std::vector<RightCase>> of_entries;
  for (const CaseRun& run : runs) {
    if (!run.right()) continue;
    for (const auto& [entry, counts] : run.result.counts) {
      of_entries[entry].push_back({run.device_case->name, run.result.warp_instructions()});
    }
  }
  Table table;
  for (const auto& [entry, of_entry] : of_entries) table[entry] = cases_for(of_entry);
  return table;
}

std::size_t print_missing(const Library& library, const Table& table) {
  std::size_t missing = 0;
  for (const std::string& name : library.entry_names()) {
    if (table.count(name) > 0) continue;
    std::printf("not run  %s %s\n", library.file_of(name).c_str(), name.c_str());
    ++missing;
  }
  return missing;
}

}  // namespace lockstep::ptx
