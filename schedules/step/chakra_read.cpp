// A Chakra trace as a step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/record_json.h"
#include "schedules/schedule.h"
#include "schedules/step/traces.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kPsPerUs = 1'000'000;
constexpr std::int64_t kMostPs = 1'000'000'000'000'000'000;  // a rank's nodes together: 11 days
constexpr std::size_t kMostEdges = 1000;                     // per task; a join of more nodes keeps one per lane
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U;

template <class Enum>
std::optional<Enum> named(const std::map<std::string, std::string>& texts, const char* attribute, std::size_t count) {
  const auto found = texts.find(attribute);
  for (std::size_t i = 0; found != texts.end() && i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == found->second) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// Text of a file as part of a line: cut, and without control characters.
std::string shown(std::string text, std::size_t most) {
  if (text.size() > most) text = text.substr(0, most) + "...";
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// Attributes that name a collective's group: the current ones, and the ones of older generators.
constexpr std::array<std::string_view, 3> kGroupAttributes{"pg_name", "comm_group", "communicator_id"};

std::optional<std::string> group_name_of(const ChakraNode& node) {
  for (const std::string_view attribute : kGroupAttributes) {
    const std::string name(attribute);
    if (const auto text = node.texts.find(name); text != node.texts.end() && !text->second.empty()) return text->second;
    if (const auto number = node.numbers.find(name); number != node.numbers.end())
      return std::to_string(number->second);
  }
  return std::nullopt;
}

// Other attributes that are read.
constexpr std::array<std::string_view, 20> kRead{
    "is_cpu_op", "num_ops",    "tensor_size", "tensor_loc", "comm_type",     "comm_size",   "comm_src",
    "comm_dst",  "comm_tag",   "duration_ps", "issue_ps",   "host_waits",    "lane",        "op",
    "stage",     "microbatch", "part",        "group",      "payload_bytes", "involved_dim"};
bool is_read(std::string_view name) {
  return std::find(kRead.begin(), kRead.end(), name) != kRead.end() ||
         std::find(kGroupAttributes.begin(), kGroupAttributes.end(), name) != kGroupAttributes.end();
}

class StepMaker {
 public:
  StepMaker(const ChakraTrace& trace, const std::string& prefix, const ChakraPrices& prices)
      : trace_(trace), prefix_(prefix), prices_(prices), groups_(trace.groups) {
    step_.name = prefix;
    step_.of_rank.resize(trace.of_rank.size());
    nodes_of_.resize(trace.of_rank.size());
    for (const auto& nodes : trace.of_rank) {
      for (const ChakraNode& node : nodes) {
        is_ours_ &= node.texts.contains("lane");
        names_groups_ |= group_name_of(node).has_value();
        count_unread(node);
      }
    }
  }

  ReadChakra run() {
    for (rank_ = 0; rank_ < trace_.of_rank.size(); ++rank_) add_process_groups();
    for (const auto& [name, ranks] : groups_) check_group(name, ranks);
    for (rank_ = 0; rank_ < trace_.of_rank.size(); ++rank_) add_rank();
    number_messages();
    compare_members();
    ReadChakra result{std::move(step_), is_ours_, {}, notes()};
    for (std::size_t r = 0; !is_ours_ && r < nodes_of_.size(); ++r) {
      auto& names = result.names.emplace_back();
      for (const ChakraNode* const node : nodes_of_[r]) names.push_back(node->name);
    }
    return result;
  }

 private:
  void count_unread(const ChakraNode& node) {
    for (const std::string& name : node.unread) ++unread_[name];
    for (const auto& [name, value] : node.numbers) {
      if (!is_read(name)) ++unread_[name];
    }
    for (const auto& [name, value] : node.texts) {
      if (!is_read(name)) ++unread_[name];
    }
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    for (const auto& [what, count] : counted_) notes.push_back(fmt::format("{} {}", count, what));
    std::string names;
    for (const auto& [name, count] : unread_) names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", name, count);
    if (!unread_.empty())
      notes.push_back("fields and attributes that are not read, and their nodes: " + shown(names, 400));
    return notes;
  }

  core::Error refused(std::size_t rank, const ChakraNode& node, const std::string& text) const {
    return core::usage_error(
        fmt::format("{}, node {} ({}): {}", chakra_file_name(prefix_, rank), node.id, shown(node.name, 60), text));
  }
  core::Error refused(const ChakraNode& node, const std::string& text) const { return refused(rank_, node, text); }

  nlohmann::json process_groups_of(const ChakraNode& node, const std::string& text) const {
    try {
      return core::parse_json(text, "process groups");
    } catch (const core::Error& error) {
      throw refused(node, error.what() + std::string("; allowed: PyTorch's process_group:init"));
    }
  }

  // PyTorch's profiler describes its process groups in a metadata node: a list with one text, which is JSON.
  void add_process_groups() {
    for (const ChakraNode& node : trace_.of_rank[rank_]) {
      const std::size_t begin = node.input_values.find("[{");
      const std::size_t end = node.input_values.rfind("}]");
      if (node.type != ChakraType::metadata || begin == std::string::npos || end == std::string::npos || end < begin)
        continue;
      const nlohmann::json json = process_groups_of(node, node.input_values.substr(begin, end + 2 - begin));
      for (const auto& group : json) {
        if (!group.is_object() || !group.contains("pg_name") || !group.contains("ranks") ||
            !group["pg_name"].is_string())
          continue;
        nlohmann::json members = group["ranks"];
        if (members.empty()) members = all_ranks();  // as PyTorch writes all ranks
        if (members.is_object()) {                   // older versions of PyTorch: each rank with its index in the group
          members = nlohmann::json::array();
          for (const auto& entry : group["ranks"].items())
            members.push_back(nlohmann::json::parse(entry.key(), nullptr, false));
        }
        const std::string text = nlohmann::json{{group["pg_name"].get<std::string>(), members}}.dump(
            -1, ' ', false, nlohmann::json::error_handler_t::replace);
        for (const auto& [name, ranks] : parse_chakra_groups(text, chakra_file_name(prefix_, rank_)))
          groups_[name] = ranks;
      }
    }
  }

  void check_group(const std::string& name, const std::vector<std::int32_t>& ranks) const {
    const std::set<std::int32_t> different(ranks.begin(), ranks.end());
    if (different.size() != ranks.size()) throw core::usage_error(prefix_ + ": group " + name + " has a rank twice");
    if (*different.rbegin() < static_cast<std::int32_t>(trace_.of_rank.size())) return;
    throw core::usage_error(
        fmt::format("{}: group {} has rank {}, and there are {} files; allowed: a file for each rank", prefix_, name,
                    *different.rbegin(), trace_.of_rank.size()));
  }

  void add_rank() {
    const auto& nodes = trace_.of_rank[rank_];
    RankStep& rank = step_.of_rank[rank_];
    std::map<std::uint64_t, std::uint32_t> task_of;
    std::int64_t sum_ps = 0;
    for (const std::size_t n : in_order(nodes)) {
      Task task = task_of_node(nodes[n]);
      if (task.comm == Comm::none && !is_message(task.op)) sum_ps += task.amount;
      sum_ps += task.issue_ps;
      if (sum_ps > kMostPs) throw refused(nodes[n], "the rank's nodes take more than 11 days");
      std::set<std::uint32_t> after;  // tasks of the same lane end before it anyway
      for (const std::uint64_t id : nodes[n].dependencies) {
        const auto found = task_of.find(id);
        if (found == task_of.end()) {
          ++counted_["dependencies on nodes that the files do not have (converters drop nodes): left out"];
        } else if (rank.tasks[found->second].lane != task.lane) {
          after.insert(found->second);
        }
      }
      if (after.size() > kMostEdges) after = last_of_lanes(rank, after);
      task.first_after = static_cast<std::uint32_t>(rank.after.size());
      task.num_after = static_cast<std::uint32_t>(after.size());
      rank.after.insert(rank.after.end(), after.begin(), after.end());
      task_of[nodes[n].id] = static_cast<std::uint32_t>(rank.tasks.size());
      rank.tasks.push_back(task);
      nodes_of_[rank_].push_back(&nodes[n]);
    }
  }

  // As lanes run in order, the last task of each stands for all.
  static std::set<std::uint32_t> last_of_lanes(const RankStep& rank, const std::set<std::uint32_t>& tasks) {
    std::array<std::optional<std::uint32_t>, kNumLanes> last;
    for (const std::uint32_t task : tasks) last[static_cast<std::size_t>(rank.tasks[task].lane)] = task;
    std::set<std::uint32_t> kept;
    for (const auto& task : last) {
      if (task) kept.insert(*task);
    }
    return kept;
  }

  // Indices of nodes in topological order; the smallest number first.
  std::vector<std::size_t> in_order(const std::vector<ChakraNode>& nodes) const {
    std::map<std::uint64_t, std::size_t> index_of;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      if (!index_of.try_emplace(nodes[n].id, n).second) throw refused(nodes[n], "another node has the same number");
    }
    std::vector<std::vector<std::size_t>> next(nodes.size());
    std::vector<std::size_t> waits(nodes.size());
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (const std::uint64_t id : nodes[n].dependencies) {
        const auto found = index_of.find(id);
        if (found == index_of.end()) continue;  // counted by add_rank()
        next[found->second].push_back(n);
        ++waits[n];
      }
    }
    std::set<std::pair<std::uint64_t, std::size_t>> ready;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      if (waits[n] == 0) ready.insert({nodes[n].id, n});
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      const std::size_t n = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(n);
      for (const std::size_t other : next[n]) {
        if (--waits[other] == 0) ready.insert({nodes[other].id, other});
      }
    }
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t left) { return left > 0; });
    if (stuck == waits.end()) return order;
    throw refused(nodes[static_cast<std::size_t>(stuck - waits.begin())], "depends on itself, through others");
  }

  Task task_of_node(const ChakraNode& node) {
    Task task;
    const auto number = [&](const char* name, std::int64_t otherwise) {
      const auto found = node.numbers.find(name);
      return found == node.numbers.end() ? otherwise : found->second;
    };
    const auto small = [&](const char* name) {
      const std::int64_t value = number(name, -1);
      return value < 0 || value > 1'000'000'000 ? -1 : static_cast<std::int32_t>(value);
    };
    task.stage = small("stage");
    task.microbatch = small("microbatch");
    task.part = small("part");
    task.issue_ps = std::clamp<std::int64_t>(number("issue_ps", 0), 0, kMostPs);
    task.host_waits = number("host_waits", 0) != 0;
    const auto op = named<Op>(node.texts, "op", static_cast<std::size_t>(Op::filler) + 1);
    const auto lane = named<Lane>(node.texts, "lane", kNumLanes);
    switch (node.type) {
      case ChakraType::comm_coll:
        task.op = op.value_or(Op::layer_collective);
        fill_collective(task, node, lane);
        return task;
      case ChakraType::comm_send:
      case ChakraType::comm_recv:
        fill_message(task, node, op, lane);
        return task;
      default:
        break;
    }
    const bool is_invalid = node.type == ChakraType::invalid;
    if (is_invalid) ++counted_["nodes of type INVALID_NODE: their duration counts on the host"];
    const bool on_host = number("is_cpu_op", 0) != 0 || is_invalid || node.type == ChakraType::metadata;
    const bool copies = node.type == ChakraType::mem_load || node.type == ChakraType::mem_store;
    task.op = op.value_or(copies ? (node.type == ChakraType::mem_load ? Op::load : Op::offload) : Op::filler);
    if (is_message(task.op)) task.op = Op::filler;
    task.lane = lane.value_or(copies ? Lane::copy : on_host ? Lane::host : Lane::compute);
    if (node.duration_us < 0 || node.duration_us > kMostPs / kPsPerUs) throw refused(node, "takes more than 11 days");
    const bool is_timed = node.duration_us > 0 || node.numbers.contains("duration_ps");
    task.amount = is_timed ? number("duration_ps", node.duration_us * kPsPerUs) : priced(node, copies);
    if (task.amount < 0 || task.amount > kMostPs) throw refused(node, "takes more than 11 days");
    return task;
  }

  // The time of a node that has sizes in place of a duration, as generators of traces write them.
  std::int64_t priced(const ChakraNode& node, bool copies) {
    const bool has_size = node.numbers.contains("tensor_size");
    if (copies && has_size) {
      constexpr std::int64_t kLocal = 1;  // tensor_loc, the MemoryType of Chakra's first schema
      const auto place = node.numbers.find("tensor_loc");
      const bool is_local = place != node.numbers.end() && place->second == kLocal;
      ++counted_[is_local ? "memory nodes without a duration: tensor_size at the bandwidth of the device's memory"
                          : "memory nodes without a duration: tensor_size at the bandwidth of the link to the host"];
      return prices_.memory(static_cast<double>(needed(node, "tensor_size", kMostBytes)), is_local);
    }
    if (node.type == ChakraType::comp && (has_size || node.numbers.contains("num_ops"))) {
      ++counted_["compute nodes without a duration: max(num_ops / peak, tensor_size / bandwidth) of the machine"];
      const auto size_of = [&](const char* name) {
        return node.numbers.contains(name) ? static_cast<double>(needed(node, name, std::int64_t{1} << 62U)) : 0.0;
      };
      return prices_.compute(size_of("num_ops"), size_of("tensor_size"));
    }
    if (copies) ++counted_["memory nodes without duration and tensor_size: take no time"];
    if (node.type == ChakraType::comp)
      ++counted_["compute nodes without duration, num_ops and tensor_size: take no time"];
    return 0;
  }

  std::int64_t needed(const ChakraNode& node, const char* name, std::int64_t most) const {
    const auto found = node.numbers.find(name);
    if (found == node.numbers.end()) throw refused(node, fmt::format("has no attribute {}", name));
    if (found->second >= 0 && found->second <= most) return found->second;
    throw refused(node, fmt::format("{} is {}; allowed: 0 to {}", name, found->second, most));
  }

  void fill_collective(Task& task, const ChakraNode& node, std::optional<Lane> lane) {
    const std::int64_t type = needed(node, "comm_type", static_cast<std::int64_t>(kChakraCollectives.size()) - 1);
    const ChakraCollective& known = kChakraCollectives[static_cast<std::size_t>(type)];
    if (known.comm == Comm::none) {
      throw refused(node,
                    fmt::format("comm_type {} ({}) is not read; allowed: ALL_REDUCE, REDUCE, ALL_GATHER, BROADCAST, "
                                "ALL_TO_ALL, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK",
                                type, known.name));
    }
    task.comm = known.comm;
    task.peer = group_of(node);
    const Group& group = step_.groups[static_cast<std::size_t>(task.peer)];
    task.amount = needed(node, "comm_size", kMostBytes);
    if (task.comm == Comm::all_gather) task.amount *= group.size();
    if (const auto exact = node.numbers.find("payload_bytes"); exact != node.numbers.end()) {
      task.amount = std::clamp<std::int64_t>(exact->second, 0, task.amount);
    }
    constexpr std::array kLanes{Lane::tensor, Lane::gather, Lane::reduce, Lane::replicas};
    task.lane = lane.value_or(kLanes[static_cast<std::size_t>(task.peer) % kLanes.size()]);
  }

  std::vector<std::int32_t> all_ranks() const {
    std::vector<std::int32_t> ranks(trace_.of_rank.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  // The name under which a collective's group is kept; empty: all ranks, as ASTRA-sim takes no name, and "0" unless it
  // is described. The first ASTRA-sim's traces name no group: their collectives are of the group of the groups file
  // that has the rank.
  std::string key_of_group(const ChakraNode& node) {
    if (const auto name = group_name_of(node)) {
      if (groups_.contains(*name)) return *name;
      if (*name == "0") return "";
      throw refused(node,
                    fmt::format("pg_name \"{}\" is described nowhere; allowed: a group of the groups file (--groups)",
                                shown(*name, 60)));
    }
    std::optional<std::string> mine;
    for (const auto& [name, ranks] : trace_.groups) {
      const bool has_rank = std::find(ranks.begin(), ranks.end(), static_cast<std::int32_t>(rank_)) != ranks.end();
      if (!has_rank || names_groups_) continue;
      if (mine)
        throw refused(node,
                      fmt::format("names no group, and its rank is in {} and {} of the groups file", *mine, name));
      mine = name;
    }
    if (mine) ++counted_["collectives without pg_name: of the one described group that has their rank"];
    if (mine) return *mine;
    const auto& spans = node.involved_dim;
    if (std::find(spans.begin(), spans.end(), false) == spans.end()) return "";
    throw refused(node, fmt::format("involved_dim selects some of {} dimensions of a network that the trace does not "
                                    "describe; allowed: all, or pg_name and a groups file (--groups)",
                                    spans.size()));
  }

  std::int32_t group_of(const ChakraNode& node) {
    const std::string name = key_of_group(node);
    auto [known, is_new] = group_index_.try_emplace(name, static_cast<std::int32_t>(step_.groups.size()));
    if (is_new) {
      Group group;
      group.kind = named<GroupKind>(node.texts, "group", kNumGroupKinds).value_or(GroupKind::world);
      group.ranks = name.empty() ? all_ranks() : groups_.at(name);
      step_.groups.push_back(std::move(group));
    }
    const auto& ranks = step_.groups[static_cast<std::size_t>(known->second)].ranks;
    if (std::find(ranks.begin(), ranks.end(), static_cast<std::int32_t>(rank_)) == ranks.end()) {
      throw refused(node, fmt::format("rank {} is not in group {}", rank_, known->first));
    }
    return known->second;
  }

  void fill_message(Task& task, const ChakraNode& node, std::optional<Op> op, std::optional<Lane> lane) const {
    const bool sends = node.type == ChakraType::comm_send;
    task.op = op.value_or(sends ? Op::send_chunk : Op::recv_chunk);
    if (is_send(task.op) != sends || is_recv(task.op) == sends) task.op = sends ? Op::send_chunk : Op::recv_chunk;
    task.lane = lane.value_or(sends ? Lane::send : Lane::receive);
    task.peer = static_cast<std::int32_t>(
        needed(node, sends ? "comm_dst" : "comm_src", static_cast<std::int64_t>(trace_.of_rank.size()) - 1));
    if (task.peer == static_cast<std::int32_t>(rank_)) throw refused(node, "is a message of a rank to itself");
    const auto found = node.numbers.find("comm_tag");
    task.tag = found == node.numbers.end() ? 0 : static_cast<std::int32_t>(found->second);
    task.amount = needed(node, "comm_size", kMostBytes);
  }

  // Pairs sends with receives by sender, receiver and tag, in their order, and numbers them as a Step does.
  void number_messages() {
    using Key = std::tuple<std::size_t, std::size_t, std::int32_t>;
    using RankTask = std::pair<std::size_t, std::size_t>;  // rank, task
    std::map<Key, std::deque<RankTask>> receives;
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) {
      auto& tasks = step_.of_rank[r].tasks;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (is_recv(tasks[i].op))
          receives[{static_cast<std::size_t>(tasks[i].peer), r, tasks[i].tag}].push_back({r, i});
      }
    }
    number_receives();
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) {
      auto& tasks = step_.of_rank[r].tasks;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (!is_send(tasks[i].op)) continue;
        auto& waiting = receives[{r, static_cast<std::size_t>(tasks[i].peer), tasks[i].tag}];
        const std::string to = fmt::format("rank {} (comm_tag {})", tasks[i].peer, tasks[i].tag);
        if (waiting.empty()) throw refused(r, *nodes_of_[r][i], "no COMM_RECV_NODE of " + to + " takes this message");
        const auto [receiver, index] = waiting.front();
        waiting.pop_front();
        const Task& receive = step_.of_rank[receiver].tasks[index];
        if (receive.amount != tasks[i].amount) {
          throw refused(r, *nodes_of_[r][i],
                        fmt::format("sends {} bytes, and {} receives {}", tasks[i].amount, to, receive.amount));
        }
        tasks[i].tag = receive.tag;
      }
    }
    for (const auto& [key, left] : receives) {
      if (left.empty()) continue;
      const auto [r, i] = left.front();
      throw refused(r, *nodes_of_[r][i],
                    fmt::format("no COMM_SEND_NODE of rank {} sends this message", std::get<0>(key)));
    }
  }
  void number_receives() {
    for (RankStep& rank : step_.of_rank) {
      std::int32_t tag = 0;
      for (Task& task : rank.tasks) {
        if (is_recv(task.op)) task.tag = tag++;
      }
    }
  }

  // The k-th collective of a group in a lane is the same at each member.
  void compare_members() const {
    for (const StepProblem& problem : check_collectives(step_, 1)) {
      const auto r = static_cast<std::size_t>(problem.rank);
      throw refused(r, *nodes_of_[r][problem.task], problem.what);
    }
  }

  const ChakraTrace& trace_;
  const std::string& prefix_;
  const ChakraPrices& prices_;
  bool is_ours_ = true;
  std::map<std::string, std::size_t> counted_;  // note -> number of times
  std::map<std::string, std::size_t> unread_;   // fields and attributes -> number of nodes
  bool names_groups_ = false;                   // a node of the trace does
  ChakraGroups groups_;
  std::map<std::string, std::int32_t> group_index_;
  std::vector<std::vector<const ChakraNode*>> nodes_of_;  // [rank][task]
  std::size_t rank_ = 0;
  Step step_;
};

}  // namespace

ReadChakra read_chakra(const ChakraTrace& trace, const std::string& prefix, const ChakraPrices& prices) {
  return StepMaker(trace, prefix, prices).run();
}

}  // namespace lockstep::schedules
