// The memory of all ranks while a plan is being lowered: writers and readers of each cell, contents of each chunk, and
// the addresses of both. A cell is a segment of a chunk.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/dataflow.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/program.h"

namespace lockstep::plan {

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
  // Place of a cell of the slice, if its chunk holds `held`.
  Place place(int rank, const Slice& slice, int cell_in_slice, const Content& held) const;
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
