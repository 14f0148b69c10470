// ptx_check launch: runs launches from files, and counts them.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/error.h"
#include "core/output_file.h"
#include "testing/ptx/commands.h"
#include "testing/ptx/launch_record.h"

namespace lockstep::ptx {

namespace {

namespace fs = std::filesystem;

LaunchOutcome outcome_of(Library& library, const LaunchRecord& record, const Settings& settings) {
  try {
    return run_record(library, record, {.seed = settings.seed, .steady = true});
  } catch (const Fault& fault) {
    return {.errors = fault.what(), .runs = {}};
  }
}

}  // namespace

int run_launches(Library& library, const Settings& settings) {
  std::vector<fs::path> paths;
  for (const auto& file : fs::directory_iterator(library.folder())) {
    const std::string name = file.path().filename().string();
    if (file.path().extension() == ".json" && name.find(settings.cases) != std::string::npos) {
      paths.push_back(file.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) throw core::usage_error(library.folder() + ": has no launch's record (.json)");
  const RunLine run = run_line(settings.seed);
  std::string lines = run.line + "\n";
  int wrong = 0;
  for (const fs::path& path : paths) {
    const LaunchRecord record = read_record(path.string(), library);
    const LaunchOutcome outcome = outcome_of(library, record, settings);
    wrong += outcome.errors.empty() ? 0 : 1;
    std::printf("%-8s %s%s%s\n", outcome.errors.empty() ? "right" : "WRONG", path.stem().c_str(),
                outcome.errors.empty() ? "" : ": ", outcome.errors.c_str());
    if (settings.json.empty() || outcome.runs.launches == 0) continue;
    const auto entry = library.entry(record.launch.kernel);
    const auto code = compiled(library.path_of(name_without_hashes(entry->name)), {entry->name});
    lines += count_line(run.run, record.work, *entry, outcome.runs, code.at(entry->name)) + "\n";
  }
  if (!settings.json.empty()) {
    core::AtomicFile file(settings.json);
    file.write(lines);
    file.commit();
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
