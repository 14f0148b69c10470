#include "simulator/engine/links.h"

#include <algorithm>
#include <cmath>

namespace lockstep::simulator {
namespace {

std::int64_t rounded(double ps) {
  return std::llround(ps);
}

}  // namespace

LinkState::LinkState(const std::vector<Link>& links) : links_(links), free_ps_(links.size()), carrying_(links.size()) {}

Departure LinkState::book(const Path& path, std::int64_t bytes, std::int64_t now_ps) {
  Departure departure{now_ps, now_ps};
  for (std::int32_t i = 0; i < path.num_links; ++i) {
    const auto link = static_cast<std::size_t>(path.links[static_cast<std::size_t>(i)]);
    departure.start_ps = std::max(departure.start_ps, free_ps_[link]);
  }
  double slowest = 0;
  for (std::int32_t i = 0; i < path.num_links; ++i) {
    const auto link = static_cast<std::size_t>(path.links[static_cast<std::size_t>(i)]);
    const double taken = links_[link].ps_per_byte * static_cast<double>(bytes);
    free_ps_[link] = departure.start_ps + rounded(taken);
    slowest = std::max(slowest, taken);
  }
  departure.left_ps = departure.start_ps + rounded(slowest);
  return departure;
}

bool LinkState::is_fair(const Path& path, const std::vector<Link>& links) {
  return std::any_of(path.links.begin(), path.links.begin() + path.num_links,
                     [&](std::int32_t link) { return links[static_cast<std::size_t>(link)].fair; });
}

void LinkState::start(std::uint32_t message, const Path& path, std::int64_t bytes, std::int64_t now_ps) {
  for (std::int32_t i = 0; i < path.num_links; ++i) {
    ++carrying_[static_cast<std::size_t>(path.links[static_cast<std::size_t>(i)])];
  }
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
  for (std::int32_t i = 0; i < done->path.num_links; ++i) {
    --carrying_[static_cast<std::size_t>(done->path.links[static_cast<std::size_t>(i)])];
  }
  flows_.erase(done);
  change_shares(now_ps);
}

void LinkState::change_shares(std::int64_t now_ps) {
  for (Flow& flow : flows_) {
    const double pace_now = pace(flow);
    if (pace_now == flow.ps_per_byte && flow.since_ps != now_ps) continue;  // goes on as it did
    if (flow.ps_per_byte > 0) {
      flow.left_bytes -= static_cast<double>(now_ps - flow.since_ps) / flow.ps_per_byte;
      flow.left_bytes = std::max(flow.left_bytes, 0.0);
    }
    flow.since_ps = now_ps;
    flow.ps_per_byte = pace_now;
  }
}

// The slowest of its links, each shared out evenly.
double LinkState::pace(const Flow& flow) const {
  double slowest = 0;
  for (std::int32_t i = 0; i < flow.path.num_links; ++i) {
    const auto link = static_cast<std::size_t>(flow.path.links[static_cast<std::size_t>(i)]);
    slowest = std::max(slowest, links_[link].ps_per_byte * carrying_[link]);
  }
  return slowest;
}

}  // namespace lockstep::simulator
