// generation_bench [--filter REGEX] --serve: a worker that makes, checks and lowers plans and schedules
// (bench/gate/generation.h), for ci/gate.py, which counts instructions or times it.
#include <algorithm>
#include <cstdio>
#include <regex>
#include <string>
#include <vector>

#include "bench/gate/generation.h"
#include "bench/serve/calls.h"
#include "bench/serve/orders.h"
#include "core/error.h"

namespace {

namespace core = lockstep::core;
namespace gate = lockstep::gate;
namespace serve = lockstep::serve;

// The cases that a regular expression finds; all of them without one.
std::vector<gate::GenerationCase> chosen_cases(int argc, const char* const* argv) {
  const bool filters = argc == 4 && std::string(argv[1]) == "--filter";
  if ((argc != 2 && !filters) || std::string(argv[argc - 1]) != "--serve") {
    throw core::usage_error("wrong arguments; allowed: [--filter REGEX] --serve");
  }
  std::vector<gate::GenerationCase> cases = gate::generation_cases();
  if (!filters) return cases;
  try {
    const std::regex wanted(argv[2]);
    const auto is_unwanted = [&](const gate::GenerationCase& one) { return !std::regex_search(one.name, wanted); };
    cases.erase(std::remove_if(cases.begin(), cases.end(), is_unwanted), cases.end());
  } catch (const std::regex_error& error) {
    throw core::usage_error("--filter " + std::string(argv[2]) + ": " + error.what() +
                            "; allowed: a regular expression");
  }
  if (!cases.empty()) return cases;
  throw core::usage_error("--filter " + std::string(argv[2]) +
                          ": no such case; allowed: what finds a name of plan/... or schedule/...");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<gate::GenerationCase> cases = chosen_cases(argc, argv);
    std::vector<std::string> names;
    for (const gate::GenerationCase& one : cases) names.push_back(one.name);
    serve::Orders orders("generation_bench", names);
    serve::serve(orders,
                 [&](std::size_t index, std::int64_t calls) { return serve::us_of_calls(calls, cases[index].run); });
    return 0;
  } catch (const core::Error& error) {
    std::fprintf(stderr, "generation_bench: %s\n", error.what());
    return error.exit_status();
  }
}
