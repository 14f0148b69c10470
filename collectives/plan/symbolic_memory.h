// The memory of all ranks, on symbols: the effect of each step, and the check of the outputs at the end. check_run.cpp
// decides when steps may run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/locations.h"
#include "collectives/plan/symbols.h"
#include "core/index.h"

namespace lockstep::plan {

class SymbolicMemory {
 public:
  // Cells are the locations, followed by `message_cells` more for messages in flight.
  SymbolicMemory(const Plan& plan, const Locations& locations, bool in_place, int message_cells);

  // Runs a step. `message`: the cells that a send copies its chunks to (empty: it copies nothing) or that a receive
  // reads. Returns the problem, or an empty text.
  std::string run(int step_id, const StepPlace& where, const Step& step, std::span<const int> message,
                  Contents& contents);

  struct WrongOutput {
    int rank;
    std::string what;
  };
  std::vector<WrongOutput> compare_outputs() const;

 private:
  void put_inputs();
  void find_expected_outputs();
  std::string refuse_write(int step_id, const StepPlace& where, const Step& step);
  std::string run_send(int source, const Slice& src, int i, std::span<const int> message);
  std::string run_write(const StepPlace& where, const Step& step, int i, std::span<const int> message);
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
