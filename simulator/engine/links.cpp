#include "simulator/engine/engine.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

std::int64_t rounded(double ps) {
  return std::llround(ps);
}

}  // namespace

LinkState::LinkState(const std::vector<Link>& links) : links_(links), free_ps_(links.size()), carrying_(links.size()) {}

Departure LinkState::book(const Path& path, std::int64_t bytes, std::int64_t now_ps) {
  return path.is_buffered ? book_in_turn(path, bytes, now_ps) : book_at_once(path, bytes, now_ps);
}

Departure LinkState::book_at_once(const Path& path, std::int64_t bytes, std::int64_t now_ps) {
  std::int64_t start_ps = now_ps;
  for (const std::int32_t number : path.links()) {
    start_ps = std::max(start_ps, free_ps_[static_cast<std::size_t>(number)]);
  }
  double slowest = 0;
  for (const std::int32_t number : path.links()) {
    const auto link = static_cast<std::size_t>(number);
    const double taken = links_[link].ps_per_byte * static_cast<double>(bytes);
    free_ps_[link] = start_ps + rounded(taken);
    slowest = std::max(slowest, taken);
  }
  const std::int64_t left_ps = start_ps + rounded(slowest);
  return {start_ps, left_ps, left_ps};
}

// A link begins when it is free and the previous one has begun, and ends no earlier than the previous one.
Departure LinkState::book_in_turn(const Path& path, std::int64_t bytes, std::int64_t now_ps) {
  std::optional<Departure> departure;
  std::int64_t begun_ps = now_ps;
  std::int64_t passed_ps = now_ps;
  for (const std::int32_t number : path.links()) {
    const auto link = static_cast<std::size_t>(number);
    begun_ps = std::max(begun_ps, free_ps_[link]);
    const std::int64_t taken_ps = rounded(links_[link].ps_per_byte * static_cast<double>(bytes));
    passed_ps = std::max(passed_ps, begun_ps + taken_ps);
    free_ps_[link] = passed_ps;
    if (!departure) departure = Departure{begun_ps, passed_ps, 0};
  }
  LOCKSTEP_CHECK(departure.has_value(), "a path has links");
  departure->passed_ps = passed_ps;
  return *departure;
}

bool LinkState::is_fair(const Path& path, const std::vector<Link>& links) {
  const auto all = path.links();
  return std::any_of(all.begin(), all.end(),
                     [&](std::int32_t link) { return links[static_cast<std::size_t>(link)].fair; });
}

void LinkState::start(std::uint32_t message, const Path& path, std::int64_t bytes, std::int64_t now_ps) {
  for (const std::int32_t link : path.links()) ++carrying_[static_cast<std::size_t>(link)];
  flows_.push_back({message, path, static_cast<double>(bytes), 0, now_ps});
  change_shares(now_ps);
}

std::optional<LinkState::End> LinkState::next_end() const {
  std::optional<End> next;
  for (const Flow& flow : flows_) {
    const std::int64_t end = flow.since_ps + rounded(std::ceil(flow.left_bytes * flow.ps_per_byte));
    if (!next || end < next->time_ps) next = End{flow.message, end};
  }
  return next;
}

void LinkState::finish(std::uint32_t message, std::int64_t now_ps) {
  const auto done = std::find_if(flows_.begin(), flows_.end(), [&](const Flow& f) { return f.message == message; });
  for (const std::int32_t link : done->path.links()) --carrying_[static_cast<std::size_t>(link)];
  flows_.erase(done);
  change_shares(now_ps);
}

void LinkState::change_shares(std::int64_t now_ps) {
  for (Flow& flow : flows_) {
    const double pace_now = pace(flow);
    if (pace_now == flow.ps_per_byte && flow.since_ps != now_ps) continue;  // rate unchanged
    if (flow.ps_per_byte > 0) {
      flow.left_bytes -= static_cast<double>(now_ps - flow.since_ps) / flow.ps_per_byte;
      flow.left_bytes = std::max(flow.left_bytes, 0.0);
    }
    flow.since_ps = now_ps;
    flow.ps_per_byte = pace_now;
  }
}

// The rate of the slowest link, with each link shared equally.
double LinkState::pace(const Flow& flow) const {
  double slowest = 0;
  for (const std::int32_t number : flow.path.links()) {
    const auto link = static_cast<std::size_t>(number);
    slowest = std::max(slowest, links_[link].ps_per_byte * carrying_[link]);
  }
  return slowest;
}

}  // namespace lockstep::simulator
