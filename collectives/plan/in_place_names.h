// Turns steps that work in place, and so may write to the input, into steps of a Plan, whose input is never written.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::plan {

// Names for one rank's memory of input and output that are the same. A chunk of it is read from the input until a step
// writes it. What is written goes to the output, if each chunk of the input has a place there (as in all-reduce), and
// else to a copy of the input's layout in scratch (as in reduce-scatter). Steps come in an order in which they can run.
class InPlaceNames {
 public:
  InPlaceNames(const Plan& plan, int rank);

  // Renames the step's slices. Returns copies that must stand in front of it in its lane, where `at_end` is the place
  // of the first. They bring together what the step reads, if only part of it was written, or what it adds to, if that
  // was not written yet.
  std::vector<Step> rename(Step& step, After at_end);

  // Copies to the output of what belongs there and is elsewhere, to be done after all steps.
  std::vector<Step> finish() const;

  // Scratch of the plan with what the names take.
  int scratch_chunks() const { return scratch_chunks_; }

 private:
  struct Chunk {
    bool moved = false;            // was written, or copied, to its new place
    After copied_by;               // lane -1: no copy
    std::vector<After> read_from;  // steps that read it from the input
  };

  bool is_renamed(const Slice& slice) const { return slice.buffer != Buffer::scratch; }
  int first_of(const Slice& slice) const {
    return slice.first + (slice.buffer == Buffer::input ? input_begin_ : output_begin_);
  }
  Slice from_input(int chunk, int count) const { return input(chunk - input_begin_, count); }
  Slice moved_to(int chunk, int count) const {
    return to_output_ ? output(chunk, count) : scratch(scratch_begin_ + chunk, count);
  }
  bool is_in_input(int chunk) const;
  void read(Step& step, After at_end, std::vector<Step>& copies);
  void move(const Slice& slice, After at_end, std::vector<Step>& copies);
  void write(Step& step);

  int inputs_;
  int outputs_;
  bool to_output_ = true;  // each chunk of the input has a place in the output
  int input_begin_ = 0;    // index in chunks_ of the input's chunk 0
  int output_begin_ = 0;   // likewise
  int scratch_begin_;      // slot of chunk 0, unless to_output_
  int scratch_chunks_;
  std::vector<Chunk> chunks_;  // in the order of the output if to_output_, else of the input
};

}  // namespace lockstep::plan
