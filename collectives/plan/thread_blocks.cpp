#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "collectives/plan/check.h"
#include "collectives/plan/check_parts.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/msccl_parts.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::plan {

// ---- from thread blocks to lanes

namespace {

const ThreadBlock& block_of(const ThreadBlocks& all, const StepIndex& place) {
  return all.blocks[at(place.rank)][at(place.lane)];
}

core::Error refused(const ThreadBlocks& from, std::string_view source, const StepIndex& where,
                    const std::string& what) {
  if (where.step < 0) return core::usage_error(fmt::format("{}: {}", source, what));
  return core::usage_error(fmt::format("{}:{}: gpu {} tb {}: {}: {}", source,
                                       from.lines[at(where.rank)][at(where.lane)][at(where.step)], where.rank,
                                       where.lane, to_text(step_at(from.plan, where)), what));
}

// The parts of check() that speak of one rank's lanes alone, while these still are the thread blocks: afterwards, what
// one lane does in order may have been side by side.
void check_blocks(const ThreadBlocks& from, std::string_view source) {
  const auto throw_first = [&](Problems& problems, const char* note) {
    if (problems.empty()) return;
    const Problem first = problems.take().front();
    throw refused(from, source, first.where, first.what + note);
  };
  Problems problems;
  check_shape(from.plan, problems);
  throw_first(problems, "");
  const StepIds ids(from.plan);
  const Messages none;
  for (const bool in_place : {false, true}) {
    if (!(in_place ? from.in_place : from.out_of_place)) continue;
    check_races(from.plan, ids, Locations(from.plan, in_place), problems);
    throw_first(problems, in_place ? " (in place; a lane is a tb here)" : " (a lane is a tb here)");
  }
}

// Runs thread blocks in turns, one step each, and notes the order: a step runs once its lane has come to it, the steps
// that it waits for are done, and its message has arrived. Messages arrive when nothing else can run, so that no send
// follows a receive that it does not need: the longest chain of messages stays as it was.
class Turns {
 public:
  Turns(const ThreadBlocks& from, std::string_view source) : from_(from), source_(source) {
    for (int rank = 0; rank < from.plan.num_ranks; ++rank) {
      const auto& lanes = from.plan.ranks[at(rank)].lanes;
      next_.emplace_back(lanes.size(), 0);
      for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) waiting_.push_back({rank, lane, 0});
    }
  }

  std::vector<StepIndex> order() {
    while (!waiting_.empty()) {
      const std::size_t before = order_.size();
      std::erase_if(waiting_, [this](const StepIndex& place) { return place.step == num_steps(place); });
      for (StepIndex& place : waiting_) {
        if (can_run(place)) run(place);
      }
      if (order_.size() > before || waiting_.empty()) continue;
      if (sent_.empty()) refuse_endless_wait();
      for (const Connection& connection : std::exchange(sent_, {})) ++arrived_[connection];
    }
    return std::move(order_);
  }

 private:
  using Connection = std::tuple<int, int, int>;  // from, to, channel

  int num_steps(const StepIndex& place) const {
    return static_cast<int>(from_.plan.ranks[at(place.rank)].lanes[at(place.lane)].size());
  }
  Connection sends_on(const StepIndex& place) const {
    return {place.rank, step_at(from_.plan, place).peer, block_of(from_, place).channel};
  }
  Connection receives_on(const StepIndex& place) const {
    return {step_at(from_.plan, place).peer, place.rank, block_of(from_, place).channel};
  }

  // The step that must be done first; nullptr: none.
  const After* awaited(const StepIndex& place) const {
    for (const After& after : step_at(from_.plan, place).after) {
      if (next_[at(place.rank)][at(after.lane)] <= after.step) return &after;
    }
    return nullptr;
  }

  bool can_run(const StepIndex& place) {
    if (awaited(place) != nullptr) return false;
    return !reads_peer(step_at(from_.plan, place).op) || arrived_[receives_on(place)] > 0;
  }

  void run(StepIndex& place) {
    const Op op = step_at(from_.plan, place).op;
    if (op == Op::send) sent_.push_back(sends_on(place));
    if (reads_peer(op)) --arrived_[receives_on(place)];
    order_.push_back(place);
    next_[at(place.rank)][at(place.lane)] = ++place.step;
  }

  [[noreturn]] void refuse_endless_wait() const {
    const StepIndex& place = waiting_.front();
    const After* const after = awaited(place);
    if (after != nullptr) {
      const int line = from_.lines[at(place.rank)][at(after->lane)][at(after->step)];
      throw refused(from_, source_, place, fmt::format("waits forever for tb {}, line {}", after->lane, line));
    }
    throw refused(from_, source_, place,
                  fmt::format("waits forever for a message from rank {} on channel {}", step_at(from_.plan, place).peer,
                              block_of(from_, place).channel));
  }

  const ThreadBlocks& from_;
  std::string_view source_;
  std::vector<std::vector<int>> next_;  // [rank][lane]
  std::vector<StepIndex> waiting_;      // each lane's next step
  std::vector<Connection> sent_;        // messages that have not arrived
  std::map<Connection, int> arrived_;   // messages that are not received
  std::vector<StepIndex> order_;
};

// Puts steps, in the order of Turns, into lanes.
class Joining {
 public:
  explicit Joining(const ThreadBlocks& from) : from_(from), plan_(from.plan) {
    for (const auto& of_rank : from.blocks) {
      for (const ThreadBlock& block : of_rank) lane_of_channel_.try_emplace(block.channel);
    }
    int lanes = 0;
    for (auto& [channel, lane] : lane_of_channel_) lane = lanes++;
    for (RankSteps& rank : plan_.ranks) rank.lanes.assign(at(lanes), {});
    lines_.assign(plan_.ranks.size(), std::vector<std::vector<int>>(at(lanes)));
    waited_.assign(plan_.ranks.size(), std::vector<std::vector<int>>(at(lanes), std::vector<int>(at(lanes), -1)));
    for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
      moved_.emplace_back(from.blocks[rank].size());
      if (!from.out_of_place) names_.emplace_back(from.plan, static_cast<int>(rank));
    }
  }

  Plan run(const std::vector<StepIndex>& order) {
    for (const StepIndex& place : order) {
      const int lane = lane_of_channel_.at(block_of(from_, place).channel);
      const int line = from_.lines[at(place.rank)][at(place.lane)][at(place.step)];
      add(place.rank, lane, line, moved(place));
      const int index = static_cast<int>(plan_.ranks[at(place.rank)].lanes[at(lane)].size()) - 1;
      moved_[at(place.rank)][at(place.lane)].push_back({lane, index});
    }
    for (std::size_t rank = 0; rank < names_.size(); ++rank) finish_in_place(static_cast<int>(rank));
    return std::move(plan_);
  }
  StepLines& lines() { return lines_; }

 private:
  // The step with its waits named by where the awaited steps stand now.
  Step moved(const StepIndex& place) const {
    Step step = step_at(from_.plan, place);
    for (After& after : step.after) after = moved_[at(place.rank)][at(after.lane)][at(after.step)];
    return step;
  }

  void add(int rank, int lane, int line, Step step) {
    if (names_.empty()) return append(rank, lane, line, std::move(step));
    // A step may need copies in front of it; they take over its waits.
    for (Step& copy : names_[at(rank)].rename(step, end_of(rank, lane))) append(rank, lane, line, std::move(copy));
    append(rank, lane, line, std::move(step));
  }

  After end_of(int rank, int lane) const {
    return {lane, static_cast<int>(plan_.ranks[at(rank)].lanes[at(lane)].size())};
  }

  // Keeps of the step's waits those that neither the lane's order nor an earlier step of the lane implies.
  void append(int rank, int lane, int line, Step step) {
    std::map<int, int> latest;  // by lane
    for (const After& after : step.after)
      latest[after.lane] = std::max(after.step, latest.try_emplace(after.lane, -1).first->second);
    step.after.clear();
    auto& waited = waited_[at(rank)][at(lane)];
    for (const auto& [other, index] : latest) {
      if (other == lane || index <= waited[at(other)]) continue;
      waited[at(other)] = index;
      step.after.push_back({other, index});
    }
    plan_.ranks[at(rank)].lanes[at(lane)].push_back(std::move(step));
    lines_[at(rank)][at(lane)].push_back(line);
  }

  // Copies to the output, in lane 0, what the rank's steps leave elsewhere, after all steps.
  void finish_in_place(int rank) {
    plan_.scratch_chunks = std::max(plan_.scratch_chunks, names_[at(rank)].scratch_chunks());
    std::vector<Step> copies = names_[at(rank)].finish();
    if (copies.empty()) return;
    if (lane_of_channel_.empty()) {
      plan_.ranks[at(rank)].lanes.resize(1);
      lines_[at(rank)].resize(1);
    }
    const int lanes = static_cast<int>(plan_.ranks[at(rank)].lanes.size());
    for (int lane = 1; lane < lanes; ++lane) {
      const After end = end_of(rank, lane);
      if (end.step > 0) copies.front().after.push_back({lane, end.step - 1});
    }
    for (Step& copy : copies) {
      plan_.ranks[at(rank)].lanes[0].push_back(std::move(copy));
      lines_[at(rank)][0].push_back(1);
    }
  }

  const ThreadBlocks& from_;
  Plan plan_;
  StepLines lines_;
  std::map<int, int> lane_of_channel_;
  std::vector<std::vector<std::vector<After>>> moved_;  // [rank][thread block][step] -> place in plan_
  std::vector<std::vector<std::vector<int>>> waited_;   // [rank][lane][other lane] last step that the lane waited for
  std::vector<InPlaceNames> names_;                     // [rank] if in place only
};

}  // namespace

Plan join_channels(const ThreadBlocks& from, std::string_view source, StepLines* lines) {
  check_blocks(from, source);
  Joining joining(from);
  Plan plan = joining.run(Turns(from, source).order());
  if (lines != nullptr) *lines = std::move(joining.lines());
  return plan;
}

// ---- from lanes to thread blocks

// Deals the steps of one rank to thread blocks and finds the waits between these.
namespace {

class RankSplit {
 public:
  RankSplit(const Locations& locations, int rank)
      : locations_(locations), rank_(rank), cells_(at(locations.end(rank) - locations.begin(rank))) {}

  // Steps come in an order that the plan allows.
  void add(int lane, const Step& step) {
    const After here = take_place(lane, step);
    std::vector<After> earlier;
    if (reads_src(step.op)) read(step.src, here, earlier);
    if (writes_dst(step.op)) write(step.dst, here, earlier);
    Step& moved = steps.lanes[at(here.lane)].emplace_back(step);
    moved.after.clear();
    wait_for(earlier, here, moved);
  }

  RankSteps steps;
  std::vector<ThreadBlock> blocks;

 private:
  struct StepsOnCell {
    After writer;
    std::vector<After> readers;  // since it was written
  };
  struct Channel {
    std::vector<int> blocks;
    int latest = -1;
  };

  // A step with a peer belongs to the thread block that has it, else to the first that can take it, the latest one
  // before others; a step without stays with the latest.
  After take_place(int lane, const Step& step) {
    Channel& channel = channels_[lane];
    const bool has_peer = step.op == Op::send || reads_peer(step.op);
    const auto peer_of = [&](int block) -> int& {
      return step.op == Op::send ? blocks[at(block)].send_to : blocks[at(block)].recv_from;
    };
    const auto first_with = [&](int peer) {
      const auto it =
          std::find_if(channel.blocks.begin(), channel.blocks.end(), [&](int block) { return peer_of(block) == peer; });
      return it == channel.blocks.end() ? -1 : *it;
    };
    int block = channel.latest;
    if (has_peer) {
      block = first_with(step.peer);
      if (block < 0 && channel.latest >= 0 && peer_of(channel.latest) < 0) block = channel.latest;
      if (block < 0) block = first_with(-1);
    }
    if (block < 0) {
      block = static_cast<int>(blocks.size());
      blocks.push_back({-1, -1, lane});
      channel.blocks.push_back(block);
      steps.lanes.emplace_back();
      clocks_.emplace_back();
    }
    if (has_peer) peer_of(block) = step.peer;
    channel.latest = block;
    return {block, static_cast<int>(steps.lanes[at(block)].size())};
  }

  StepsOnCell& cell(const Slice& slice, int i) {
    return cells_[at(locations_.of(rank_, slice, i) - locations_.begin(rank_))];
  }
  void read(const Slice& slice, After here, std::vector<After>& earlier) {
    for (int i = 0; i < slice.count; ++i) {
      earlier.push_back(cell(slice, i).writer);
      cell(slice, i).readers.push_back(here);
    }
  }
  void write(const Slice& slice, After here, std::vector<After>& earlier) {
    for (int i = 0; i < slice.count; ++i) {
      StepsOnCell& written = cell(slice, i);
      earlier.push_back(written.writer);
      earlier.insert(earlier.end(), written.readers.begin(), written.readers.end());
      written = {here, {}};
    }
  }

  // Makes the step wait for those earlier steps that its thread block does not know to be done. The latest come first,
  // as the end of one implies the end of others.
  void wait_for(std::vector<After>& earlier, After here, Step& step) {
    std::erase_if(earlier, [&](const After& edge) { return edge.lane < 0 || edge.lane == here.lane; });
    std::sort(earlier.begin(), earlier.end(), [this](const After& a, const After& b) { return turn(a) > turn(b); });
    auto& clocks = clocks_[at(here.lane)];
    std::vector<int> known = clocks.empty() ? std::vector<int>() : clocks.back().done;
    known.resize(blocks.size(), 0);
    for (const After& edge : earlier) {
      if (known[at(edge.lane)] > edge.step) continue;
      step.after.push_back(edge);
      const auto& theirs = clocks_[at(edge.lane)][at(edge.step)].done;
      for (std::size_t b = 0; b < theirs.size(); ++b) known[b] = std::max(known[b], theirs[b]);
    }
    known[at(here.lane)] = here.step + 1;
    clocks.push_back({std::move(known), turns_++});
    std::reverse(step.after.begin(), step.after.end());
  }
  int turn(const After& step) const { return clocks_[at(step.lane)][at(step.step)].turn; }

  struct StepClock {
    std::vector<int> done;  // [thread block] steps that are done when this one is; past the end: 0
    int turn;               // place in the order of all steps
  };

  const Locations& locations_;
  int rank_;
  std::vector<StepsOnCell> cells_;  // [location of the rank]
  std::map<int, Channel> channels_;
  std::vector<std::vector<StepClock>> clocks_;  // [thread block][step]
  int turns_ = 0;
};

}  // namespace

ThreadBlocks split_lanes(const Plan& plan) {
  ThreadBlocks split;
  split.in_place = check(plan, {kUnbounded, true}).ok();
  split.plan = plan;
  const StepIds ids(plan);
  const Locations locations(plan, split.in_place);
  std::vector<std::vector<int>> ids_of(at(plan.num_ranks));  // [rank] step ids, in an order that the plan allows
  for (const int id : dependence_order(plan, ids, match_messages(plan, ids))) {
    ids_of[at(ids.index(id).rank)].push_back(id);
  }
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    RankSplit of_rank(locations, rank);
    for (const int id : ids_of[at(rank)]) of_rank.add(ids.index(id).lane, step_at(plan, ids.index(id)));
    split.plan.ranks[at(rank)] = std::move(of_rank.steps);
    split.blocks.push_back(std::move(of_rank.blocks));
  }
  return split;
}

// ---- steps that work in place

InPlaceNames::InPlaceNames(const Plan& plan, int rank)
    : inputs_(input_chunks(plan, rank)),
      outputs_(output_chunks(plan, rank)),
      scratch_begin_(plan.scratch_chunks),
      scratch_chunks_(plan.scratch_chunks) {
  const auto alias = collectives::in_place_alias(plan.kind, plan.num_ranks, plan.root, rank);
  const int shift = (alias.input_block - alias.output_block) * plan.chunks_per_block;
  to_output_ = inputs_ == 0 || (shift <= 0 && inputs_ - shift <= outputs_);
  (to_output_ ? input_begin_ : output_begin_) = to_output_ ? -shift : shift;
  chunks_.resize(at(to_output_ ? outputs_ : inputs_));
}

bool InPlaceNames::is_in_input(int chunk) const {
  return chunk >= input_begin_ && chunk < input_begin_ + inputs_;
}

std::vector<Step> InPlaceNames::rename(Step& step, After at_end) {
  std::vector<Step> copies;
  if (step.op == Op::reduce && is_renamed(step.dst)) move(step.dst, at_end, copies);
  if (reads_src(step.op) && is_renamed(step.src)) read(step, at_end, copies);
  if (writes_dst(step.op) && is_renamed(step.dst)) write(step);
  if (!copies.empty()) copies.front().after.insert(copies.front().after.end(), step.after.begin(), step.after.end());
  return copies;
}

void InPlaceNames::read(Step& step, After at_end, std::vector<Step>& copies) {
  const int first = first_of(step.src);
  const int count = step.src.count;
  const auto is_original = [this](int c) { return is_in_input(c) && !chunks_[at(c)].moved; };
  bool all = true;
  for (int c = first; c < first + count; ++c) all = all && is_original(c);
  if (!all) move(step.src, at_end, copies);
  const After here{at_end.lane, at_end.step + static_cast<int>(copies.size())};
  for (int c = first; c < first + count; ++c) {
    Chunk& chunk = chunks_[at(c)];
    if (all) chunk.read_from.push_back(here);
    if (!all && chunk.copied_by.lane >= 0) step.after.push_back(chunk.copied_by);
  }
  step.src = all ? from_input(first, count) : moved_to(first, count);
}

// Copies what is still in the input to its new place, after those that read it there: in place the two are the same.
void InPlaceNames::move(const Slice& slice, After at_end, std::vector<Step>& copies) {
  const int end = first_of(slice) + slice.count;
  for (int c = first_of(slice); c < end; ++c) {
    if (!is_in_input(c) || chunks_[at(c)].moved) continue;
    const After here{at_end.lane, at_end.step + static_cast<int>(copies.size())};
    Step copy{Op::copy, -1, from_input(c, 0), moved_to(c, 0), {}};
    for (; c < end && is_in_input(c) && !chunks_[at(c)].moved; ++c) {
      auto& readers = chunks_[at(c)].read_from;
      copy.after.insert(copy.after.end(), readers.begin(), readers.end());
      chunks_[at(c)] = {true, here, {}};
      ++copy.src.count;
      ++copy.dst.count;
    }
    copies.push_back(std::move(copy));
    if (!to_output_) scratch_chunks_ = scratch_begin_ + inputs_;
  }
}

// Steps that the thread blocks order after those that needed a copy come after the copy, too.
void InPlaceNames::write(Step& step) {
  const int first = first_of(step.dst);
  for (int c = first; c < first + step.dst.count; ++c) chunks_[at(c)] = {true, {}, {}};
  step.dst = moved_to(first, step.dst.count);
  if (!to_output_) scratch_chunks_ = scratch_begin_ + inputs_;
}

std::vector<Step> InPlaceNames::finish() const {
  std::vector<Step> copies;
  for (int o = 0; o < outputs_; ++o) {
    const int c = o + output_begin_;
    const bool moved = chunks_[at(c)].moved;
    if (moved ? to_output_ : !is_in_input(c)) continue;
    const Slice from = moved ? moved_to(c, 1) : from_input(c, 1);
    if (!copies.empty()) {
      Step& last = copies.back();
      if (last.dst.first + last.dst.count == o && last.src.buffer == from.buffer &&
          last.src.first + last.src.count == from.first) {
        ++last.src.count;
        ++last.dst.count;
        continue;
      }
    }
    copies.push_back({Op::copy, -1, from, output(o), {}});
  }
  return copies;
}

}  // namespace lockstep::plan
