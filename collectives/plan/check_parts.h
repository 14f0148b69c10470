// The parts of check(), the locations of memory that they refer to, and the symbols that memory holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {

// Numbers the chunk-sized places of all ranks' memory. In place, an output chunk that coincides with an input chunk is
// one location under two names.

class Locations {
 public:
  Locations(const Plan& plan, bool in_place);

  int size() const { return static_cast<int>(output_chunk_.size()); }
  int begin(int rank) const { return ranks_[at(rank)].begin; }  // a rank's locations are consecutive
  int end(int rank) const { return rank + 1 < static_cast<int>(ranks_.size()) ? begin(rank + 1) : size(); }

  // Location of chunk i of a slice that lies inside its buffer.
  int of(int rank, const Slice& slice, int i) const {
    const Rank& r = ranks_[at(rank)];
    switch (slice.buffer) {
      case Buffer::input:
        return r.begin + slice.first + i;
      case Buffer::output:
        return r.output[at(slice.first + i)];
      case Buffer::scratch:
        break;
    }
    return r.scratch_begin + slice.first + i;
  }
  // The output chunk at a location; -1: none.
  int output_chunk(int location) const { return output_chunk_[at(location)]; }

 private:
  struct Rank {
    int begin = 0;  // the input's first location
    int scratch_begin = 0;
    std::vector<int> output;  // [output chunk]
  };
  std::vector<Rank> ranks_;
  std::vector<int> output_chunk_;  // [location]
};

// Parts of check(), in the order in which they run; each assumes that the earlier ones found nothing.

// Collects problems; parts stop once it is full.
class Problems {
 public:
  void add(const StepIndex& where, std::string what) {
    if (!full()) list_.push_back({where, std::move(what)});
  }
  bool full() const { return list_.size() >= 8; }
  bool empty() const { return list_.empty(); }
  std::vector<Problem> take() { return std::move(list_); }

 private:
  std::vector<Problem> list_;
};

// Checks that numbers are in range: buffers, peers, `after`, counts that agree, operations that the collective has.
void check_shape(const Plan& plan, Problems& problems);
// Checks that every message has two ends of the same size.
void check_messages(const Plan& plan, const StepIds& ids, const Messages& messages, Problems& problems);
// Checks that steps of different lanes of a rank that access the same memory, one of them writing, are ordered by lanes
// and `after`.
void check_races(const Plan& plan, const StepIds& ids, const Locations& locations, Problems& problems);
// Runs the plan on symbols and compares the outputs. Fills `contents`.
void check_run(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
               const CheckOptions& options, Contents& contents, Problems& problems);

// Symbolic content of chunk-sized cells, for the checker. In a collective that reduces, a cell is an input chunk's
// index and the set of ranks whose contributions it sums; otherwise it is one rank's input chunk.

class Symbols {
 public:
  Symbols(int num_cells, int num_ranks, bool reduces);

  void put_input(int cell, int rank, int chunk);
  bool empty(int cell) const { return chunk_[at(cell)] < 0; }
  void copy(int to, int from);
  // to <- to (+) from. Returns false and does nothing if they are different chunks, or a rank's contribution is in
  // both.
  bool add(int to, int from);

  // Fields as in Moved.
  Moved content(int cell) const;
  // "nothing", "chunk 3 of rank 1's input", "chunk 3 summed over ranks 0-2,5"
  std::string describe(int cell) const;

 private:
  std::uint64_t* words_of(int cell) { return words_.data() + at(cell) * num_words_; }
  const std::uint64_t* words_of(int cell) const { return words_.data() + at(cell) * num_words_; }

  int num_ranks_;
  bool reduces_;
  std::size_t num_words_;
  std::vector<int> chunk_;             // [cell] -1: never written
  std::vector<int> origin_;            // [cell] if not reduces
  std::vector<int> num_contributors_;  // [cell] if reduces
  std::vector<std::uint64_t> words_;   // [cell][num_words_] if reduces: bit r for rank r
};

// "chunk 3 of rank 1's input" or "chunk 3 summed over all ranks"
std::string describe(const Moved& moved);

// The memory of all ranks, on symbols: the effect of each step, and the check of the outputs at the end. check_run.cpp
// decides when steps may run.

class SymbolicMemory {
 public:
  // Cells are the locations, followed by `message_cells` more for messages in flight.
  SymbolicMemory(const Plan& plan, const Locations& locations, bool in_place, int message_cells);

  // Runs a step. `message`: the cells that a send copies its chunks to (empty: it copies nothing) or that a receive
  // reads. Returns the problem, or an empty text.
  std::string run(int step_id, const StepIndex& where, const Step& step, std::span<const int> message,
                  Contents& contents);

  struct WrongOutput {
    int rank;
    std::string what;
  };
  std::vector<WrongOutput> compare_outputs() const;

 private:
  void put_inputs();
  void find_expected_outputs();
  std::string refuse_write(int step_id, const StepIndex& where, const Step& step);
  std::string run_send(int source, const Slice& src, int i, std::span<const int> message);
  std::string run_write(const StepIndex& where, const Step& step, int i, std::span<const int> message);
  std::string refuse_read(int cell, const Slice& slice, int i) const;
  std::string add(int target, int source);
  std::string refuse_size(int location) const;

  const Plan& plan_;
  const Locations& locations_;
  bool in_place_;
  Symbols symbols_;
  std::vector<Moved> expected_;   // [location] if it is an output chunk
  std::vector<int> write_stamp_;  // [location] the last step that wrote it
};

}  // namespace lockstep::plan
