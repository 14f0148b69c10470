#include "bench/collective_perf/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "collectives/backends/backend.h"
#include "collectives/plan/check.h"
#include "collectives/plan/text.h"
#include "collectives/transports/local_world.h"
#include "core/error.h"
#include "core/options.h"

namespace lockstep::sweep {
namespace {

using collectives::Operation;

constexpr std::string_view kPrefix = "plan:";  // no algorithm of the catalogue begins with it

// Text of the error: "mine.plan:12: rank 0 lane 0 step 3: send output[3] -> 2: ..."
core::Error refused(const std::string& file, const plan::StepLines& lines, const plan::CheckResult& result) {
  const plan::Problem& first = result.problems.front();
  std::string place = file;
  if (first.where.step >= 0) {
    const auto& of_lane = lines[static_cast<std::size_t>(first.where.rank)][static_cast<std::size_t>(first.where.lane)];
    place += fmt::format(":{}", of_lane[static_cast<std::size_t>(first.where.step)]);
  }
  const std::size_t others = result.problems.size() - 1;
  return core::usage_error(
      fmt::format("{}: {}{}", place, first.text(), others > 0 ? fmt::format(" (and {} more)", others) : ""));
}

// Algorithm name of the rows: the plan's name, or the file's if the plan has none.
std::string label_of(const plan::Plan& plan, const std::string& file) {
  if (plan.algorithm.starts_with(kPrefix)) return plan.algorithm;
  if (!plan.algorithm.empty()) return std::string(kPrefix) + plan.algorithm;
  std::string name = std::filesystem::path(file).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '\t' || c == '#'; }, '_');
  return std::string(kPrefix) + name;
}

OwnPlan read_own_plan(const std::string& file, const SweepFlags& flags) {
  plan::StepLines lines;
  plan::Plan plan = plan::parse_any_plan(
      core::text_of_file(file, "a file with a plan, as text or MSCCL XML", "--plan " + file), file, &lines);
  if (plan.kind != flags.kind) {
    throw core::usage_error(fmt::format("{}: is a plan of {}; allowed: {}, which {} measures", file,
                                        collectives::name_of(plan.kind), collectives::name_of(flags.kind),
                                        flags.program));
  }
  const plan::CheckResult result = plan::check(plan, {.capacity = plan::kUnbounded});
  if (!result.ok()) throw refused(file, lines, result);
  constexpr int kMostLanes = transports::RankBoard::kMaxLanes;
  if (plan::num_lanes(plan) > kMostLanes) {
    throw core::usage_error(
        fmt::format("{}: has {} lanes; allowed: up to {}", file, plan::num_lanes(plan), kMostLanes));
  }
  plan.algorithm = label_of(plan, file);
  return std::make_shared<const plan::Plan>(std::move(plan));
}

std::optional<plan::Plan> plan_of(const Candidate& candidate, const Operation& operation, int num_ranks) {
  if (candidate.own_plan) return *candidate.own_plan;
  if (backends::asks_library(candidate.algorithm)) return std::nullopt;
  return backends::plan_for(operation, num_ranks, candidate.algorithm);
}

std::string shown(const plan::Plan& plan, const SweepFlags& flags) {
  if (flags.print_msccl) return plan::to_msccl(plan);
  std::string text = flags.print_plan ? plan::to_text(plan) : "";
  if (!flags.draw) return text;
  std::istringstream drawing(plan::draw(plan, plan::contents_of(plan, {.capacity = plan::kUnbounded})));
  std::string lines;
  for (std::string line; std::getline(drawing, line);) lines += (flags.print_plan ? "# " : "") + line + "\n";
  return text + lines;
}

}  // namespace

std::vector<OwnPlan> read_own_plans(const SweepFlags& flags) {
  std::vector<OwnPlan> plans;
  std::set<std::string> names;
  for (const std::string& file : flags.plan_files) {
    plans.push_back(read_own_plan(file, flags));
    if (names.insert(plans.back()->algorithm).second) continue;
    throw core::usage_error(fmt::format("{}: another file of --plan has a plan of the name {}; allowed: another name",
                                        file, plans.back()->algorithm));
  }
  return plans;
}

void check_own_plans(const SweepFlags& flags, const std::vector<OwnPlan>& plans, int num_ranks) {
  for (const OwnPlan& plan : plans) {
    if (plan->num_ranks != num_ranks) {
      throw core::usage_error(fmt::format("--plan: {} is for {} ranks, and there are {}; allowed: --ranks {}",
                                          plan->algorithm, plan->num_ranks, num_ranks, plan->num_ranks));
    }
    if (!collectives::has_root(plan->kind)) continue;
    for (const int root : roots_at(flags, num_ranks)) {
      if (root == plan->root) continue;
      throw core::usage_error(fmt::format("--plan: {} has the root {}, and -r,--root asks for {}; allowed: -r {}",
                                          plan->algorithm, plan->root, root, plan->root));
    }
  }
}

std::string plans_text(const SweepFlags& flags, const std::vector<SessionPlan>& sessions) {
  std::string text;
  std::set<std::string> known;
  for (const SessionPlan& session : sessions) {
    for (std::size_t i = 0; i < session.operations.size(); ++i) {
      for (const Candidate& candidate : session.candidates[i]) {
        const auto plan = plan_of(candidate, session.operations[i], session.num_ranks);
        if (!plan && flags.print_msccl) {
          throw core::usage_error(
              fmt::format("--print-msccl: {} has no plan; allowed: an algorithm", candidate.algorithm));
        }
        const std::string one = plan ? shown(*plan, flags) : fmt::format("# {} has no plan\n", candidate.algorithm);
        if (!known.insert(one).second) continue;
        text += (text.empty() ? "" : "\n") + one;
      }
    }
  }
  if (flags.print_msccl && known.size() != 1) {
    throw core::usage_error(fmt::format(
        "--print-msccl: {} plans would run, and MSCCL XML holds one; allowed: one algorithm (--algo), number of ranks, "
        "size (-b, -e) and root",
        known.size()));
  }
  return text;
}

}  // namespace lockstep::sweep
