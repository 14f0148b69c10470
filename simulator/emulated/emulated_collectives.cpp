#include "simulator/emulated/emulated_collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "collectives/executors/executors.h"
#include "core/error.h"
#include "simulator/network/topology.h"

namespace lockstep::simulator {

using collectives::Kind;
using schedules::Comm;
using schedules::Task;
using transports::now_ns;
using transports::Request;

namespace {

constexpr Request kSent{-1};
constexpr std::int64_t kLookNs = 50'000;           // polling interval for a message
constexpr std::int64_t kLongestNapNs = 2'000'000;  // longest sleep, so that an abort is seen soon

}  // namespace

PacedTransport::PacedTransport(std::unique_ptr<transports::Transport> inner, transports::LinkTable& links,
                               core::AbortFlag& abort, std::vector<std::int32_t> members, int first_channel)
    : inner_(std::move(inner)),
      links_(links),
      abort_(abort),
      members_(std::move(members)),
      first_channel_(first_channel) {
  const auto found = std::find(members_.begin(), members_.end(), inner_->rank());
  LOCKSTEP_CHECK(found != members_.end(), "the rank is no member of the group");
  index_ = static_cast<int>(found - members_.begin());
}

void PacedTransport::start(std::int64_t ready_ns, double stated_bytes_a_byte) {
  time_ns_ = ready_ns;
  stated_bytes_a_byte_ = stated_bytes_a_byte;
}

void PacedTransport::barrier() {
  LOCKSTEP_CHECK(false, "members of a group meet in collectives only");
}

void PacedTransport::all_gather(std::span<const std::byte> /*mine*/, std::span<std::byte> /*all*/) {
  LOCKSTEP_CHECK(false, "members of a group meet in collectives only");
}

Request PacedTransport::send(int peer, int channel, std::span<const std::byte> bytes) {
  const auto stated_bytes = static_cast<std::int64_t>(static_cast<double>(bytes.size()) * stated_bytes_a_byte_);
  const Header header = links_.book(member(index_), member(peer), stated_bytes, time_ns_);
  std::vector<std::byte> message(sizeof header + bytes.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::copy(bytes.begin(), bytes.end(), message.begin() + sizeof header);
  const Request request = inner_->send(member(peer), first_channel_ + channel, message);
  LOCKSTEP_CHECK(inner_->done(request), "the mailbox copies messages at once");
  return kSent;
}

Request PacedTransport::recv(int peer, int channel, std::span<std::byte> bytes) {
  Incoming& incoming = incoming_[next_request_];
  incoming.message.resize(sizeof(Header) + bytes.size());
  incoming.target = bytes;
  incoming.request = inner_->recv(member(peer), first_channel_ + channel, incoming.message);
  return {next_request_++};
}

bool PacedTransport::done(Request request) {
  if (request.id == kSent.id) return true;
  const auto found = incoming_.find(request.id);
  LOCKSTEP_CHECK(found != incoming_.end(), "this request is spent");
  Incoming& incoming = found->second;
  if (incoming.arrival_ns < 0 && inner_->done(incoming.request)) {
    std::memcpy(&incoming.arrival_ns, incoming.message.data(), sizeof(Header));
  }
  if (incoming.arrival_ns < 0 || incoming.arrival_ns > now_ns()) return false;
  std::copy(incoming.message.begin() + sizeof(Header), incoming.message.end(), incoming.target.begin());
  time_ns_ = std::max(time_ns_, incoming.arrival_ns);
  incoming_.erase(found);
  return true;
}

void PacedTransport::idle() {
  if (abort_.raised()) abort_.throw_raised();
  const std::int64_t now = now_ns();
  std::int64_t until = now + kLongestNapNs;
  for (const auto& [request, incoming] : incoming_) {
    until = std::min(until, incoming.arrival_ns < 0 ? now + kLookNs : incoming.arrival_ns);
  }
  // Sleeps until the end: wake-up times do not add up, and other ranks need the cores.
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<std::int64_t>(until - now, 0)));
}

namespace {

constexpr std::int64_t kElementsPerRank = 256;
constexpr int kChannelsOfPlan = 64;
constexpr int kFirstChannel = 1 << 28;  // above the tags of messages between stages

// Rounded up so that all chunks of a plan have the same size.
std::int64_t elements_a_block(Kind kind, int ranks) {
  return kind == Kind::all_reduce ? kElementsPerRank * ranks : kElementsPerRank;
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
    Prepared prepared{
        std::make_unique<PacedTransport>(world.endpoint(rank), links, abort, members, first_channel(task))};
    prepared.operation = {.kind = kind, .count = elements_a_block(kind, ranks)};
    const int mine = prepared.transport->rank();
    const auto size = [&](int blocks) { return static_cast<std::size_t>(blocks * prepared.operation.count); };
    prepared.input.assign(size(collectives::input_blocks(kind, ranks, 0, mine)), static_cast<float>(mine + 1));
    prepared.output.resize(size(collectives::output_blocks(kind, ranks, 0, mine)));
    const executors::MessageOptions whole_chunks{.segment_bytes = std::int64_t{1} << 30, .timeout = options.deadline};
    prepared.collective = executors::make_message_collective(options.plan_of(task.comm, ranks), prepared.operation,
                                                             *prepared.transport, whole_chunks);
    prepared_.emplace(key_of(task), std::move(prepared));
  }
}

EmulatedCollectives::Ran EmulatedCollectives::run(const Task& task, std::int64_t ready_ns) {
  Prepared& prepared = prepared_.at(key_of(task));
  const int ranks = prepared.transport->num_ranks();
  const Kind kind = prepared.operation.kind;
  const std::int64_t real_bytes =
      collectives::message_bytes(kind, ranks, prepared.operation.count, prepared.operation.dtype);
  transports::wait_until_ns(ready_ns);
  prepared.transport->start(ready_ns, static_cast<double>(task.amount) / static_cast<double>(real_bytes));
  std::fill(prepared.output.begin(), prepared.output.end(), 0.0F);
  prepared.collective->run(prepared.input.data(), prepared.output.data());
  for (std::size_t i = 0; i < prepared.output.size(); ++i) {
    if (prepared.output[i] ==
        expected(kind, ranks, prepared.transport->rank(), static_cast<std::int64_t>(i) / prepared.operation.count))
      continue;
    throw core::Error(core::Failure::wrong_data, "emulated " + std::string(collectives::name_of(kind)) + " of group " +
                                                     std::to_string(task.peer) + ": element " + std::to_string(i) +
                                                     " is wrong");
  }
  return {ready_ns, prepared.transport->time_ns()};
}

}  // namespace lockstep::simulator
