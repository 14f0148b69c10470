// generation_bench [--filter REGEX] --serve: a worker that generates, checks and lowers plans and schedules for
// ci/gate.py, which counts instructions or times it.
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "bench/program/program.h"
#include "bench/serve/orders.h"
#include "collectives/algorithms/algorithm.h"
#include "collectives/plan/check.h"
#include "collectives/plan/program.h"
#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/schedule.h"

namespace lockstep {
namespace {

struct GenerationCase {
  std::string name;           // "plan/all_reduce/ring/ranks:8", "schedule/1f1b/ranks:8/microbatches:32"
  std::function<void()> run;  // makes it, checks it, and lowers it
};

constexpr int kRanks = 8;
constexpr std::int32_t kMicrobatches = 32;

void make_plan(const algorithms::Choice& choice) {
  const plan::Plan plan = algorithms::make_plan(choice, kRanks, 0);
  LOCKSTEP_CHECK(plan::check(plan).ok(), choice.label());
  const collectives::Operation operation{.kind = choice.algorithm->kind, .count = 1 << 16};
  LOCKSTEP_CHECK(!plan::lower(plan, operation, {}).ranks.empty(), choice.label());
}

void make_schedule(const std::string& name, const schedules::PipelineShape& shape) {
  const schedules::Schedule schedule = schedules::make_schedule(name, shape);
  LOCKSTEP_CHECK(schedules::check(schedule).empty(), name);
}

// Every algorithm and every schedule of the catalogues that takes such a shape, with its defaults.
std::vector<GenerationCase> generation_cases() {
  std::vector<GenerationCase> cases;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    const algorithms::Choice choice = algorithms::parse_choice(algorithm.kind, algorithm.name);
    if (algorithms::refusal(choice, kRanks, 0) || algorithm.kind == collectives::Kind::all_to_all_v) continue;
    cases.push_back({"plan/" + std::string(collectives::name_of(algorithm.kind)) + "/" + choice.label() +
                         "/ranks:" + std::to_string(kRanks),
                     [choice] { make_plan(choice); }});
  }
  for (const schedules::CatalogueEntry& entry : schedules::catalogue()) {
    const schedules::PipelineShape shape{kRanks, kMicrobatches, entry.takes_chunks ? 2 : 1};
    if (!schedules::why_invalid(entry, shape).empty()) continue;
    const std::string name(entry.name);
    cases.push_back(
        {"schedule/" + name + "/ranks:" + std::to_string(kRanks) + "/microbatches:" + std::to_string(kMicrobatches),
         [name, shape] { make_schedule(name, shape); }});
  }
  return cases;
}

struct GenerationFlags {
  std::vector<GenerationCase> cases = generation_cases();
};

void choose_cases(GenerationFlags& flags, const program::FlagValue& filter) {
  const auto is_wanted = filter.parsed_by(program::name_filter);
  std::erase_if(flags.cases, [&](const GenerationCase& entry) { return !is_wanted(entry.name); });
  if (flags.cases.empty())
    throw filter.refused("no such case", "an expression that matches a name plan/... or schedule/...");
}

const std::array kFlags{
    program::FlagOf<GenerationFlags>{"--filter", "", "regular expression for the names of cases [all cases]",
                                     choose_cases},
};

std::vector<GenerationCase> chosen_cases(int argc, const char* const* argv) {
  bool serves = false;
  program::CommandLine line(
      "generation_bench: generates, checks and lowers plans and schedules, as a worker of ci/gate.py.");
  declare_all(line, kFlags, "Cases");
  line.add_switch("--serve", serves, "run the cases requested on standard input (bench/serve/orders.h); required",
                  "Cases");
  line.parse(argc, argv);
  if (!serves) throw core::usage_error("--serve is missing; allowed: [--filter REGEX] --serve");
  GenerationFlags flags;
  read_all(line, kFlags, flags);
  return flags.cases;
}

int serve_generation(int argc, char** argv) {
  const std::vector<GenerationCase> cases = chosen_cases(argc, argv);
  std::vector<std::string> names;
  for (const GenerationCase& bench_case : cases) names.push_back(bench_case.name);
  serve::serve("generation_bench", names,
               [&](std::size_t index, std::int64_t calls) { return serve::us_of_calls(calls, cases[index].run); });
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("generation_bench", [&] { return lockstep::serve_generation(argc, argv); });
}
