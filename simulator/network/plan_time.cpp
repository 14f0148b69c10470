#include "simulator/network/collective_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/plan/check.h"
#include "core/error.h"
#include "core/index.h"
#include "simulator/network/topology.h"

namespace lockstep::simulator {
namespace {

// Distance from a rank to its peer, upwards around all ranks.
int distance(int from, int to, int num_ranks) {
  return to < 0 ? -1 : (to - from + num_ranks) % num_ranks;
}

bool does_as(const plan::Plan& plan, int rank, int other) {
  const auto& lanes = plan.ranks[static_cast<std::size_t>(rank)].lanes;
  const auto& other_lanes = plan.ranks[static_cast<std::size_t>(other)].lanes;
  if (lanes.size() != other_lanes.size()) return false;
  const auto is_alike = [&](const plan::Step& a, const plan::Step& b) {
    return a.op == b.op && plan::chunks_of(a) == plan::chunks_of(b) && a.after == b.after &&
           distance(rank, a.peer, plan.num_ranks) == distance(other, b.peer, plan.num_ranks);
  };
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    if (!std::equal(lanes[l].begin(), lanes[l].end(), other_lanes[l].begin(), other_lanes[l].end(), is_alike)) {
      return false;
    }
  }
  return true;
}

// True if each rank's steps equal the steps of the rank one period before.
bool turns_by(const plan::Plan& plan, int period) {
  for (int rank = period; rank < plan.num_ranks; ++rank) {
    if (!does_as(plan, rank, rank - period)) return false;
  }
  return true;
}

// True if the period is whole switches of every level. A torus is symmetric from row to row if its ranks go all the way
// around.
std::int64_t whole_switches(const Machine& machine, int num_ranks) {
  std::int64_t ranks = 1;
  if (const NetworkLevel& inner = machine.levels.front(); inner.torus && num_ranks <= inner.ranks) {
    return num_ranks == inner.ranks ? inner.torus->columns : num_ranks;
  }
  for (std::size_t l = 0; l + 1 < machine.levels.size(); ++l) {
    if (machine.levels[l].ranks < num_ranks) ranks = std::lcm(ranks, std::int64_t{machine.levels[l].ranks});
  }
  return ranks;
}

// True if each link of a torus carries messages of only one rank, among the period's ranks and those that they
// represent.
bool have_links_alone(const plan::Plan& plan, const Machine& machine, int period) {
  if (!machine.levels.front().torus) return true;
  std::vector<std::int64_t> place(static_cast<std::size_t>(plan.num_ranks));
  std::iota(place.begin(), place.end(), 0);
  const MachineNetwork network(machine, std::move(place));
  std::map<std::int32_t, int> owners;  // sender by link
  std::set<std::pair<int, int>> known;
  for (int rank = 0; rank < period; ++rank) {
    for (const auto& lane : plan.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const plan::Step& step : lane) {
        if (step.op != plan::Op::send || !known.insert({rank, step.peer}).second) continue;
        std::set<std::int32_t> of_path;
        const auto path = network.path_of_period(rank, step.peer, period);  // its links() refer to it
        for (const std::int32_t link : path.links()) {
          if (!of_path.insert(link).second || owners.try_emplace(link, rank).first->second != rank) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

int rotation_period(const plan::Plan& plan, const Machine& machine) {
  const std::int64_t whole = whole_switches(machine, plan.num_ranks);
  for (std::int64_t period = whole; period < plan.num_ranks; period += whole) {
    const auto ranks = static_cast<int>(period);
    if (plan.num_ranks % ranks == 0 && turns_by(plan, ranks) && have_links_alone(plan, machine, ranks)) return ranks;
  }
  return plan.num_ranks;
}

namespace {

constexpr double kPsPerUs = 1e6;
constexpr std::int64_t kSegmentBytes = 128 << 10;  // as the message executor's

}  // namespace

PlanTime::PlanTime(const plan::Plan& plan, const Machine& machine)
    : PlanTime(plan, machine, rotation_period(plan, machine)) {}

PlanTime::PlanTime(const plan::Plan& plan, const Machine& machine, int period)
    : period_(period),
      start_ps_(std::llround(machine.device.launch_us * kPsPerUs)),
      memory_ps_per_byte_(1e3 / (machine.device.memory_gbps * machine.device.memory.back().share)),
      chunks_per_block_(plan.chunks_per_block) {
  if (plan.num_ranks > machine.levels.back().ranks) {
    throw core::usage_error("machine " + machine.name + ": has " + std::to_string(machine.levels.back().ranks) +
                            " devices, and there are " + std::to_string(plan.num_ranks) +
                            " ranks; allowed: at most that");
  }
  compile(plan, machine);
}

void PlanTime::compile(const plan::Plan& plan, const Machine& machine) {
  std::vector<std::int64_t> place(at(plan.num_ranks));
  std::iota(place.begin(), place.end(), 0);
  const MachineNetwork network(machine, std::move(place));
  links_ = network.links();
  lanes_a_rank_ = std::max(plan::num_lanes(plan), 1);
  const int n = plan.num_ranks;
  std::map<std::tuple<int, int, int>, std::int32_t> channels;  // by (receiver, lane, distance to the sender)
  std::map<std::pair<int, int>, std::int32_t> paths;           // by (sender, receiver)
  const auto channel_of = [&](int to, int lane, int from) {
    const auto key = std::tuple(to % period_, lane, (from - to + n) % n);
    return channels.try_emplace(key, static_cast<std::int32_t>(channels.size())).first->second;
  };
  for (int rank = 0; rank < period_; ++rank) {
    const auto& of_rank = plan.ranks[at(rank)].lanes;
    for (int lane = 0; lane < lanes_a_rank_; ++lane) {
      Lane& added = lanes_.emplace_back(Lane{rank, {}});
      if (at(lane) >= of_rank.size()) continue;
      for (const plan::Step& step : of_rank[at(lane)]) {
        Step& s = added.steps.emplace_back(Step{.op = step.op, .chunks = plan::chunks_of(step), .after = step.after});
        if (step.op == plan::Op::send) {
          s.channel = channel_of(step.peer, lane, rank);
          s.distance = (step.peer - rank + n) % n;
          const auto known = paths.try_emplace({rank, step.peer}, static_cast<std::int32_t>(paths_.size()));
          if (known.second) paths_.push_back(network.path_of_period(rank, step.peer, period_));
          s.path = known.first->second;
        } else if (plan::reads_peer(step.op)) {
          s.channel = channel_of(rank, lane, step.peer);
        }
      }
    }
  }
  num_channels_ = static_cast<std::int32_t>(channels.size());
}

// One call. Lanes are handled in order of time. Which of two simultaneous messages takes a port first must not depend
// on the ranks' numbers, or representatives would differ from the ranks they represent: the nearer sender's goes first.
// Messages of equal distance share no port except one sender's, between its lanes, which go in lane order. Lanes that
// become ready at a time come after all that were ready earlier.
class PlanTime::Playing {
 public:
  Playing(const PlanTime& time, std::int64_t chunk_bytes)
      : time_(time),
        chunk_bytes_(chunk_bytes),
        links_(time.links_),
        state_(time.lanes_.size()),
        channels_(at(time.num_channels_)) {}

  std::int64_t run() {
    for (std::size_t l = 0; l < state_.size(); ++l) push(l, time_.start_ps_);
    while (true) {
      const auto end = links_.next_end();
      if (end && (ready_.empty() || end->time_ps <= ready_.top().time_ps)) {
        links_.finish(end->message, end->time_ps);
        const auto lane = static_cast<std::size_t>(end->message);
        leave(lane, step_of(lane), {0, end->time_ps, end->time_ps});
        continue;
      }
      if (ready_.empty()) break;
      const Ready next = ready_.top();
      ready_.pop();
      now_ = {next.time_ps, next.depth};
      begin(next.lane, next.time_ps);
    }
    LOCKSTEP_CHECK(lanes_done_ == state_.size(), "a plan that passed the checker ends");
    return last_ps_;
  }

 private:
  struct Ready {
    std::int64_t time_ps;
    std::int32_t depth;     // number of causes at this same time
    std::int32_t distance;  // to the peer of the lane's next step
    std::size_t lane;
    friend bool operator>(const Ready& a, const Ready& b) {
      return std::tie(a.time_ps, a.depth, a.distance, a.lane) > std::tie(b.time_ps, b.depth, b.distance, b.lane);
    }
  };
  struct LaneState {
    std::int32_t done = 0;
    std::int64_t done_ps = 0;
    std::vector<std::size_t> waiters = {};  // lanes of the rank whose next step is after one of this lane
  };
  struct MessageChannel {
    std::vector<std::int64_t> arrivals_ps = {};
    std::size_t taken = 0;
    std::size_t waiter = kNobody;
  };
  static constexpr std::size_t kNobody = ~std::size_t{0};

  const Step& step_of(std::size_t lane) const { return time_.lanes_[lane].steps[at(state_[lane].done)]; }
  void push(std::size_t lane, std::int64_t time_ps) {
    const auto& steps = time_.lanes_[lane].steps;
    const std::size_t next = at(state_[lane].done);
    const std::int32_t distance = next < steps.size() ? steps[next].distance : 0;
    ready_.push({time_ps, time_ps == now_.time_ps ? now_.depth + 1 : 0, distance, lane});
  }

  void begin(std::size_t lane, std::int64_t now_ps) {
    if (at(state_[lane].done) == time_.lanes_[lane].steps.size()) {
      ++lanes_done_;
      return;
    }
    const Step& step = step_of(lane);
    if (waits_for_lane(lane, step)) return;
    const std::int64_t bytes = step.chunks * chunk_bytes_;
    switch (step.op) {
      case plan::Op::send:
        return send(lane, step, bytes, now_ps);
      case plan::Op::recv:
      case plan::Op::recv_reduce:
        return receive(lane, step, bytes, now_ps);
      case plan::Op::copy:
        return done(lane, now_ps + pass_ps(bytes, 2));
      case plan::Op::reduce:
        return done(lane, now_ps + pass_ps(bytes, 3));
    }
  }

  bool waits_for_lane(std::size_t lane, const Step& step) {
    const std::size_t first = lane - lane % at(time_.lanes_a_rank_);
    for (const plan::After& after : step.after) {
      LaneState& other = state_[first + at(after.lane)];
      if (other.done > after.step) continue;
      other.waiters.push_back(lane);
      return true;
    }
    return false;
  }

  void send(std::size_t lane, const Step& step, std::int64_t bytes, std::int64_t now_ps) {
    const Path& path = time_.paths_[at(step.path)];
    if (LinkState::is_fair(path, time_.links_)) {
      return links_.start(static_cast<std::uint32_t>(lane), path, bytes, now_ps);
    }
    leave(lane, step, links_.book(path, bytes, now_ps));
  }

  // The bytes have left: schedules the arrival and continues the lane.
  void leave(std::size_t lane, const Step& step, const Departure& departure) {
    MessageChannel& channel = channels_[at(step.channel)];
    channel.arrivals_ps.push_back(departure.passed_ps + time_.paths_[at(step.path)].latency_ps);
    if (channel.waiter != kNobody) push(std::exchange(channel.waiter, kNobody), channel.arrivals_ps.back());
    done(lane, departure.left_ps);
  }

  void receive(std::size_t lane, const Step& step, std::int64_t bytes, std::int64_t now_ps) {
    MessageChannel& channel = channels_[at(step.channel)];
    if (channel.taken == channel.arrivals_ps.size()) {
      channel.waiter = lane;
      return;
    }
    const std::int64_t here_ps = std::max(now_ps, channel.arrivals_ps[channel.taken++]);
    done(lane, here_ps + (step.op == plan::Op::recv ? 0 : pass_ps(std::min(bytes, kSegmentBytes), 3)));
  }

  void done(std::size_t lane, std::int64_t time_ps) {
    LaneState& state = state_[lane];
    ++state.done;
    state.done_ps = time_ps;
    last_ps_ = std::max(last_ps_, time_ps);
    push(lane, time_ps);
    for (const std::size_t waiter : std::exchange(state.waiters, {})) push(waiter, time_ps);
  }

  // Time to read and write `operands` operands of `bytes` each.
  std::int64_t pass_ps(std::int64_t bytes, int operands) const {
    return std::llround(static_cast<double>(bytes) * operands * time_.memory_ps_per_byte_);
  }

  const PlanTime& time_;
  const std::int64_t chunk_bytes_;
  LinkState links_;
  std::vector<LaneState> state_;
  std::vector<MessageChannel> channels_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  struct {
    std::int64_t time_ps;
    std::int32_t depth;
  } now_{-1, 0};
  std::size_t lanes_done_ = 0;
  std::int64_t last_ps_ = 0;
};

std::int64_t PlanTime::play_ps(const collectives::Operation& operation) const {
  const std::int64_t elements = (operation.count + chunks_per_block_ - 1) / chunks_per_block_;
  return Playing(*this, elements * static_cast<std::int64_t>(core::size_of(operation.dtype))).run();
}

}  // namespace lockstep::simulator
