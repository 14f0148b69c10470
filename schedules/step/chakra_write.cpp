// A step as a Chakra trace.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "schedules/schedule.h"
#include "schedules/step/traces.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kPsPerUs = 1'000'000;

std::int64_t number_of(Comm comm) {
  const auto* const found = std::find_if(kChakraCollectives.begin(), kChakraCollectives.end(),
                                         [&](const ChakraCollective& collective) { return collective.comm == comm; });
  return found - kChakraCollectives.begin();
}

class TraceMaker {
 public:
  explicit TraceMaker(const Step& step) : step_(step), nodes_of_(step.of_rank.size()), receives_(step.of_rank.size()) {
    for (const Group& group : step.groups) {
      LOCKSTEP_CHECK(group.size() == static_cast<std::int64_t>(group.ranks.size()), "a trace needs every rank");
    }
    name_communicators();
  }

  ChakraTrace run() {
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) add_rank(r);
    return std::move(trace_);
  }

 private:
  struct Communicator {
    std::int32_t number = 0;  // from 1, as 0 stands for all ranks in ASTRA-sim
    std::string name;
  };

  // A lane of a group is a communicator. Shifts become messages and need none, but a number for their tags.
  void name_communicators() {
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) {
      for (const Task& task : step_.of_rank[r].tasks) {
        if (task.comm != Comm::none) communicators_.try_emplace({task.peer, task.lane});
        if (is_recv(task.op)) receives_[r] = std::max(receives_[r], task.tag + 1);
      }
    }
    std::int32_t number = 0;
    for (auto& [key, communicator] : communicators_) {
      communicator = {++number, std::to_string(number)};
      trace_.groups[communicator.name] = step_.groups[static_cast<std::size_t>(key.first)].ranks;
    }
  }

  void add_rank(std::size_t r) {
    const RankStep& rank = step_.of_rank[r];
    auto& nodes = trace_.of_rank.emplace_back();
    auto& nodes_of = nodes_of_[r];  // ids of each task's nodes
    std::array<std::optional<std::size_t>, kNumLanes> last;
    std::map<std::int32_t, std::int32_t> shifts;  // number so far, per communicator
    for (const Task& task : rank.tasks) {
      ChakraNode node = node_of(task);
      std::set<std::uint64_t> before;
      auto& last_of_lane = last[static_cast<std::size_t>(task.lane)];
      if (last_of_lane) before.insert(nodes_of[*last_of_lane].begin(), nodes_of[*last_of_lane].end());
      for (const std::uint32_t earlier : rank.after_of(task))
        before.insert(nodes_of[earlier].begin(), nodes_of[earlier].end());
      node.dependencies.assign(before.begin(), before.end());
      last_of_lane = nodes_of.size();
      nodes_of.emplace_back();
      for (ChakraNode& written : with_peers(std::move(node), task, r, shifts)) {
        written.id = nodes.size() + 1;
        nodes_of.back().push_back(written.id);
        nodes.push_back(std::move(written));
      }
    }
  }

  static ChakraNode node_of(const Task& task) {
    ChakraNode node;
    node.texts = {{"lane", std::string(name_of(task.lane))}, {"op", std::string(name_of(task.op))}};
    for (const auto& [name, value] :
         {std::pair("stage", task.stage), std::pair("microbatch", task.microbatch), std::pair("part", task.part)}) {
      if (value >= 0) node.numbers[name] = value;
    }
    if (task.issue_ps > 0) node.numbers["issue_ps"] = task.issue_ps;
    if (task.host_waits) node.numbers["host_waits"] = 1;
    node.name = token_of({task.op, task.stage, task.microbatch});
    if (task.part >= 0) node.name += fmt::format(" part {}", task.part);
    node.numbers["is_cpu_op"] = 0;
    return node;
  }

  std::vector<ChakraNode> with_peers(ChakraNode node, const Task& task, std::size_t rank,
                                     std::map<std::int32_t, std::int32_t>& shifts) const {
    const auto here = static_cast<std::int32_t>(rank);
    if (is_send(task.op)) return {message(node, ChakraType::comm_send, here, task.peer, task.tag, task.amount)};
    if (is_recv(task.op)) return {message(node, ChakraType::comm_recv, task.peer, here, task.tag, task.amount)};
    if (task.comm == Comm::none) return {kernel(std::move(node), task)};
    const Communicator& communicator = communicators_.at({task.peer, task.lane});
    const Group& group = step_.groups[static_cast<std::size_t>(task.peer)];
    node.name = fmt::format("{} {}", name_of(task.comm), node.name);
    node.texts["group"] = name_of(group.kind);
    if (task.comm != Comm::shift) return {collective(std::move(node), task, communicator, group)};

    // To the next member, from the previous one. Tags follow the tags of the messages that the receiver has.
    const std::size_t size = group.ranks.size();
    const auto at =
        static_cast<std::size_t>(std::find(group.ranks.begin(), group.ranks.end(), here) - group.ranks.begin());
    const std::int32_t next = group.ranks[(at + 1) % size];
    const std::int32_t previous = group.ranks[(at + size - 1) % size];
    const auto tag =
        shifts[communicator.number]++ * static_cast<std::int32_t>(communicators_.size()) + communicator.number;
    const auto tag_at = [&](std::int32_t receiver) { return receives_[static_cast<std::size_t>(receiver)] + tag; };
    node.texts.erase("op");
    return {message(node, ChakraType::comm_send, here, next, tag_at(next), task.amount),
            message(node, ChakraType::comm_recv, previous, here, tag_at(here), task.amount)};
  }

  static ChakraNode message(ChakraNode node, ChakraType type, std::int32_t from, std::int32_t to, std::int32_t tag,
                            std::int64_t bytes) {
    node.type = type;
    node.numbers["comm_src"] = from;
    node.numbers["comm_dst"] = to;
    node.numbers["comm_tag"] = tag;
    node.numbers["comm_size"] = bytes;
    return node;
  }

  // Copies to the host and kernels on the host run concurrently with the device's kernels: work of the CPU to other
  // readers.
  static ChakraNode kernel(ChakraNode node, const Task& task) {
    node.type = ChakraType::comp;
    node.duration_us = (task.amount + kPsPerUs / 2) / kPsPerUs;
    node.numbers["duration_ps"] = task.amount;
    node.numbers["is_cpu_op"] = task.lane == Lane::compute ? 0 : 1;
    return node;
  }

  static ChakraNode collective(ChakraNode node, const Task& task, const Communicator& communicator,
                               const Group& group) {
    node.type = ChakraType::comm_coll;
    node.numbers["comm_type"] = number_of(task.comm);
    const std::int64_t parts = task.comm == Comm::all_gather ? group.size() : 1;
    node.numbers["comm_size"] = (task.amount + parts - 1) / parts;
    if (task.amount % parts != 0) node.numbers["payload_bytes"] = task.amount;
    node.texts["pg_name"] = communicator.name;
    return node;
  }

  const Step& step_;
  std::map<std::pair<std::int32_t, Lane>, Communicator> communicators_;
  std::vector<std::vector<std::vector<std::uint64_t>>> nodes_of_;  // [rank][task]
  std::vector<std::int32_t> receives_;                             // per rank: tags of its receives are below
  ChakraTrace trace_;
};

}  // namespace

ChakraTrace to_chakra(const Step& step) {
  return TraceMaker(step).run();
}

}  // namespace lockstep::schedules
