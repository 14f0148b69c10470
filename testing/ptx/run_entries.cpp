// ptx_check entries: each entry of the kernels once, in its cheapest case.
#include <cstdio>
#include <set>
#include <vector>

#include "testing/ptx/commands.h"
#include "testing/ptx/entry_table.h"

namespace lockstep::ptx {
namespace {

// Counts what it prints: an entry that the table lacks, and one that the kernels no longer have.
int differences(const Library& library, const Table& table) {
  int problems = 0;
  const std::vector<std::string> names = library.entry_names();
  for (const std::string& entry : names) {
    if (table.count(entry) > 0) continue;
    std::printf("NO CASE  %s: add one, and make the table again: ptx_check run --table\n", entry.c_str());
    ++problems;
  }
  const std::set<std::string> known(names.begin(), names.end());
  for (const auto& [entry, cases] : table) {
    if (known.count(entry) > 0) continue;
    std::printf("GONE     %s: make the table again: ptx_check run --table\n", entry.c_str());
    ++problems;
  }
  return problems;
}

}  // namespace

int run_entries(Library& library, const Settings& settings) {
  const NamedCases cases(device_cases(settings.elems));
  const Table table = read_table(settings.table);
  int problems = differences(library, table);
  std::set<std::string> names(settings.also.begin(), settings.also.end());
  for (const auto& [entry, of_entry] : table) names.insert(of_entry.front());
  std::vector<Job> jobs;
  for (const std::string& name : names) {
    jobs.push_back({.device_case = &cases.at(name), .options = {.seed = settings.seed}});
  }
  std::set<std::string> ran;
  double cpu_s = 0;
  run_apart(library, jobs, settings.workers, [&](std::size_t index, const Result& result) {
    cpu_s += result.cpu_s;
    for (const auto& [entry, counts] : result.counts) ran.insert(entry);
    if (result.errors.empty()) return;
    ++problems;
    print_result(jobs[index].device_case->name, result);
  });
  for (const auto& [entry, of_entry] : table) {
    if (ran.count(entry) > 0) continue;
    std::printf("NOT RUN  %s by %s\n", entry.c_str(), of_entry.front().c_str());
    ++problems;
  }
  std::printf("%zu entries of the kernels in %zu cases: %d problems; %.1f s of CPU\n", ran.size(), jobs.size(),
              problems, cpu_s);
  return problems == 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
