// Executes the compiled PTX of the GPU kernels without a GPU.
//   ptx_check FOLDER run [PATTERN]       runs every case whose name contains PATTERN; a line for each
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

#include "testing/ptx/apart.h"

namespace lockstep::ptx {
namespace {

int run(Library& library, const std::string& pattern, std::uint64_t seed, std::int64_t most_elems) {
  const std::vector<DeviceCase> all = device_cases(most_elems);
  std::vector<Job> jobs;
  for (const DeviceCase& one : all) {
    if (one.name.find(pattern) == std::string::npos) continue;
    jobs.push_back({.device_case = &one, .options = {.seed = seed, .check_races = std::getenv("NORACE") == nullptr}});
  }
  int wrong = 0;
  double cpu_s = 0;
  std::map<std::string, int> cases;
  run_apart(library, jobs, 2, [&](std::size_t index, const Result& result) {
    cpu_s += result.cpu_s;
    if (!result.errors.empty()) ++wrong;
    for (const auto& [name, counts] : result.counts) ++cases[name];
    std::printf("%-8s %6.2f s  %s%s%s\n", result.errors.empty() ? "right" : "WRONG", result.cpu_s,
                jobs[index].device_case->name.c_str(), result.errors.empty() ? "" : ": ",
                result.errors.substr(0, 500).c_str());
    std::fflush(stdout);
  });
  std::size_t not_run = 0;
  for (const std::string& name : library.entry_names()) {
    if (cases.count(name) == 0) {
      ++not_run;
      if (pattern.empty()) std::printf("not run  %s %s\n", library.file_of(name).c_str(), name.c_str());
    }
  }
  std::printf("%zu cases, %d wrong; %zu entries ran, %zu did not; %.1f s of CPU\n", jobs.size(), wrong, cases.size(),
              not_run, cpu_s);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::ptx

int main(int argc, char** argv) {
  try {
    auto library = lockstep::ptx::Library::read(argc > 1 ? argv[1] : "");
    return lockstep::ptx::run(library, argc > 3 ? argv[3] : "", argc > 4 ? std::stoull(argv[4]) : 1,
                              argc > 5 ? std::stoll(argv[5]) : 200'000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ptx_check: %s\n", error.what());
    return 2;
  }
}
