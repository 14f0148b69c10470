#include "collectives/executors/program_time.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/index.h"

namespace lockstep::executors {
namespace {

using plan::Instruction;
using plan::LaneProgram;
using plan::Wait;
using transports::PacedRank;

}  // namespace

double own_part(const LaneProgram& lane, const Instruction& instruction, int rank) {
  const auto sources = lane.sources_of(instruction);
  const auto destinations = lane.destinations_of(instruction);
  if (destinations.empty() || (sources.size() == 1 && sources.front().rank != rank)) return 0;
  const auto own = std::count_if(destinations.begin(), destinations.end(),
                                 [rank](const plan::RankAddress& p) { return p.rank == rank; });
  return static_cast<double>(sources.size() + static_cast<std::size_t>(own)) /
         static_cast<double>(sources.size() + destinations.size());
}

ProgramTime::ProgramTime(const plan::Program& program, std::int64_t element_bytes) : program_(program) {
  for (int rank = 0; rank < program.num_ranks; ++rank) {
    for (int lane = 0; lane < program.num_lanes; ++lane) {
      const auto& instructions = program.ranks[at(rank)].lanes[at(lane)].instructions;
      first_.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({rank, lane});
      for (const Instruction& i : instructions) nodes_.push_back({rank, lane, 0, 1, i.count * element_bytes});
      stride_ = std::max(stride_, instructions.size());
    }
  }
  nodes_.emplace_back();
  for (int rank = 0; rank < program.num_ranks; ++rank) {
    for (int lane = 0; lane < program.num_lanes; ++lane) add_consequences(rank, lane);
  }
  // Messages that become ready together are sent in the order in which their receivers need them.
  std::stable_sort(consequences_.begin(), consequences_.end(), [](const Consequence& a, const Consequence& b) {
    return std::tie(a.of_node, a.index, a.source) < std::tie(b.of_node, b.index, b.source);
  });
  for (const Consequence& c : consequences_) ++nodes_[c.of_node + 1].first_consequence;
  for (std::size_t n = 1; n < nodes_.size(); ++n) nodes_[n].first_consequence += nodes_[n - 1].first_consequence;
}

std::uint32_t ProgramTime::node(int rank, int lane, std::uint32_t instructions) const {
  return first_[at(rank * program_.num_lanes + lane)] + instructions;
}

void ProgramTime::add_consequences(int rank, int lane) {
  const LaneProgram& of_lane = program_.ranks[at(rank)].lanes[at(lane)];
  for (std::uint32_t i = 0; i < of_lane.instructions.size(); ++i) {
    const Instruction& instruction = of_lane.instructions[i];
    const std::uint32_t here = node(rank, lane, i + 1);
    const auto add = [&](std::uint32_t of_node, std::uint32_t source, bool is_message) {
      consequences_.push_back({of_node, i, source, here, is_message});
      ++nodes_[here].num_causes;
    };
    for (const Wait& w : of_lane.waits_of(instruction)) add(node(w.rank, w.lane, w.instructions), 0, false);
    const auto sources = of_lane.sources_of(instruction);
    for (std::uint32_t s = 0; s < sources.size(); ++s) {
      if (sources[s].rank != rank) add(node(sources[s].rank, sources[s].lane, sources[s].instructions), s, true);
    }
  }
}

// One call: events in the order of time, ties in the order in which they were added.
class ProgramTime::Playing {
 public:
  Playing(const ProgramTime& time, std::span<const RankClock> ranks, const std::function<int(int)>& port,
          transports::LinkTable& links)
      : time_(time),
        ranks_(ranks),
        port_(port),
        links_(links),
        core_free_ns_(ranks.size(), 0),
        causes_left_(time.nodes_.size()),
        happens_ns_(time.nodes_.size(), 0) {
    for (std::size_t n = 0; n < time.nodes_.size(); ++n) causes_left_[n] = time.nodes_[n].num_causes;
  }

  std::vector<std::int64_t> run() {
    for (const std::uint32_t entry : time_.first_) {
      events_.push({ranks_[at(time_.nodes_[entry].rank)].entered_ns, num_events_++, entry, true});
    }
    std::size_t done = 0;
    while (!events_.empty()) {
      const NodeEvent event = events_.top();
      events_.pop();
      if (!event.is_done) {
        work(event.node, event.time_ns);
        continue;
      }
      finish(event.node, event.time_ns);
      ++done;
    }
    LOCKSTEP_CHECK(done + 1 == time_.nodes_.size(), "the program has been run to its end");
    return leaving_times();
  }

 private:
  struct NodeEvent {
    std::int64_t time_ns;
    std::int64_t order;
    std::uint32_t node;
    bool is_done;  // else: its causes have all happened
    friend bool operator>(const NodeEvent& a, const NodeEvent& b) {
      return std::tie(a.time_ns, a.order) > std::tie(b.time_ns, b.order);
    }
  };

  void work(std::uint32_t node, std::int64_t now_ns) {
    const Node& instruction = time_.nodes_[node];
    const std::uint32_t entry = time_.node(instruction.rank, instruction.lane, 0);
    const std::int64_t cost_ns =
        ranks_[at(instruction.rank)].costs_ns[time_.cost_index(instruction.lane, node - entry - 1)];
    if (cost_ns == 0) return events_.push({now_ns, num_events_++, node, true});
    std::int64_t& core_free_ns = core_free_ns_[at(instruction.rank)];
    core_free_ns = std::max(core_free_ns, now_ns) + cost_ns;
    events_.push({core_free_ns, num_events_++, node, true});
  }

  void finish(std::uint32_t node, std::int64_t now_ns) {
    happens_ns_[node] = now_ns;
    const Node& here = time_.nodes_[node];
    const Node& next = time_.nodes_[node + 1];
    for (std::uint32_t c = here.first_consequence; c < next.first_consequence; ++c) {
      const Consequence& consequence = time_.consequences_[c];
      const Node& to = time_.nodes_[consequence.instruction];
      cause(consequence.instruction,
            consequence.is_message ? links_.book(port_(here.rank), port_(to.rank), to.message_bytes, now_ns) : now_ns);
    }
    if (next.rank == here.rank && next.lane == here.lane && node + 2 < time_.nodes_.size()) cause(node + 1, now_ns);
  }

  void cause(std::uint32_t node, std::int64_t time_ns) {
    happens_ns_[node] = std::max(happens_ns_[node], time_ns);
    if (--causes_left_[node] == 0) events_.push({happens_ns_[node], num_events_++, node, false});
  }

  std::vector<std::int64_t> leaving_times() const {
    std::vector<std::int64_t> times;
    for (int rank = 0; rank < time_.program_.num_ranks; ++rank) {
      const plan::RankProgram& program = time_.program_.ranks[at(rank)];
      std::int64_t last = ranks_[at(rank)].entered_ns;
      for (int lane = 0; lane < time_.program_.num_lanes; ++lane) {
        const auto done = static_cast<std::uint32_t>(program.lanes[at(lane)].instructions.size());
        last = std::max(last, happens_ns_[time_.node(rank, lane, done)]);
      }
      for (const Wait& w : program.exit_waits) {
        last = std::max(last, happens_ns_[time_.node(w.rank, w.lane, w.instructions)]);
      }
      times.push_back(last);
    }
    return times;
  }

  const ProgramTime& time_;
  const std::span<const RankClock> ranks_;
  const std::function<int(int)>& port_;
  transports::LinkTable& links_;
  std::priority_queue<NodeEvent, std::vector<NodeEvent>, std::greater<>> events_;
  std::int64_t num_events_ = 0;
  std::vector<std::int64_t> core_free_ns_;  // [rank]
  std::vector<std::int32_t> causes_left_;   // [node]
  std::vector<std::int64_t> happens_ns_;    // [node] latest cause so far, then the time when it was done
};

std::vector<std::int64_t> ProgramTime::play(std::span<const RankClock> ranks, const std::function<int(int rank)>& port,
                                            transports::LinkTable& links) const {
  return Playing(*this, ranks, port, links).run();
}

PacedCall::PacedCall(transports::LocalWorld& world, const plan::Program& program, const ProgramTime& time,
                     const std::string& label)
    : world_(world),
      group_(world.group()),
      program_(program.ranks[static_cast<std::size_t>(world.rank())]),
      time_(time),
      label_(label),
      mine_(group_.board(world.rank()).paced),
      costs_ns_(world.arena().make_array<std::int64_t>(std::max<std::size_t>(time.num_costs(), 1))) {}

void PacedCall::enter(std::uint64_t call) {
  call_ = call;
  mine_.costs_ns = costs_ns_;
  mine_.entered_ns = entry_ns();
  mine_.entered.open(call);
  for (int peer = 0; peer < world_.num_ranks(); ++peer) {
    world_.wait(peer, group_.board(peer).paced.entered, call, label_);
  }
}

std::int64_t PacedCall::entry_ns() const {
  // allowed for waking up, and for the distance between calls that follow each other at once
  constexpr std::int64_t kMostNs = 100'000;
  const std::int64_t now_ns = transports::now_ns();
  const std::int64_t late_ns = mine_.woken_ns - mine_.leaves_ns;
  const bool comes_at_once = mine_.woken_ns != 0 && now_ns - mine_.woken_ns <= kMostNs;
  return comes_at_once && late_ns <= kMostNs ? now_ns - late_ns : now_ns;
}

// The count acquires what the other ranks have noted, and the counter shows them when to leave. No rank enters the next
// call before that.
void PacedCall::leave() {
  mine_.calls_done.store(call_, std::memory_order_release);
  const auto ranks = static_cast<std::uint64_t>(world_.num_ranks());
  transports::PacedCalls& calls = group_.paced_calls();
  if (calls.done.fetch_add(1, std::memory_order_acq_rel) + 1 == call_ * ranks) {
    play();
    calls.played.open(call_);
  } else {
    world_.wait(late_peer(), calls.played, call_, label_);
  }
  wait_for_stated_time();
}

void PacedCall::play() {
  std::vector<ProgramTime::RankClock> clocks;
  for (int rank = 0; rank < world_.num_ranks(); ++rank) {
    const PacedRank& noted = group_.board(rank).paced;
    clocks.push_back({noted.entered_ns, noted.costs_ns});
  }
  const auto leaves_ns = time_.play(
      clocks, [this](int rank) { return group_.number_of(rank); }, *group_.links());
  for (int rank = 0; rank < world_.num_ranks(); ++rank) {
    group_.board(rank).paced.leaves_ns = leaves_ns[static_cast<std::size_t>(rank)];
  }
}

// Rank to name in the error if no rank plays the call.
int PacedCall::late_peer() const {
  for (int peer = 0; peer < world_.num_ranks(); ++peer) {
    if (group_.board(peer).paced.calls_done.load(std::memory_order_acquire) < call_) return peer;
  }
  return (world_.rank() + 1) % world_.num_ranks();
}

void PacedCall::wait_for_stated_time() {
  constexpr std::int64_t kLongestNapNs = 20'000'000;  // so that an abort is noticed soon
  mine_.woken_ns = 0;
  for (std::int64_t now_ns = transports::now_ns(); now_ns < mine_.leaves_ns; now_ns = transports::now_ns()) {
    if (group_.abort().raised()) group_.abort().throw_raised();
    const std::int64_t until_ns = std::min(mine_.leaves_ns, now_ns + kLongestNapNs);
    if (world_.wait_policy().yields()) {
      transports::wait_until_ns(until_ns);
    } else {
      transports::sleep_until_ns(until_ns);
    }
    mine_.woken_ns = transports::now_ns();
  }
}

}  // namespace lockstep::executors
