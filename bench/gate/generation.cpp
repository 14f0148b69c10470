#include "bench/gate/generation.h"

#include "collectives/algorithms/algorithm.h"
#include "collectives/plan/check.h"
#include "collectives/plan/lower.h"
#include "core/error.h"
#include "schedules/catalogue.h"
#include "schedules/check.h"

namespace lockstep::gate {
namespace {

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

}  // namespace

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
    if (!schedules::misfit_of(entry, shape).empty()) continue;
    const std::string name(entry.name);
    cases.push_back(
        {"schedule/" + name + "/ranks:" + std::to_string(kRanks) + "/microbatches:" + std::to_string(kMicrobatches),
         [name, shape] { make_schedule(name, shape); }});
  }
  return cases;
}

}  // namespace lockstep::gate
