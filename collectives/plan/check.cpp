#include "collectives/plan/check.h"

#include <fmt/format.h>

#include "collectives/plan/check_parts.h"
#include "collectives/plan/text.h"
#include "core/error.h"

namespace lockstep::plan {

std::string Problem::text() const {
  if (where.rank < 0) return what;
  if (where.lane < 0) return fmt::format("rank {}: {}", where.rank, what);
  return fmt::format("rank {} lane {} step {}: {}", where.rank, where.lane, where.step, what);
}

std::string CheckResult::text() const {
  if (ok()) return "ok";
  std::string lines;
  for (const Problem& problem : problems) lines += (lines.empty() ? "" : "\n") + problem.text();
  return lines;
}

Contents::Contents(const Plan& plan) : ids_(plan) {
  std::size_t chunks = 0;
  for (int id = 0; id < ids_.num_steps(); ++id) {
    first_.push_back(chunks);
    chunks += static_cast<std::size_t>(chunks_of(step_at(plan, ids_.place(id))));
  }
  moved_.resize(chunks);
}

namespace {

void run_parts(const Plan& plan, const CheckOptions& options, Contents& contents, Problems& problems) {
  if (options.capacity < 0) problems.add({}, fmt::format("capacity is {}, must be at least 0", options.capacity));
  check_shape(plan, problems);
  if (!problems.empty()) return;
  const StepIds ids(plan);
  const Messages messages = match_messages(plan, ids);
  check_messages(plan, ids, messages, problems);
  const Locations locations(plan, options.in_place);
  check_races(plan, ids, locations, problems);
  if (!problems.empty()) return;
  contents = Contents(plan);
  check_run(plan, ids, messages, locations, options, contents, problems);
}

// Puts the step's text, as in "send input[3] -> 1: ", in front of each problem.
void name_steps(const Plan& plan, std::vector<Problem>& problems) {
  for (Problem& problem : problems) {
    if (problem.where.step >= 0) problem.what = to_text(step_at(plan, problem.where)) + ": " + problem.what;
  }
}

}  // namespace

CheckResult check(const Plan& plan, const CheckOptions& options) {
  CheckResult result;
  Problems problems;
  run_parts(plan, options, result.contents, problems);
  result.problems = problems.take();
  name_steps(plan, result.problems);
  if (!result.ok()) result.contents = {};
  return result;
}

Contents contents_of(const Plan& plan, const CheckOptions& options) {
  CheckResult result = check(plan, options);
  LOCKSTEP_CHECK(result.ok(), fmt::format("plan {} {} for {} ranks is wrong: {}", name_of(plan.kind), plan.algorithm,
                                          plan.num_ranks, result.text()));
  return std::move(result.contents);
}

}  // namespace lockstep::plan
