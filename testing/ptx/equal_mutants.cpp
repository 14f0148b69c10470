#include "testing/ptx/equal_mutants.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/options.h"
#include "testing/ptx/mutant_runs.h"

namespace lockstep::ptx {

bool EqualMutants::contain(const Mutant& mutant) const {
  return mutant.mutation.kind == kind && mutant.entry.find(entry) != std::string::npos &&
         (mutant.mutation.what + ", " + mutant.place).find(place) != std::string::npos;
}

std::vector<EqualMutants> read_equal_mutants(const std::string& path) {
  std::vector<EqualMutants> all;
  if (path.empty()) return all;
  const std::string text = core::text_of_file(path, "lines KIND | ENTRY | PLACE | WHY", "--equal " + path);
  int number = 0;
  for (const std::string_view line : core::split(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string_view> parts = core::split(line, '|');
    if (parts.size() != 4 || parts[0].empty() || parts[3].empty()) {
      throw core::Error(core::Failure::usage,
                        fmt::format("--equal {}:{}: '{}'; allowed: KIND | ENTRY | PLACE | WHY", path, number, line));
    }
    all.push_back({std::string(parts[0]), std::string(parts[1]), std::string(parts[2]), std::string(parts[3])});
  }
  return all;
}

}  // namespace lockstep::ptx
