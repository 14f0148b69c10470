// ptx_check counts: what each kernel does in one case, and the registers that ptxas gave it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <set>

#include "core/error.h"
#include "core/output_file.h"
#include "testing/ptx/apart.h"
#include "testing/ptx/commands.h"
#include "testing/ptx/count_cases.h"
#include "testing/ptx/count_record.h"

namespace lockstep::ptx {
namespace {

std::vector<CountCase> cases_with(const std::string& part) {
  std::vector<CountCase> cases = count_cases();
  std::erase_if(cases, [&](const CountCase& one) { return one.device_case.name.find(part) == std::string::npos; });
  if (cases.empty()) throw core::Error(core::Failure::usage, "--cases " + part + ": no case has this in its name");
  return cases;
}

// Runs each case in a process of its own; the entries that each launched. Throws an Error for the first that fails.
std::vector<std::map<std::string, EntryRuns>> runs_of(Library& library, const std::vector<CountCase>& cases,
                                                      const Settings& settings, double& cpu_s) {
  std::vector<Job> jobs;
  for (const CountCase& one : cases) {
    jobs.push_back({.device_case = &one.device_case,
                    .options = {.seed = settings.seed, .check_races = false, .steady = true},
                    .limit_s = 600});
  }
  std::vector<std::map<std::string, EntryRuns>> all(cases.size());
  std::string errors;
  run_apart(library, jobs, settings.workers, [&](std::size_t index, const Result& result) {
    cpu_s += result.cpu_s;
    all[index] = result.runs;
    if (!result.errors.empty()) errors = cases[index].device_case.name + ": " + result.errors;
  });
  if (!errors.empty()) throw core::Error(core::Failure::wrong_data, errors);
  return all;
}

// Compiles the entries, as many files at a time as there are workers.
std::map<std::string, CompiledEntry> compiled_of(Library& library, int workers,
                                                 const std::vector<std::map<std::string, EntryRuns>>& all) {
  std::map<std::string, std::set<std::string>> names;  // by file
  for (const auto& runs : all) {
    for (const auto& [name, of_entry] : runs) names[library.path_of(name)].insert(library.entry(name)->name);
  }
  std::map<std::string, CompiledEntry> result;
  std::mutex mutex;
  const auto work = [&] {
    while (true) {
      std::unique_lock lock(mutex);
      if (names.empty()) return;
      const auto file = names.extract(names.begin());
      lock.unlock();
      auto of_file = compiled(file.key(), {file.mapped().begin(), file.mapped().end()});
      lock.lock();
      result.merge(of_file);
    }
  };
  std::vector<std::future<void>> threads;
  for (int i = 0; i < workers; ++i) threads.push_back(std::async(std::launch::async, work));
  for (std::future<void>& thread : threads) thread.get();
  return result;
}

DeclaredWork work_of(const CountCase& one) {
  DeclaredWork work{.kernel = one.kernel_case.kernel,
                    .shape = one.kernel_case.shape,
                    .dtype = std::string(core::short_name_of(one.kernel_case.dtype)),
                    .choice = one.choice,
                    .bytes = one.kernel_case.cost.bytes,
                    .flops = one.kernel_case.cost.flops};
  for (const auto& operand : one.kernel_case.operands) work.elems = std::max(work.elems, operand.elems);
  return work;
}

}  // namespace

int run_counts(Library& library, const Settings& settings) {
  const std::vector<CountCase> cases = cases_with(settings.cases);
  double cpu_s = 0;
  const auto all = runs_of(library, cases, settings, cpu_s);
  const auto code = compiled_of(library, settings.workers, all);
  const RunLine run = run_line(settings.seed);
  std::string lines = run.line + "\n";
  std::size_t entries = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const auto& [name, runs] : all[i]) {
      const auto entry = library.entry(name);
      lines += count_line(run.run, work_of(cases[i]), *entry, runs, code.at(entry->name)) + "\n";
      ++entries;
    }
  }
  if (settings.json.empty()) {
    std::fputs(lines.c_str(), stdout);
  } else {
    core::AtomicFile file(settings.json);
    file.write(lines);
    file.commit();
    std::printf("%zu cases, %zu entries counted; %.1f s of CPU; %s\n", cases.size(), entries, cpu_s,
                settings.json.c_str());
  }
  return 0;
}

}  // namespace lockstep::ptx
