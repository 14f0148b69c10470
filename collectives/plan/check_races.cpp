// Vector clocks over the lanes of one rank: clock[l] is the number of steps of lane l that are known to be done before
// a step begins. Only lane order and `after` count; arrivals of messages deliberately do not.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/plan/check_parts.h"
#include "core/index.h"

namespace lockstep::plan {
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
        while (next_[at(lane)] < steps_in(lane) && after_is_done(lane)) {
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
  bool after_is_done(int lane) const {
    const After after = step_of(lane, next_[at(lane)]).after;
    return after.lane < 0 || after.step < next_[at(after.lane)];
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
    if (step.after.lane >= 0) join(clock, step.after.lane, step.after.step);
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
      const After after = step_of(lane, next_[at(lane)]).after;
      problems_.add({rank_, lane, next_[at(lane)]},
                    fmt::format("deadlock: waits (after) for lane {} step {}, in a cycle", after.lane, after.step));
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

}  // namespace lockstep::plan
