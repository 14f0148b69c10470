#include "simulator/emulated/paced_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace lockstep::simulator {

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

}  // namespace lockstep::simulator
