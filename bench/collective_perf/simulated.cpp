#include "bench/collective_perf/session.h"

#include <map>
#include <string>
#include <utility>

#include "collectives/algorithms/algorithm.h"
#include "core/device.h"
#include "core/error.h"
#include "core/options.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"

namespace lockstep::sweep {
namespace {

using collectives::Operation;
using simulator::PlanTime;

constexpr backends::Backend kBackend{.name = kSimulated,
                                     .executor = kSimulated,
                                     .has_library = false,
                                     .absence = [] { return std::optional<std::string>(); },
                                     .run = nullptr};

// Rings have the most steps: 4 per rank and peer.
void check_plan_memory(int num_ranks) {
  const std::int64_t ranks = num_ranks;
  const std::int64_t needed = 4 * ranks * ranks * static_cast<std::int64_t>(sizeof(plan::Step));
  const auto available = static_cast<std::int64_t>(core::available_host_bytes());
  if (needed <= available / 10 * 9) return;
  throw core::usage_error("--ranks " + std::to_string(num_ranks) + ": plans for that many ranks may take " +
                          core::format_size(needed) + " of memory; available: " + core::format_size(available));
}

// Plans of a session, each compiled once for all sizes.
class Simulation {
 public:
  explicit Simulation(const SessionPlan& session)
      : session_(session), machine_(simulator::load_machine(session.flags.machine)) {}

  RowResult result_of(const Operation& operation, const Candidate& candidate) {
    RowResult result{record_of(operation, session_.num_ranks), operation};
    result.algorithm = label_of(candidate);
    result.executor = kSimulated;
    result.iterations = 1;
    result.time_us = static_cast<double>(time_of(operation, candidate).play_ps(operation)) / 1e6;
    result.samples_us = {*result.time_us};
    set_bandwidths(result, session_.num_ranks);
    if (session_.flags.explain) result.facts = facts_of(plan_of(operation, candidate), operation, nullptr);
    return result;
  }

 private:
  std::string label_of(const Candidate& candidate) const {
    return candidate.own_plan ? candidate.algorithm : choice_of(candidate).label();
  }

  // Groups of hierarchical algorithms are nodes unless the user chooses others.
  algorithms::Choice choice_of(const Candidate& candidate) const {
    algorithms::Choice choice = algorithms::parse_choice(session_.flags.kind, candidate.algorithm);
    const auto group = choice.options.find("group");
    const simulator::NetworkLevel& inner = machine_.levels.front();
    const std::int32_t node = inner.torus ? inner.torus->columns : inner.ranks;
    const bool is_open = group != choice.options.end() && group->second == 0;
    if (is_open && session_.num_ranks % node == 0) group->second = node;
    return choice;
  }

  const PlanTime& time_of(const Operation& operation, const Candidate& candidate) {
    const auto key = std::pair(candidate.algorithm, operation.root);
    const auto known = times_.find(key);
    if (known != times_.end()) return known->second;
    return times_.emplace(key, PlanTime(plan_of(operation, candidate), machine_)).first->second;
  }
  plan::Plan plan_of(const Operation& operation, const Candidate& candidate) const {
    if (candidate.own_plan) return *candidate.own_plan;
    return algorithms::make_plan(choice_of(candidate), session_.num_ranks, operation.root);
  }

  const SessionPlan& session_;
  const simulator::Machine machine_;
  std::map<std::pair<std::string, int>, PlanTime> times_;  // by algorithm and root
};

}  // namespace

const backends::Backend& simulated_backend() {
  return kBackend;
}

void run_simulated(const SessionPlan& session, const Sink& sink) {
  check_plan_memory(session.num_ranks);
  Simulation simulation(session);
  sink.started({});
  for (std::size_t i = 0; i < session.operations.size(); ++i) {
    for (const Candidate& candidate : session.candidates[i]) {
      sink.running(session.operations[i], candidate);
      Comparison comparison{candidate.backend, candidate.algorithm,
                            simulation.result_of(session.operations[i], candidate), std::nullopt};
      if (has_in_place(session.flags.kind)) {
        comparison.in_place = comparison.out_of_place;
        comparison.in_place->operation.in_place = true;
        comparison.in_place->in_place = true;
      }
      sink.measured(comparison);
    }
  }
}

}  // namespace lockstep::sweep
