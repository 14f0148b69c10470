#include "simulator/emulated/emulated_run.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/transports/loopback.h"
#include "core/ranks.h"
#include "schedules/interpreter/interpreter.h"
#include "simulator/emulated/emulated_worker.h"

namespace lockstep::simulator {
namespace {

using schedules::Lane;

constexpr int kAnyNumber = 1 << 30;                // capacity of a mailbox, in messages
constexpr std::int64_t kHeadStartNs = 20'000'000;  // time for all threads to issue their first kernels

// Collectives block their thread, so each lane of them has its own.
schedules::InterpreterOptions interpreter_options(std::chrono::nanoseconds deadline) {
  schedules::InterpreterOptions options;
  options.deadline = deadline;
  options.thread_of[static_cast<std::size_t>(Lane::tensor)] = 1;
  options.thread_of[static_cast<std::size_t>(Lane::gather)] = 2;
  options.thread_of[static_cast<std::size_t>(Lane::reduce)] = 3;
  options.thread_of[static_cast<std::size_t>(Lane::replicas)] = 4;
  return options;
}

// A rank may legitimately wait while all others work one after another.
std::chrono::nanoseconds deadline_of(const schedules::Step& step, const EmulationOptions& options) {
  std::int64_t longest_ns = 0;
  for (const auto& rank : step.of_rank) {
    for (const schedules::Task& task : rank.tasks) {
      const bool moves = schedules::is_send(task.op) || task.comm != schedules::Comm::none;
      if (task.lane == Lane::compute) longest_ns += task.amount / 1000;
      if (moves)
        longest_ns += transports::occupied_ns(options.link, task.amount) + transports::latency_ns(options.link);
    }
  }
  return options.deadline + std::chrono::nanoseconds(longest_ns);
}

}  // namespace

EmulatedRun run_emulated(const schedules::Step& step, const EmulationOptions& options) {
  const int ranks = step.num_ranks();
  const std::chrono::nanoseconds deadline = deadline_of(step, options);
  transports::LoopbackWorld world(ranks, kAnyNumber, deadline);
  std::vector<transports::LinkTable::Port> ports(static_cast<std::size_t>(ranks));
  transports::LinkTable links(options.link, ports.data());
  core::AbortFlag abort;
  EmulatedRun run;
  run.timeline.resize(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> finished_ns(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> late_ns(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> started_ns(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<EmulatedCollectives>>
      collectives;  // made before any rank starts, as plans may be refused
  for (int r = 0; r < ranks; ++r) {
    collectives.push_back(std::make_unique<EmulatedCollectives>(step, r, options, world, links, abort));
  }
  core::run_ranks(core::Sharing::threads, ranks, abort, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto transport = world.endpoint(rank);
    const auto ready = transports::all_gather_value(*transport, transports::now_ns());
    started_ns[r] = *std::max_element(ready.begin(), ready.end()) + kHeadStartNs;
    EmulatedWorker worker(step, *transport, options.link, started_ns[r], std::move(collectives[r]));
    run.timeline[r] = schedules::run_rank(step, rank, worker, abort, interpreter_options(deadline));
    finished_ns[r] = worker.finished_ns();
    late_ns[r] = worker.late_ns();
  });
  run.makespan_ns = *std::max_element(finished_ns.begin(), finished_ns.end()) - started_ns.front();
  run.late_ns = *std::max_element(late_ns.begin(), late_ns.end());
  return run;
}

}  // namespace lockstep::simulator
