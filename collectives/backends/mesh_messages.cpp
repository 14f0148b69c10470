#include "collectives/backends/mesh_messages.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"

namespace lockstep::backends {

using transports::now_ns;
using transports::Request;

namespace {

int channel_of_times(int channel) {
  return 2 * channel;
}
int channel_of_bytes(int channel) {
  return 2 * channel + 1;
}

}  // namespace

MeshMessages::MeshMessages(transports::LoopbackWorld& world, int rank, std::optional<MeshLinks> links,
                           const core::AbortFlag& abort, const core::WaitPolicy& policy)
    : world_(world), inner_(world.endpoint(rank)), links_(std::move(links)), abort_(abort), policy_(policy) {}

Request MeshMessages::send(int peer, int channel, std::span<const std::byte> bytes) {
  idle_rounds_ = 0;
  if (!links_) return inner_->send(peer, channel, bytes);
  const std::int64_t now = now_ns();
  const bool travels = peer != rank();
  const std::int64_t due =
      travels ? links_->table.book(rank(), peer, static_cast<std::int64_t>(bytes.size()), now) : now;
  Flight flight;
  flight.parts = {inner_->send(peer, channel_of_times(channel), std::as_bytes(std::span(&due, 1))),
                  inner_->send(peer, channel_of_bytes(channel), bytes)};
  flight.due_ns = travels ? due - transports::latency_ns(links_->spec) : now;
  flights_.emplace(next_request_, flight);
  return {next_request_++};
}

Request MeshMessages::recv(int peer, int channel, std::span<std::byte> bytes) {
  idle_rounds_ = 0;
  if (!links_) return inner_->recv(peer, channel, bytes);
  Flight& flight = flights_[next_request_];
  const auto due = std::as_writable_bytes(std::span(&flight.due_ns, 1));
  flight.parts = {inner_->recv(peer, channel_of_times(channel), due),
                  inner_->recv(peer, channel_of_bytes(channel), bytes)};
  return {next_request_++};
}

bool MeshMessages::landed(Flight& flight) {
  while (flight.parts_done < flight.parts.size() && inner_->done(flight.parts[flight.parts_done])) ++flight.parts_done;
  return flight.parts_done == flight.parts.size();
}

bool MeshMessages::done(Request request) {
  if (!links_) {
    const bool is_done = inner_->done(request);
    if (is_done) idle_rounds_ = 0;
    return is_done;
  }
  const auto found = flights_.find(request.id);
  LOCKSTEP_CHECK(found != flights_.end(), "this request is spent");
  if (!landed(found->second) || found->second.due_ns > now_ns()) return false;
  flights_.erase(found);
  idle_rounds_ = 0;
  return true;
}

std::int64_t MeshMessages::next_due_ns() const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (const auto& [request, flight] : flights_) {
    if (flight.parts_done == flight.parts.size()) next = std::min(next, flight.due_ns);
  }
  return next;
}

// Sleeps briefly, as the rank may also wait for something other than a message.
void MeshMessages::nap() {
  constexpr auto kSoon = std::chrono::milliseconds(1);
  constexpr std::int64_t kShortNs = 50'000;
  constexpr std::int64_t kLongNs = 200'000;
  const std::int64_t longest = core::Clock::now() - idle_since_ < kSoon ? kShortNs : kLongNs;
  const std::int64_t until_due = links_ ? next_due_ns() - now_ns() : longest;
  if (until_due > 0) world_.nap(rank(), std::chrono::nanoseconds(std::min(longest, until_due)));
}

void MeshMessages::idle() {
  if (abort_.raised()) abort_.throw_raised();
  if (idle_rounds_++ == 0) idle_since_ = core::Clock::now();
  if (policy_.yields()) {
    inner_->idle();
  } else {
    nap();
  }
}

}  // namespace lockstep::backends
