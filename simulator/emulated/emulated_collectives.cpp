#include "simulator/emulated/emulated_collectives.h"

#include <algorithm>
#include <string>

#include "collectives/executors/message_executor.h"
#include "core/error.h"
#include "simulator/network/comm_kind.h"

namespace lockstep::simulator {
namespace {

using collectives::Kind;
using schedules::Comm;
using schedules::Task;

constexpr std::int64_t kElementsARank = 256;
constexpr int kChannelsOfPlan = 64;
constexpr int kFirstChannel = 1 << 28;  // above the tags of messages between stages

// Rounded up so that all chunks of a plan have the same size.
std::int64_t elements_a_block(Kind kind, int ranks) {
  return kind == Kind::all_reduce ? kElementsARank * ranks : kElementsARank;
}

int first_channel(const Task& task) {
  const auto comm = static_cast<int>(task.comm);
  const auto lane = static_cast<int>(task.lane);
  const int place = (task.peer * static_cast<int>(schedules::kNumLanes) + lane) * 8 + comm;
  return kFirstChannel + place * kChannelsOfPlan;
}

// Every element of a rank's input is its index among the members plus one.
float expected(Kind kind, int ranks, int mine, std::int64_t block) {
  const auto n = static_cast<float>(ranks);
  if (kind == Kind::send_recv) return static_cast<float>((mine + ranks - 1) % ranks + 1);
  const bool sums = kind == Kind::all_reduce || kind == Kind::reduce_scatter;
  return sums ? n * (n + 1) / 2 : static_cast<float>(block + 1);
}

}  // namespace

EmulatedCollectives::EmulatedCollectives(const schedules::Step& step, std::int32_t rank,
                                         const EmulationOptions& options, transports::LoopbackWorld& world,
                                         transports::LinkTable& links, core::AbortFlag& abort) {
  for (const Task& task : step.of_rank[static_cast<std::size_t>(rank)].tasks) {
    if (task.comm == Comm::none || prepared_.contains(key_of(task))) continue;
    const std::vector<std::int32_t>& members = step.groups[static_cast<std::size_t>(task.peer)].ranks;
    const auto ranks = static_cast<int>(members.size());
    const Kind kind = kind_of(task.comm);
    Prepared one{std::make_unique<PacedTransport>(world.endpoint(rank), links, abort, members, first_channel(task))};
    one.operation = {.kind = kind, .count = elements_a_block(kind, ranks)};
    const int mine = one.transport->rank();
    const auto size = [&](int blocks) { return static_cast<std::size_t>(blocks * one.operation.count); };
    one.input.assign(size(collectives::input_blocks(kind, ranks, 0, mine)), static_cast<float>(mine + 1));
    one.output.resize(size(collectives::output_blocks(kind, ranks, 0, mine)));
    const executors::MessageOptions whole_chunks{.segment_bytes = std::int64_t{1} << 30, .timeout = options.deadline};
    one.collective = executors::make_message_collective(options.plan_of(task.comm, ranks), one.operation,
                                                        *one.transport, whole_chunks);
    prepared_.emplace(key_of(task), std::move(one));
  }
}

EmulatedCollectives::Ran EmulatedCollectives::run(const Task& task, std::int64_t ready_ns) {
  Prepared& one = prepared_.at(key_of(task));
  const int ranks = one.transport->num_ranks();
  const Kind kind = one.operation.kind;
  const std::int64_t real_bytes = collectives::message_bytes(kind, ranks, one.operation.count, one.operation.dtype);
  transports::wait_until_ns(ready_ns);
  one.transport->start(ready_ns, static_cast<double>(task.amount) / static_cast<double>(real_bytes));
  std::fill(one.output.begin(), one.output.end(), 0.0F);
  one.collective->run(one.input.data(), one.output.data());
  for (std::size_t i = 0; i < one.output.size(); ++i) {
    if (one.output[i] ==
        expected(kind, ranks, one.transport->rank(), static_cast<std::int64_t>(i) / one.operation.count))
      continue;
    throw core::Error(core::Failure::wrong_data, "emulated " + std::string(collectives::name_of(kind)) + " of group " +
                                                     std::to_string(task.peer) + ": element " + std::to_string(i) +
                                                     " is wrong");
  }
  return {ready_ns, one.transport->time_ns()};
}

}  // namespace lockstep::simulator
