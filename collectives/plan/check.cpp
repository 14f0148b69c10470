#include "collectives/plan/check.h"

#include <algorithm>

#include <fmt/format.h>

#include "collectives/plan/check_parts.h"
#include "collectives/plan/text.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::plan {

Locations::Locations(const Plan& plan, bool in_place) : ranks_(static_cast<std::size_t>(plan.num_ranks)) {
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    Rank& r = ranks_[at(rank)];
    r.begin = size();
    const int inputs = input_chunks(plan, rank);
    output_chunk_.resize(output_chunk_.size() + at(inputs), -1);
    const auto alias = collectives::in_place_alias(plan.kind, plan.num_ranks, plan.root, rank);
    const int shift = (alias.input_block - alias.output_block) * plan.chunks_per_block;
    for (int chunk = 0; chunk < output_chunks(plan, rank); ++chunk) {
      const bool shared = in_place && chunk + shift >= 0 && chunk + shift < inputs;
      r.output.push_back(shared ? r.begin + chunk + shift : size());
      if (shared) {
        output_chunk_[at(r.output.back())] = chunk;
      } else {
        output_chunk_.push_back(chunk);
      }
    }
    r.scratch_begin = size();
    output_chunk_.resize(output_chunk_.size() + at(plan.scratch_chunks), -1);
  }
}

namespace {

class ShapeCheck {
 public:
  ShapeCheck(const Plan& plan, Problems& problems) : plan_(plan), problems_(problems) {}

  void run() {
    if (!plan_itself()) return;
    for (int rank = 0; rank < plan_.num_ranks && !problems_.full(); ++rank) {
      const auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
      for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
        const Lane& steps = lanes[static_cast<std::size_t>(lane)];
        for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
          step({rank, lane, s}, steps[static_cast<std::size_t>(s)]);
        }
      }
    }
  }

 private:
  bool plan_itself() {
    const int n = plan_.num_ranks;
    if (n < 1) problems_.add({}, fmt::format("num_ranks is {}, must be at least 1", n));
    if (plan_.ranks.size() != static_cast<std::size_t>(n)) {
      problems_.add({}, fmt::format("has steps for {} ranks, num_ranks is {}", plan_.ranks.size(), n));
    }
    if (plan_.root < 0 || plan_.root >= n) problems_.add({}, fmt::format("root {} is not in 0..{}", plan_.root, n - 1));
    if (plan_.chunks_per_block < 1) problems_.add({}, "chunks_per_block must be at least 1");
    if (plan_.scratch_chunks < 0) problems_.add({}, "scratch_chunks must not be negative");
    return problems_.empty();
  }

  void step(const StepIndex& where, const Step& step) {
    operation(where, step);
    if (reads_src(step.op)) slice(where, step.src, "reads");
    if (writes_dst(step.op)) slice(where, step.dst, "writes");
    if (reads_src(step.op) && writes_dst(step.op) && step.src.count != step.dst.count) {
      problems_.add(where, fmt::format("reads {} chunks but writes {}", step.src.count, step.dst.count));
    }
    for (const After& edge : step.after) after(where, edge);
  }

  void operation(const StepIndex& where, const Step& step) {
    const bool reduces = step.op == Op::recv_reduce || step.op == Op::reduce;
    if (reduces && !collectives::has_op(plan_.kind)) {
      problems_.add(where, fmt::format("{} reduces, but {} has no reduction", name_of(step.op), name_of(plan_.kind)));
    }
    if (step.op != Op::send && !reads_peer(step.op)) return;
    if (step.peer < 0 || step.peer >= plan_.num_ranks) {
      problems_.add(where, fmt::format("peer {} is not in 0..{}", step.peer, plan_.num_ranks - 1));
    } else if (step.peer == where.rank) {
      problems_.add(where, "peer is the rank itself; use copy or reduce");
    }
  }

  void slice(const StepIndex& where, const Slice& slice, const char* verb) {
    const int size = slice.buffer == Buffer::input    ? input_chunks(plan_, where.rank)
                     : slice.buffer == Buffer::output ? output_chunks(plan_, where.rank)
                                                      : plan_.scratch_chunks;
    if (slice.count < 1) {
      problems_.add(where, fmt::format("{} {} chunks, must be at least 1", verb, slice.count));
    } else if (slice.first < 0 || slice.count > size || slice.first > size - slice.count) {
      problems_.add(where,
                    fmt::format("{} chunks {} to {} of {}, which has {} on this rank", verb, slice.first,
                                static_cast<long long>(slice.first) + slice.count - 1, name_of(slice.buffer), size));
    }
  }

  void after(const StepIndex& where, const After& after) {
    const auto& lanes = plan_.ranks[static_cast<std::size_t>(where.rank)].lanes;
    if (after.lane == where.lane) {
      problems_.add(where, "waits (after) for its own lane, whose steps run in order anyway");
    } else if (after.lane < 0 || after.lane >= static_cast<int>(lanes.size()) || after.step < 0 ||
               after.step >= static_cast<int>(lanes[static_cast<std::size_t>(after.lane)].size())) {
      problems_.add(where,
                    fmt::format("waits (after) for lane {} step {}, which does not exist", after.lane, after.step));
    }
  }

  const Plan& plan_;
  Problems& problems_;
};

}  // namespace

void check_shape(const Plan& plan, Problems& problems) {
  ShapeCheck(plan, problems).run();
}

void check_messages(const Plan& plan, const StepIds& ids, const Messages& messages, Problems& problems) {
  for (const Message& message : messages.list) {
    if (problems.full()) return;
    if (message.send < 0 || message.recv < 0) {
      const StepIndex& where = ids.index(message.recv < 0 ? message.send : message.recv);
      problems.add(where, fmt::format("no {} at rank {} in this lane matches it (message {} of its channel)",
                                      message.recv < 0 ? "recv" : "send", step_at(plan, where).peer, message.position));
      continue;
    }
    const int sent = chunks_of(step_at(plan, ids.index(message.send)));
    const StepIndex& where = ids.index(message.recv);
    const int received = chunks_of(step_at(plan, where));
    if (sent != received) {
      problems.add(where, fmt::format("receives {} chunks, but rank {} lane {} step {} sends {}", received,
                                      ids.index(message.send).rank, where.lane, ids.index(message.send).step, sent));
    }
  }
}

// Vector clocks over the lanes of one rank: clock[l] is the number of steps of lane l that are known to be done before
// a step begins. Only lane order and `after` count; arrivals of messages deliberately do not.
namespace {

class RankRaces {
 public:
  RankRaces(const Plan& plan, const StepIds& ids, const Locations& locations, int rank, Problems& problems)
      : plan_(plan),
        ids_(ids),
        locations_(locations),
        problems_(problems),
        rank_(rank),
        lanes_(ids.lanes_of(rank)),
        base_(locations.begin(rank)),
        next_(at(lanes_), 0),
        clocks_(at(num_steps()) * at(lanes_), 0) {
    last_read_.assign(at(locations.end(rank) - base_) * at(lanes_), -1);
    last_write_ = last_read_;
  }

  // Visits the steps in an order that respects lanes and `after`: an earlier access that conflicts must be known to be
  // done, and checking each lane's latest one is enough.
  void run() {
    for (bool moved = true; moved && !problems_.full();) {
      moved = false;
      for (int lane = 0; lane < lanes_; ++lane) {
        while (next_[at(lane)] < steps_in(lane) && awaited(lane) == nullptr) {
          step(lane, next_[at(lane)]++);
          moved = true;
        }
      }
    }
    if (!problems_.full()) report_cycle();
  }

 private:
  int first_step() const { return ids_.lane_begin(ids_.lane_id(rank_, 0)); }
  int num_steps() const { return ids_.lane_end(ids_.lane_id(rank_, lanes_ - 1)) - first_step(); }
  int steps_in(int lane) const {
    const int id = ids_.lane_id(rank_, lane);
    return ids_.lane_end(id) - ids_.lane_begin(id);
  }
  const Step& step_of(int lane, int index) const { return step_at(plan_, {rank_, lane, index}); }
  int* clock_of(int lane, int index) {
    return clocks_.data() + at(ids_.id(rank_, lane, index) - first_step()) * at(lanes_);
  }
  // The first step that the lane's next step waits for and that is not done; nullptr: none.
  const After* awaited(int lane) const {
    for (const After& after : step_of(lane, next_[at(lane)]).after) {
      if (after.step >= next_[at(after.lane)]) return &after;
    }
    return nullptr;
  }

  void join(int* clock, int lane, int index) {
    const int* other = clock_of(lane, index);
    for (int l = 0; l < lanes_; ++l) clock[l] = std::max(clock[l], other[l]);
    clock[lane] = std::max(clock[lane], index + 1);
  }

  void step(int lane, int index) {
    const Step& step = step_of(lane, index);
    int* clock = clock_of(lane, index);
    if (index > 0) join(clock, lane, index - 1);
    for (const After& after : step.after) join(clock, after.lane, after.step);
    if (reads_src(step.op)) access(lane, index, clock, step.src, false);
    if (writes_dst(step.op)) access(lane, index, clock, step.dst, true);
  }

  void access(int lane, int index, const int* clock, const Slice& slice, bool writes) {
    for (int i = 0; i < slice.count; ++i) {
      const std::size_t row = at(locations_.of(rank_, slice, i) - base_) * at(lanes_);
      for (int other = 0; other < lanes_; ++other) {
        if (other == lane) continue;
        const int wrote = last_write_[row + at(other)];
        const int read = last_read_[row + at(other)];
        if (wrote >= clock[other]) report(lane, index, slice, i, writes, other, wrote, true);
        if (writes && read >= clock[other]) report(lane, index, slice, i, writes, other, read, false);
        if (problems_.full()) return;
      }
      (writes ? last_write_ : last_read_)[row + at(lane)] = index;
    }
  }

  void report(int lane, int index, const Slice& slice, int i, bool writes, int other_lane, int other_step,
              bool other_writes) {
    problems_.add({rank_, lane, index},
                  fmt::format("{} {}[{}], which lane {} step {} {}, and no `after` orders the two (race)",
                              writes ? "writes" : "reads", name_of(slice.buffer), slice.first + i, other_lane,
                              other_step, other_writes ? "writes" : "reads"));
  }

  void report_cycle() {
    for (int lane = 0; lane < lanes_; ++lane) {
      if (next_[at(lane)] == steps_in(lane)) continue;
      const After* after = awaited(lane);
      problems_.add({rank_, lane, next_[at(lane)]},
                    fmt::format("deadlock: waits (after) for lane {} step {}, in a cycle", after->lane, after->step));
    }
  }

  const Plan& plan_;
  const StepIds& ids_;
  const Locations& locations_;
  Problems& problems_;
  int rank_;
  int lanes_;
  int base_;
  std::vector<int> next_;        // [lane] first step not taken
  std::vector<int> clocks_;      // [step of this rank][lane]
  std::vector<int> last_read_;   // [location of this rank][lane] step, -1: none
  std::vector<int> last_write_;  // the same
};

}  // namespace

void check_races(const Plan& plan, const StepIds& ids, const Locations& locations, Problems& problems) {
  for (int rank = 0; rank < plan.num_ranks && !problems.full(); ++rank) {
    if (ids.lanes_of(rank) > 1) RankRaces(plan, ids, locations, rank, problems).run();
  }
}

std::string Problem::text() const {
  if (where.rank < 0) return what;
  if (where.lane < 0) return fmt::format("rank {}: {}", where.rank, what);
  return fmt::format("rank {} lane {} step {}: {}", where.rank, where.lane, where.step, what);
}

std::string CheckResult::text() const {
  if (ok()) return "ok";
  std::string lines;
  for (const Problem& problem : problems) lines += (lines.empty() ? "" : "\n") + problem.text();
  return lines;
}

Contents::Contents(const Plan& plan) : ids_(plan) {
  std::size_t chunks = 0;
  for (int id = 0; id < ids_.num_steps(); ++id) {
    first_.push_back(chunks);
    chunks += static_cast<std::size_t>(chunks_of(step_at(plan, ids_.index(id))));
  }
  moved_.resize(chunks);
}

namespace {

void run_parts(const Plan& plan, const CheckOptions& options, Contents& contents, Problems& problems) {
  if (options.capacity < 0) problems.add({}, fmt::format("capacity is {}, must be at least 0", options.capacity));
  check_shape(plan, problems);
  if (!problems.empty()) return;
  const StepIds ids(plan);
  const Messages messages = match_messages(plan, ids);
  check_messages(plan, ids, messages, problems);
  const Locations locations(plan, options.in_place);
  check_races(plan, ids, locations, problems);
  if (!problems.empty()) return;
  contents = Contents(plan);
  check_run(plan, ids, messages, locations, options, contents, problems);
}

// Puts the step's text, as in "send input[3] -> 1: ", in front of each problem.
void name_steps(const Plan& plan, std::vector<Problem>& problems) {
  for (Problem& problem : problems) {
    if (problem.where.step >= 0) problem.what = to_text(step_at(plan, problem.where)) + ": " + problem.what;
  }
}

}  // namespace

CheckResult check(const Plan& plan, const CheckOptions& options) {
  CheckResult result;
  Problems problems;
  run_parts(plan, options, result.contents, problems);
  result.problems = problems.take();
  name_steps(plan, result.problems);
  if (!result.ok()) result.contents = {};
  return result;
}

Contents contents_of(const Plan& plan, const CheckOptions& options) {
  CheckResult result = check(plan, options);
  LOCKSTEP_CHECK(result.ok(), fmt::format("plan {} {} for {} ranks is wrong: {}", name_of(plan.kind), plan.algorithm,
                                          plan.num_ranks, result.text()));
  return std::move(result.contents);
}

}  // namespace lockstep::plan
