// ptx_check run: every case whose name contains a text, and from them the table of entries.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "testing/ptx/apart.h"
#include "testing/ptx/commands.h"
#include "testing/ptx/entry_table.h"

namespace lockstep::ptx {
namespace {

struct Sum {
  int wrong = 0;
  double cpu_s = 0;
  std::map<std::string, std::vector<RightCase>> right;  // by entry
};

// Prints a line for each case.
Sum run_all(Library& library, const std::vector<Job>& jobs, int workers) {
  Sum sum;
  run_apart(library, jobs, workers, [&](std::size_t index, const Result& result) {
    const std::string& name = jobs[index].device_case->name;
    print_result(name, result);
    sum.cpu_s += result.cpu_s;
    if (!result.errors.empty()) {
      ++sum.wrong;
      return;
    }
    for (const auto& [entry, counts] : result.counts) sum.right[entry].push_back({name, result.warp_instructions()});
  });
  return sum;
}

std::vector<Job> jobs_of(const std::vector<DeviceCase>& cases, const Settings& settings) {
  std::vector<Job> jobs;
  for (const DeviceCase& one : cases) {
    if (one.name.find(settings.cases) == std::string::npos || one.most_elems <= settings.above) continue;
    jobs.push_back({.device_case = &one, .options = {.seed = settings.seed}});
  }
  return jobs;
}

// If only some cases ran, entries keep those that they had, the cheapest first; entries that are gone are left out.
Table updated(const Library& library, const Table& table, const Settings& settings) {
  if (settings.cases.empty()) return table;
  const Table before = read_table(settings.table);
  Table all;
  for (const std::string& entry : library.entry_names()) {
    for (const Table* some : {&before, &table}) {
      const auto found = some->find(entry);
      if (found == some->end()) continue;
      for (const std::string& name : found->second) {
        std::vector<std::string>& names = all[entry];
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return all;
}

}  // namespace

int run_cases(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> cases = device_cases(settings.elems);
  const std::vector<Job> jobs = jobs_of(cases, settings);
  const Sum sum = run_all(library, jobs, settings.workers);
  Table table;
  for (const auto& [entry, of_entry] : sum.right) table[entry] = cases_for(of_entry);
  if (!settings.table.empty()) {
    table = updated(library, table, settings);
    write_table(settings.table, table);
    for (const std::string& name : library.entry_names()) {
      if (table.count(name) == 0) std::printf("no case  %s %s\n", library.file_of(name).c_str(), name.c_str());
    }
  }
  std::printf("%zu cases, %d wrong; %zu entries in the table; %.1f s of CPU\n", jobs.size(), sum.wrong, table.size(),
              sum.cpu_s);
  return sum.wrong == 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
