#include "simulator/network/topology.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "collectives/algorithms/algorithm.h"
#include "collectives/plan/cost.h"
#include "core/error.h"
#include "schedules/step/rewrite.h"

namespace lockstep::simulator {
namespace {

constexpr double kPsPerUs = 1e6;
constexpr double kPsPerByteAtOneGbps = 1e3;

std::int64_t ps_of(double us) {
  return std::llround(us * kPsPerUs);
}

}  // namespace

MachineNetwork::MachineNetwork(const Machine& machine, std::vector<std::int64_t> place) : place_(std::move(place)) {
  std::int64_t below = 1;  // devices that one switch of the level below joins
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    const NetworkLevel& level = machine.levels[l];
    const double rate = level.gbps * level.efficiency;
    Level result{.ranks = l + 1 == machine.levels.size() ? std::numeric_limits<std::int64_t>::max() : level.ranks,
                 .latency_ps = ps_of(level.latency_us),
                 .first_port = static_cast<std::int32_t>(links_.size())};
    const double ps_per_byte = rate > 0 ? kPsPerByteAtOneGbps / rate : 0;
    const Link link{ps_per_byte, level.sharing == Sharing::fair};
    if (level.torus) {
      add_torus(level, link);
    } else {
      links_.resize(links_.size() + 2 * place_.size(), link);
    }
    if (level.oversubscription > 1) {
      std::map<std::int64_t, std::pair<std::int32_t, std::int32_t>> switches;  // by number: (our index, ranks in it)
      for (const std::int64_t rank : place_) {
        auto& known = switches.try_emplace(rank / below, static_cast<std::int32_t>(switches.size()), 0).first->second;
        ++known.second;
        result.switch_of.push_back(known.first);
      }
      result.first_uplink = static_cast<std::int32_t>(links_.size());
      links_.resize(links_.size() + 2 * switches.size());
      for (const auto& [number, known] : switches) {
        const Link uplink{ps_per_byte * level.oversubscription / known.second, true};
        const auto up = static_cast<std::size_t>(result.first_uplink) + 2 * static_cast<std::size_t>(known.first);
        links_[up] = links_[up + 1] = uplink;
      }
    }
    levels_.push_back(std::move(result));
    below = level.ranks;
  }
}

void MachineNetwork::add_torus(const NetworkLevel& level, const Link& link) {
  torus_ = level.torus;
  torus_size_ = level.ranks;
  hop_ps_ = ps_of(level.torus->hop_us);
  for (const std::int64_t rank : place_) {
    const auto next = static_cast<std::int32_t>(links_.size());
    if (!torus_links_.try_emplace(rank / torus_size_, next).second) continue;
    links_.resize(links_.size() + 4 * static_cast<std::size_t>(torus_size_), link);
  }
}

std::size_t MachineNetwork::common_level(std::int32_t a, std::int32_t b) const {
  std::size_t level = 0;
  while (place_[static_cast<std::size_t>(a)] / levels_[level].ranks !=
         place_[static_cast<std::size_t>(b)] / levels_[level].ranks) {
    ++level;
  }
  return level;
}

bool MachineNetwork::are_on_one_torus(std::int32_t a, std::int32_t b) const {
  const auto torus_of = [&](std::int32_t rank) { return place_[static_cast<std::size_t>(rank)] / torus_size_; };
  return torus_.has_value() && torus_of(a) == torus_of(b);
}

template <class Take>
void MachineNetwork::along_torus(std::int64_t from, std::int64_t to, const Take& take) const {
  const std::int64_t columns = torus_->columns;
  const std::int64_t rows = torus_->rows;
  std::int64_t column = from % columns;
  std::int64_t row = from / columns;
  // Calls step(+1 or -1) until `at` has gone the shorter way around `size` places.
  const auto go = [](std::int64_t at, std::int64_t until, std::int64_t size, const auto& step) {
    const std::int64_t ahead = (until - at + size) % size;
    const std::int64_t steps = std::min(ahead, size - ahead);
    for (std::int64_t i = 0; i < steps; ++i) step(2 * ahead <= size ? 1 : -1);
  };
  go(column, to % columns, columns, [&](std::int64_t way) {
    take(row * columns + column, way > 0 ? 0 : 1);
    column = (column + way + columns) % columns;
  });
  go(row, to / columns, rows, [&](std::int64_t way) {
    take(row * columns + column, way > 0 ? 2 : 3);
    row = (row + way + rows) % rows;
  });
}

Path MachineNetwork::path_on_torus(std::int32_t from, std::int32_t to) const {
  const std::int64_t size = torus_size_;
  const std::int64_t torus = place_[static_cast<std::size_t>(from)] / size;
  const std::int32_t first = torus_links_.at(torus);
  Path path(levels_.front().latency_ps - hop_ps_, true);
  along_torus(place_[static_cast<std::size_t>(from)] % size, place_[static_cast<std::size_t>(to)] % size,
              [&](std::int64_t device, std::int32_t way) {
                path.add(first + static_cast<std::int32_t>(4 * device) + way);
                path.latency_ps += hop_ps_;
              });
  return path;
}

Path MachineNetwork::path(std::int32_t from, std::int32_t to) const {
  if (are_on_one_torus(from, to)) return path_on_torus(from, to);
  const Level& level = levels_[common_level(from, to)];
  Path path(level.latency_ps);
  path.add(level.first_port + 2 * from);
  if (level.first_uplink >= 0) {
    path.add(level.first_uplink + 2 * level.switch_of[static_cast<std::size_t>(from)]);
    path.add(level.first_uplink + 2 * level.switch_of[static_cast<std::size_t>(to)] + 1);
  }
  path.add(level.first_port + 2 * to + 1);
  return path;
}

// Links of a torus represent the links of devices one period further. Otherwise takes the sender's half of its own
// path, and the receiver's half of the path of the equivalent message to the receiver's representative.
Path MachineNetwork::path_of_period(std::int32_t from, std::int32_t to, std::int32_t period) const {
  const Path own = path(from, to);
  Path folded(own.latency_ps, own.is_buffered);
  if (are_on_one_torus(from, to)) {
    for (const std::int32_t link : own.links()) folded.add(link % (4 * period));
    return folded;
  }
  const auto num_ranks = static_cast<std::int32_t>(place_.size());
  const std::int32_t shift = to - to % period;
  const Path alike = path((from - shift + num_ranks) % num_ranks, to - shift);
  const std::size_t half = own.links().size() / 2;
  for (const std::int32_t link : own.links().first(half)) folded.add(link);
  for (const std::int32_t link : alike.links().subspan(half)) folded.add(link);
  return folded;
}

namespace {

using schedules::Comm;
using schedules::Group;
using schedules::Op;
using schedules::Step;
using schedules::Task;

bool is_expanded(const Step& step, const Task& task) {
  return task.comm != Comm::none && step.groups[static_cast<std::size_t>(task.peer)].ranks.size() > 1;
}

// A plan and the bytes of its steps for one payload.
struct SizedPlan {
  plan::Plan plan;
  plan::Contents contents;
  std::vector<std::int64_t> bytes;  // by step id
};

class Expansion {
 public:
  Expansion(Step& step, const PlanChoice& choose, double local_ps_per_byte)
      : step_(step), choose_(choose), local_ps_per_byte_(local_ps_per_byte), next_tag_(step.of_rank.size()) {}

  void run() {
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) {
      for (const Task& task : step_.of_rank[r].tasks) {
        if (schedules::is_recv(task.op)) next_tag_[r] = std::max(next_tag_[r], task.tag + 1);
      }
    }
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) number_receives(r);
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) rewrite(r);
  }

 private:
  // Identifies one of a group's collectives in a lane.
  struct CollectiveMeeting {
    std::int32_t group = 0;
    schedules::Lane lane = schedules::Lane::tensor;
    std::int32_t number = 0;
    // clang-tidy 14 takes the rewritten comparison's 0 for a pointer.
    friend auto operator<=>(const CollectiveMeeting&,
                            const CollectiveMeeting&) = default;  // NOLINT(modernize-use-nullptr)
  };
  // Identifies a message: its collective, sender, receiver, and index among theirs.
  using Name = std::tuple<CollectiveMeeting, std::int32_t, std::int32_t, std::int32_t>;

  const SizedPlan& plan_for(const Task& task) {
    const auto ranks = static_cast<int>(step_.groups[static_cast<std::size_t>(task.peer)].ranks.size());
    const auto key = std::tuple(task.comm, ranks, task.amount);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    SizedPlan sized{choose_(task.comm, ranks), {}, {}};
    if (plan::num_lanes(sized.plan) > 1) {
      throw core::usage_error("plan " + sized.plan.algorithm + " has " + std::to_string(plan::num_lanes(sized.plan)) +
                              " lanes; allowed in a simulated step: 1");
    }
    sized.contents = plan::contents_of(sized.plan);
    collectives::Operation operation{.kind = sized.plan.kind, .count = task.amount, .dtype = core::DType::u8};
    const bool in_blocks =
        task.comm == Comm::all_gather || task.comm == Comm::reduce_scatter || task.comm == Comm::all_to_all;
    if (in_blocks) operation.count = task.amount / ranks;
    sized.bytes = plan::step_bytes(sized.plan, sized.contents, operation);
    return plans_.emplace(key, std::move(sized)).first->second;
  }

  // Calls visit(task index, plan, the rank's index in the group, meeting).
  template <class Visit>
  void for_collectives(std::size_t r, const Visit& visit) {
    std::map<std::pair<std::int32_t, schedules::Lane>, std::int32_t>
        met;  // number of earlier collectives per group and lane
    for (std::uint32_t i = 0; i < step_.of_rank[r].tasks.size(); ++i) {
      const Task& task = step_.of_rank[r].tasks[i];
      if (!is_expanded(step_, task)) continue;
      const Group& group = step_.groups[static_cast<std::size_t>(task.peer)];
      const auto place = std::find(group.ranks.begin(), group.ranks.end(), static_cast<std::int32_t>(r));
      visit(i, plan_for(task), static_cast<int>(place - group.ranks.begin()),
            CollectiveMeeting{task.peer, task.lane, met[{task.peer, task.lane}]++});
    }
  }

  void number_receives(std::size_t r) {
    for_collectives(r, [&](std::uint32_t, const SizedPlan& sized, int place, const CollectiveMeeting& meeting) {
      std::map<int, std::int32_t> from;
      for (const plan::Step& step : steps_of(sized, place)) {
        if (!plan::reads_peer(step.op)) continue;
        tag_of_[{meeting, step.peer, place, from[step.peer]++}] = next_tag_[r]++;
      }
    });
  }

  static const std::vector<plan::Step>& steps_of(const SizedPlan& sized, int place) {
    static const std::vector<plan::Step> kNone;
    const auto& lanes = sized.plan.ranks[static_cast<std::size_t>(place)].lanes;
    return lanes.empty() ? kNone : lanes.front();
  }

  void rewrite(std::size_t r) {
    const schedules::RankStep old = step_.of_rank[r];
    schedules::RankRewriter out(old);
    std::uint32_t next = 0;
    for_collectives(r, [&](std::uint32_t i, const SizedPlan& sized, int place, const CollectiveMeeting& meeting) {
      for (; next < i; ++next) out.keep(next);
      put_steps(out, i, old.tasks[i], sized, place, meeting);
      next = i + 1;
    });
    for (; next < old.tasks.size(); ++next) out.keep(next);
    step_.of_rank[r] = out.take();
  }

  void put_steps(schedules::RankRewriter& out, std::uint32_t i, const Task& task, const SizedPlan& sized, int place,
                 const CollectiveMeeting& meeting) {
    std::map<int, std::int32_t> sent;
    std::map<int, std::int32_t> received;
    const auto& steps = steps_of(sized, place);
    std::uint32_t last = 0;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const plan::Step& step = steps[s];
      const int id = sized.contents.ids().id(place, 0, static_cast<int>(s));
      const std::int64_t bytes = sized.bytes[static_cast<std::size_t>(id)];
      const auto edges = s == 0 ? out.edges_of(i) : std::span<const std::uint32_t>();
      if (step.op == plan::Op::send) {
        const std::int32_t tag = tag_of_.at({meeting, place, step.peer, sent[step.peer]++});
        last = out.put(message_of(task, Op::send_chunk, step.peer, tag, bytes), edges);
      } else if (plan::reads_peer(step.op)) {
        const std::int32_t tag = tag_of_.at({meeting, step.peer, place, received[step.peer]++});
        last = out.put(message_of(task, Op::recv_chunk, step.peer, tag, bytes), edges);
        if (step.op == plan::Op::recv_reduce) last = out.put(local_work_of(task, bytes));
      } else {
        last = out.put(local_work_of(task, bytes), edges);
      }
    }
    out.replace(i, last);
  }

  Task message_of(Task task, Op op, int peer, std::int32_t tag, std::int64_t bytes) const {
    task.op = op;
    task.comm = Comm::none;
    task.peer = step_.groups[static_cast<std::size_t>(task.peer)].ranks[static_cast<std::size_t>(peer)];
    task.tag = tag;
    task.amount = bytes;
    task.issue_ps = 0;  // the collective is issued once
    return task;
  }

  Task local_work_of(Task task, std::int64_t bytes) const {
    task.comm = Comm::none;
    task.peer = -1;
    task.amount = std::llround(static_cast<double>(bytes) * local_ps_per_byte_);
    task.issue_ps = 0;
    return task;
  }

  Step& step_;
  const PlanChoice& choose_;
  double local_ps_per_byte_;
  std::vector<std::int32_t> next_tag_;  // per rank
  std::map<std::tuple<Comm, int, std::int64_t>, SizedPlan> plans_;
  std::map<Name, std::int32_t> tag_of_;
};

}  // namespace

plan::Plan ring_plan(Comm comm, int ranks) {
  const bool from_one = comm == Comm::broadcast || comm == Comm::reduce;
  const char* algorithm = comm == Comm::all_to_all ? "pairwise"
                          : comm == Comm::shift    ? "direct"
                          : from_one               ? "chain"
                                                   : "ring";
  return algorithms::make_plan(algorithms::parse_choice(kind_of(comm), algorithm), ranks, 0);
}

void expand_collectives(Step& step, const PlanChoice& choose, double local_ps_per_byte) {
  Expansion(step, choose, local_ps_per_byte).run();
}

}  // namespace lockstep::simulator
