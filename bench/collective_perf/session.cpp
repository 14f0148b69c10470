#include "bench/collective_perf/session.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bench/serve/orders.h"
#include "collectives/libraries/nccl_member.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/wait.h"

namespace lockstep::sweep {
namespace {

using collectives::Operation;

// Number of samples that -n iterations need; with -G, multiplied by the launches of the graph.
std::size_t samples_wanted(const SweepFlags& flags, const Trial& trial) {
  const int a_sample = trial.iterations_per_sample();
  const int samples = (flags.iterations + a_sample - 1) / a_sample;
  return static_cast<std::size_t>(samples) * static_cast<std::size_t>(std::max(flags.device.graph_launches, 1));
}

void* allocate_pool(backends::Endpoint& endpoint, std::size_t size_bytes) {
  return endpoint.buffers ? endpoint.buffers->allocate(size_bytes) : endpoint.device.allocate(size_bytes);
}

backends::Endpoint& endpoint_of(const backends::Backend& backend, const SessionPlan& session,
                                std::span<backends::Endpoint* const> endpoints) {
  const auto at = std::find(session.backends.begin(), session.backends.end(), &backend);
  return *endpoints[static_cast<std::size_t>(at - session.backends.begin())];
}

// One trial of a table row, and its results.
struct Placement {
  Candidate candidate;
  Operation operation;
  std::unique_ptr<Trial> trial;
};

class Session {
 public:
  Session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints, const Sink& sink)
      : session_(session),
        flags_(session.flags),
        endpoints_(endpoints),
        endpoint_(*endpoints.front()),
        sink_(sink),
        is_rank0_(endpoint_.world.rank() == 0),
        before_pool_bytes_(free_bytes()),
        pool_(static_cast<std::byte*>(allocate_pool(endpoint_, session_bytes(session)))),
        after_pool_bytes_(free_bytes()),
        start_(core::Clock::now()) {}
  // Buffers that peers know are released by all ranks together, unless a rank has failed.
  ~Session() {
    if (!endpoint_.buffers) endpoint_.device.release(pool_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void run() {
    if (flags_.explain && flags_.link.empty()) measure_models();
    const std::vector<DeviceLine> places = places_of_ranks(endpoint_, *session_.backends.front());
    if (is_rank0_) sink_.started(places);
    for (std::size_t i = 0; i < session_.operations.size(); ++i) run_operation(i);
    if (const auto memory = gpu_memory(); memory && is_rank0_) sink_.ended(*memory);
    if (endpoint_.buffers) endpoint_.buffers->release(pool_);
  }

 private:
  bool wants_in_place(const Operation& operation) const { return has_in_place(operation.kind) && !flags_.race; }
  void measure_models() {
    for (const auto* backend : session_.backends) {
      if (!backend->has_plans()) continue;
      models_[backend] =
          measure_cost_model(endpoint_of(*backend, session_, endpoints_), pool_, rounds_, trial_options(session_));
    }
  }

  void tell_running(const Operation& operation, const Candidate& candidate) const {
    if (is_rank0_) sink_.running(operation, candidate);
  }

  Placement prepare(const Operation& operation, const Candidate& candidate) {
    backends::Endpoint& endpoint = endpoint_of(*candidate.backend, session_, endpoints_);
    auto trial = std::make_unique<Trial>(endpoint, operation, sweep::prepare(endpoint, operation, candidate), pool_,
                                         rounds_, trial_options(session_));
    trial->warm_up(flags_.warmup_iterations);
    return {candidate, operation, std::move(trial)};
  }

  // Seconds of the session's budget that remain, shared evenly among the operations left; 0 without a budget.
  double budget_of_operation_s(std::size_t index) const {
    if (session_.time_budget_s <= 0) return 0;
    constexpr double kLeastBudgetS = 1e-3;  // a budget that is used up must not become 0, which means no budget
    const double used_s = core::us_between(start_, core::Clock::now()) / 1e6;
    const double left_s = std::max(session_.time_budget_s - used_s, kLeastBudgetS);
    return left_s / static_cast<double>(session_.operations.size() - index);
  }

  // Rank 0 decides, as clocks and samples differ between ranks.
  bool rank0_says(bool mine) { return transports::all_gather_value(endpoint_.world, mine ? 1 : 0)[0] != 0; }

  // Collective: all ranks call it together. Returns 0 without -M.
  std::size_t free_bytes() {
    if (!flags_.device.reports_memory) return 0;
    return backends::free_bytes_at_rest(*session_.backends.front(), endpoint_.device, endpoint_.world);
  }

  // Collective: all ranks call it together. Memory that other programs take in the meantime is counted too.
  std::optional<core::GpuMemoryRecord> gpu_memory() {
    if (!flags_.device.reports_memory) return std::nullopt;
    const auto fall = [](std::size_t from, std::size_t to) {
      return static_cast<std::int64_t>(from - std::min(from, to));
    };
    core::GpuMemoryRecord mine{.joining_bytes = 0,
                               .buffer_bytes = fall(before_pool_bytes_, after_pool_bytes_),
                               .taken_bytes = fall(endpoint_.memory.free_at_start_bytes, free_bytes())};
    for (const backends::Endpoint* endpoint : endpoints_) {
      mine.joining_bytes += static_cast<std::int64_t>(endpoint->memory.joining_bytes);
    }
    const auto all = transports::all_gather_value(endpoint_.world, mine);
    return *std::max_element(all.begin(), all.end(),
                             [](const auto& a, const auto& b) { return a.taken_bytes < b.taken_bytes; });
  }

  // The margin exceeds the noise of a few samples on a shared machine, so that one slow sample does not drop the
  // fastest.
  bool has_lost(const std::vector<Placement>& placements, std::size_t index) const {
    constexpr std::size_t kLeastSamples = 5;
    constexpr double kMargin = 1.5;
    const auto& mine = placements[index].trial->measured().samples_us;
    if (mine.size() < kLeastSamples) return false;
    const double mine_us = core::median(mine);
    return std::any_of(placements.begin(), placements.end(), [&](const Placement& rival) {
      const auto& samples = rival.trial->measured().samples_us;
      return samples.size() >= kLeastSamples && core::median(samples) * kMargin < mine_us;
    });
  }

  core::StoppingOptions stopping_options(const Trial& trial, double budget_s) const {
    core::StoppingOptions options;
    options.min_samples = options.max_samples = samples_wanted(flags_, trial);
    if (budget_s <= 0) return options;
    constexpr std::size_t kMostOverIterations = 50;
    options.max_samples *= kMostOverIterations;
    options.wanted_precision = 0.01;
    options.time_budget_us = budget_s * 1e6;
    return options;
  }

  // The samples of a batch are taken at one moment: another program that runs then disturbs all of them. On the host
  // batches are short at first and grow with the row, so that its samples come from six moments or more, which an
  // interval needs (core::estimate). A GPU's batch is as long as it can be, since its ends cost a launch and a wait.
  int most_of_a_batch(const Trial& trial, double budget_s) const {
    constexpr std::size_t kMoments = 6;
    const core::StoppingOptions rule = stopping_options(trial, budget_s);
    const std::size_t before = trial.measured().samples_us.size();
    const std::size_t left = rule.max_samples - before;
    if (session_.on_gpus()) return static_cast<int>(left);
    return static_cast<int>(std::clamp<std::size_t>(std::max(rule.min_samples, before) / kMoments, 1, left));
  }

  // Runs a batch of every placement in rotation, so that drift of the machine affects all alike, until each has enough
  // samples: -n, or, with a time budget, until the median is known to 1 % or the time is used up. A batch ends when
  // every rank has finished it: kernels of two backends, which wait for the other ranks' kernels, are never in flight
  // together.
  void measure_in_turn(std::vector<Placement>& placements, double budget_s) {
    std::vector<core::StoppingRule> rules;
    for (const Placement& placement : placements) rules.emplace_back(stopping_options(*placement.trial, budget_s));
    std::vector<bool> ready(placements.size(), false);
    const auto start = core::Clock::now();
    while (std::find(ready.begin(), ready.end(), false) != ready.end()) {
      for (std::size_t i = 0; i < placements.size(); ++i) {
        if (ready[i]) continue;
        const auto& samples = placements[i].trial->measured().samples_us;
        const std::size_t before = samples.size();
        tell_running(placements[i].operation, placements[i].candidate);
        placements[i].trial->run_batch(most_of_a_batch(*placements[i].trial, budget_s));
        const double elapsed_us = core::us_between(start, core::Clock::now());
        for (std::size_t s = before; s < samples.size() && rules[i].stop() == core::Stop::no; ++s) {
          rules[i].add(samples[s], elapsed_us);
        }
        ready[i] = rank0_says(rules[i].stop() != core::Stop::no || (flags_.race && has_lost(placements, i)));
      }
    }
  }

  // If GPU clocks changed meanwhile, all placements of the operation are measured again, because they alternate. Rank 0
  // checks, and decides for all. Without a budget a repetition takes as long as the first time; with one it takes from
  // the time of the operations to come.
  core::SteadyClocks measure_steadily(std::vector<Placement>& placements, std::size_t index) {
    core::SteadyClocks clocks(is_rank0_ ? sink_.look : core::SteadyClocks::Look{});
    bool again = true;
    while (again) {
      for (Placement& placement : placements) placement.trial->drop_samples();
      clocks.begin();
      measure_in_turn(placements, budget_of_operation_s(index));
      again = session_.on_gpus() && rank0_says(clocks.again());
    }
    return clocks;
  }

  RowResult result_of(const Placement& placement) {
    RowResult result = combine(endpoint_.world, placement.operation, *placement.trial,
                               {flags_.time_of, std::max(flags_.gpus_per_thread, 1)}, placement.trial->checks());
    result.gpu_memory = gpu_memory();
    // Counting a plan takes longer than running it: rank 0 does it, and only if the counts are printed or recorded.
    const bool wanted = is_rank0_ && (flags_.explain || !flags_.json_file.empty());
    const auto& plan = placement.trial->prepared().plan;
    if (wanted && plan) result.facts = explain(*plan, placement);
    return result;
  }

  PlanFacts explain(const plan::Plan& plan, const Placement& placement) const {
    const auto model = models_.find(placement.candidate.backend);
    PlanFacts facts = facts_of(plan, placement.operation, model == models_.end() ? nullptr : &model->second);
    if (flags_.explain && !flags_.link.empty()) {
      predict_on_links(facts, plan, placement.operation, transports::parse_link(flags_.link), machine_cost_,
                       placement.trial->calls_of_a_batch());
    }
    return facts;
  }

  void run_operation(std::size_t index) {
    const Operation& operation = session_.operations[index];
    if (flags_.explain && !flags_.link.empty()) {
      machine_cost_ = measure_machine_cost(endpoint_.world, operation, {pool_, session_bytes(session_)});
    }
    std::vector<Placement> placements;
    for (const Candidate& candidate : session_.candidates[index]) {
      tell_running(operation, candidate);
      placements.push_back(prepare(operation, candidate));
      if (wants_in_place(operation)) placements.push_back(prepare(in_place(operation), candidate));
    }
    const core::SteadyClocks clocks = measure_steadily(placements, index);
    const auto result_at = [&](std::size_t place) {
      RowResult result = result_of(placements[place]);
      result.gpu_states = clocks.after();
      result.gpu_clocks = clocks.record();
      return result;
    };
    std::size_t next = 0;
    for (const Candidate& candidate : session_.candidates[index]) {
      Comparison comparison{candidate.backend, candidate.algorithm, result_at(next++), std::nullopt};
      if (wants_in_place(operation)) comparison.in_place = result_at(next++);
      if (is_rank0_) sink_.measured(comparison);
    }
  }

  const SessionPlan& session_;
  const SweepFlags& flags_;
  const std::span<backends::Endpoint* const> endpoints_;  // [backend]
  backends::Endpoint& endpoint_;  // endpoint of the first backend: world and device are the same for all
  const Sink& sink_;
  const bool is_rank0_;
  const std::size_t before_pool_bytes_;  // free memory of the GPU, with -M
  std::byte* pool_;
  const std::size_t after_pool_bytes_;
  std::uint64_t rounds_ = 0;  // rounds of all trials, which share the pool
  const core::Clock::time_point start_;
  std::map<const backends::Backend*, plan::CostModel> models_;
  MachineCost machine_cost_;  // with emulated links: cost at the current operation
};

}  // namespace

void run_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints, const Sink& sink) {
  Session(session, endpoints, sink).run();
}

namespace {

struct ServedRow {
  collectives::Operation operation;
  Candidate candidate;
  std::string name;
};

std::string name_of_row(const collectives::Operation& operation, const Candidate& candidate, int num_ranks) {
  const std::string op = has_op(operation.kind) ? std::string(core::name_of(operation.op)) + "/" : "";
  return std::string(collectives::name_of(operation.kind)) + "/" + candidate.algorithm + "/" +
         std::string(core::name_of(operation.dtype)) + "/" + op +
         std::to_string(collectives::message_bytes(operation.kind, num_ranks, operation.count, operation.dtype)) +
         "B/ranks:" + std::to_string(num_ranks) + "/" + std::string(candidate.backend->name);
}

std::vector<ServedRow> rows_of(const SessionPlan& session) {
  std::vector<ServedRow> rows;
  for (std::size_t i = 0; i < session.operations.size(); ++i) {
    for (const Candidate& candidate : session.candidates[i]) {
      const collectives::Operation& operation = session.operations[i];
      rows.push_back({operation, candidate, name_of_row(operation, candidate, session.num_ranks)});
    }
  }
  return rows;
}

// Only one row is prepared at a time, as all rows share the session's memory.
class Server {
 public:
  Server(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints)
      : session_(session),
        endpoints_(endpoints),
        rows_(rows_of(session)),
        device_(endpoints.front()->device),
        pool_(static_cast<std::byte*>(device_.allocate(session_bytes(session)))) {}
  ~Server() {
    ready_.reset();
    device_.release(pool_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::vector<ServedRow>& rows() const { return rows_; }

  double us_of_call(std::size_t index, std::int64_t calls) {
    if (!ready_ || ready_index_ != index) make_ready(index);
    return ready_->us_of_call(calls);
  }

 private:
  void make_ready(std::size_t index) {
    const ServedRow& row = rows_[index];
    ready_.reset();
    backends::Endpoint& endpoint = endpoint_of(*row.candidate.backend, session_, endpoints_);
    ready_ = std::make_unique<Trial>(endpoint, row.operation, prepare(endpoint, row.operation, row.candidate), pool_,
                                     rounds_, trial_options(session_));
    ready_->run_batch(kMostCallsOfABatch);
    if (session_.flags.check && ready_->measured().wrong > 0) {
      throw core::Error(core::Failure::wrong_data,
                        row.name + ": " + std::to_string(ready_->measured().wrong) + " elements are wrong");
    }
    ready_index_ = index;
  }

  const SessionPlan& session_;
  const std::span<backends::Endpoint* const> endpoints_;
  const std::vector<ServedRow> rows_;
  core::Device& device_;
  std::byte* const pool_;
  std::uint64_t rounds_ = 0;
  std::unique_ptr<Trial> ready_;
  std::size_t ready_index_ = 0;
};

}  // namespace

void serve_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints) {
  Server server(session, endpoints);
  std::vector<std::string> names;
  for (const ServedRow& row : server.rows()) names.push_back(row.name);
  serve::serve_ranks(session.flags.program, names, endpoints.front()->world,
                     [&](std::size_t index, std::int64_t calls) { return server.us_of_call(index, calls); });
}

}  // namespace lockstep::sweep
