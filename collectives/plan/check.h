// Proves a plan right by running it on symbols: every chunk is a name (a rank's input chunk, or a chunk of the
// reduction) with the set of ranks that contributed to it.
//
// A plan passes if, whatever the timing: no step leaves its buffers or reads memory that was never written; the input
// is not written; every send is matched by one receive of its size; nothing waits forever; accesses of two lanes that
// conflict are ordered; and every output block ends as collectives::origin_of() defines. docs/plan_format.md has the
// reasons why running it once is enough, and what this does not prove.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::plan {

// Capacity: sends copy nothing and never wait; the receiver reads the sender's slice when its recv runs, and a step
// that would overwrite memory that a receiver has yet to read waits for it.
inline constexpr int kReadInPlace = 0;
// Capacity: sends never wait. Executors copy data that they cannot read in place, so a plan that passes with it runs on
// all.
inline constexpr int kUnbounded = std::numeric_limits<int>::max();

struct CheckOptions {
  // Messages that may be in flight in each (from, to, lane) channel before the next send waits; kReadInPlace and
  // kUnbounded are special.
  int capacity = 1;
  // Input and output of each rank overlap as collectives::in_place_alias() defines.
  bool in_place = false;
};

struct Problem {
  StepIndex where;   // -1 for parts that do not apply
  std::string what;  // one line, without the location
  std::string text() const;
};

// Content of one chunk of a step: the chunk that a send reads, or that any other step has written when it is done.
struct Moved {
  int origin = -1;       // rank whose input it is from; -1 in collectives that reduce
  int chunk = -1;        // chunk index in that input
  bool complete = true;  // holds the contributions of all ranks (always true in collectives that do not reduce)
  friend bool operator==(const Moved&, const Moved&) = default;
};

// Chunks that every step of a right plan moves; executors get the size of every chunk from it.
class Contents {
 public:
  Contents() = default;
  explicit Contents(const Plan& plan);
  const Moved& at(int rank, int lane, int step, int i) const { return moved_[index(ids_.id(rank, lane, step), i)]; }
  const Moved& at(int step_id, int i) const { return moved_[index(step_id, i)]; }
  void set(int step_id, int i, const Moved& moved) { moved_[index(step_id, i)] = moved; }
  const StepIds& ids() const { return ids_; }

 private:
  std::size_t index(int step_id, int i) const {
    return first_[static_cast<std::size_t>(step_id)] + static_cast<std::size_t>(i);
  }
  StepIds ids_;
  std::vector<std::size_t> first_;  // [step id]
  std::vector<Moved> moved_;
};

struct CheckResult {
  std::vector<Problem> problems;  // the first eight at most
  Contents contents;              // only if ok
  bool ok() const { return problems.empty(); }
  std::string text() const;  // "ok", or one problem per line
};

CheckResult check(const Plan& plan, const CheckOptions& options = {});

// Contents of a plan that must be right: LOCKSTEP_CHECK fails if check() finds a problem.
Contents contents_of(const Plan& plan, const CheckOptions& options = {});

// Chunks of a step: the count of the slice that it reads or writes.
inline int chunks_of(const Step& step) {
  return step.op == Op::send ? step.src.count : step.dst.count;
}

}  // namespace lockstep::plan
