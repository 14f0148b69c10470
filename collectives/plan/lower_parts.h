// The parts of lowering a plan to a program.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/program.h"

namespace lockstep::plan {

// Parts of lowering that need no dataflow analysis: the steps of a lane that become one pass, and the number of
// instructions that each pass is cut into. All are functions of the plan alone.

// Steps of a lane that become one pass, in order: they build up `destination`.
struct Group {
  Slice destination;
  std::vector<int> steps;     // ids
  int pieces_per_chunk;       // 0: pieces cross chunk boundaries, `segments` of them
  int first_instruction = 0;  // in the lane
  int num_instructions = 0;
};

struct Grouping {
  std::vector<Group> groups;
  std::vector<int> of_step;  // [step id] index in groups; -1 for sends
};
Grouping group_steps(const Plan& plan, const StepIds& ids, const Messages& messages, int segments, bool fuse);

// Cells (segments of chunks) [begin, end) of a group's slices that its piece `i` covers, counted from the slice's
// start.
struct CellRange {
  int begin;
  int end;
};
CellRange piece_cells(const Group& group, int i);
// Instruction, in the lane, that covers cell `i` of the group's slices.
int instruction_of_cell(const Group& group, int i);

bool overlap(const Slice& a, const Slice& b);

// Instructions while a program is still being lowered, and their conversion to the program's flat arrays.

// An instruction while it still grows: the program keeps the same in flat arrays.
struct Draft {
  std::vector<Wait> waits;
  std::vector<RankAddress> sources;
  std::vector<RankAddress> destinations;
  std::int64_t count = 0;
  bool completes = false;
  bool pushed = false;  // another lane writes the destination; only the wait for it is left
};

// Makes one lane's program from its drafts. Waits that the lane's earlier waits imply are dropped.
LaneProgram flatten(const std::vector<Draft>& drafts, int rank, int lane);

// Marks every instruction that another lane waits for: only these need to be signalled.
void mark_awaited(Program& program);

// The memory of all ranks while a plan is being lowered: writers and readers of each cell, contents of each chunk, and
// the addresses of both. A cell is a segment of a chunk.

// An instruction of the program that is being built.
struct Ref {
  int rank = -1;
  int lane = -1;
  int instruction = -1;
  friend bool operator==(const Ref&, const Ref&) = default;
};

// A segment of a chunk in one rank's memory.
struct Cell {
  Ref writer;  // rank -1: initial content
  Ref landed;  // the instruction after which this rank may read it: the writer, or its wait for pushed data
  std::vector<Ref> readers;  // since it was written
};

// Content of a chunk: the piece of a block that it is (which gives its size), and the number of ranks that have
// contributed.
struct Content {
  std::int64_t block_elems = 0;
  int chunk_in_block = 0;
  int terms = 1;
};

class CellMemory {
 public:
  CellMemory(const Plan& plan, const collectives::Operation& operation, int segments);

  // `index`: chunk * segments + segment. In place, an input cell that is also an output cell is the same cell.
  Cell& cell(int rank, Buffer buffer, int index);
  Content& content(int rank, Buffer buffer, int chunk);
  // Address of a cell of the slice, if its chunk holds `held`.
  RankAddress address(int rank, const Slice& slice, int cell_in_slice, const Content& held) const;
  // Elements in cells of a slice whose chunks hold `contents`.
  std::int64_t elems(const std::vector<Content>& contents, CellRange cells) const;
  std::int64_t scratch_bytes() const;  // per rank

 private:
  struct RankMemory {
    std::array<std::vector<Cell>, 3> cells;            // [buffer][chunk * segments + segment]
    std::vector<Content> input_content;                // [chunk]
    std::vector<Content> output_content;               // [chunk]
    std::vector<Content> scratch_content;              // [slot]
    std::array<std::vector<std::int64_t>, 2> offsets;  // blocks of input and output, elements
    int alias_shift = 0;                               // in place: input chunk c is output chunk c + shift
  };

  void fill_contents(RankMemory& memory) const;

  const Plan& plan_;
  const bool in_place_;
  const int segments_;
  const std::int64_t element_bytes_;
  std::int64_t scratch_cell_bytes_ = 0;
  std::vector<RankMemory> ranks_;
};

}  // namespace lockstep::plan
