#include "collectives/plan/cell_memory.h"

#include <algorithm>

#include "collectives/plan/chunk_range.h"
#include "core/index.h"

namespace lockstep::plan {

CellMemory::CellMemory(const Plan& plan, const collectives::Operation& operation, int segments)
    : plan_(plan),
      in_place_(operation.in_place),
      segments_(segments),
      element_bytes_(static_cast<std::int64_t>(core::size_of(operation.dtype))),
      ranks_(plan.ranks.size()) {
  std::int64_t longest_block = 0;
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    RankMemory& memory = ranks_[at(rank)];
    memory.offsets = {input_offsets(operation, plan_.num_ranks, rank),
                      output_offsets(operation, plan_.num_ranks, rank)};
    const std::array<int, 3> chunks{input_chunks(plan_, rank), output_chunks(plan_, rank), plan_.scratch_chunks};
    for (std::size_t b = 0; b < 3; ++b) memory.cells[b].resize(at(std::int64_t{segments_} * chunks[b]));
    memory.scratch_content.resize(at(plan_.scratch_chunks));
    fill_contents(memory);
    for (const auto& offsets : memory.offsets) {
      for (std::size_t b = 1; b < offsets.size(); ++b)
        longest_block = std::max(longest_block, offsets[b] - offsets[b - 1]);
    }
    const auto alias = in_place_alias(plan_.kind, plan_.num_ranks, plan_.root, rank);
    memory.alias_shift = (alias.output_block - alias.input_block) * plan_.chunks_per_block;
  }
  // Cells of scratch have a fixed address each, with room for the longest: if they were packed, cells of chunks that
  // use the same slot one after the other would overlap by an element, and waits are counted by cells.
  constexpr std::int64_t kLine = 64;
  const std::int64_t parts = static_cast<std::int64_t>(plan_.chunks_per_block) * segments_;
  const std::int64_t longest_cell = (longest_block + parts - 1) / parts;
  scratch_cell_bytes_ = (longest_cell * element_bytes_ + kLine - 1) / kLine * kLine;
}

void CellMemory::fill_contents(RankMemory& memory) const {
  const auto fill = [this](const std::vector<std::int64_t>& offsets, std::vector<Content>& contents) {
    for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
      for (int c = 0; c < plan_.chunks_per_block; ++c) contents.push_back({offsets[b + 1] - offsets[b], c, 1});
    }
  };
  fill(memory.offsets[0], memory.input_content);
  fill(memory.offsets[1], memory.output_content);
}

Cell& CellMemory::cell(int rank, Buffer buffer, int index) {
  RankMemory& memory = ranks_[at(rank)];
  if (in_place_ && buffer == Buffer::input) {
    const int shifted = index + memory.alias_shift * segments_;
    if (shifted >= 0 && at(shifted) < memory.cells[1].size()) return memory.cells[1][at(shifted)];
  }
  return memory.cells[static_cast<std::size_t>(buffer)].at(at(index));
}

Content& CellMemory::content(int rank, Buffer buffer, int chunk) {
  RankMemory& memory = ranks_[at(rank)];
  if (buffer == Buffer::scratch) return memory.scratch_content.at(at(chunk));
  return (buffer == Buffer::input ? memory.input_content : memory.output_content).at(at(chunk));
}

Place CellMemory::place(int rank, const Slice& slice, int cell_in_slice, const Content& held) const {
  const int chunk = slice.first + cell_in_slice / segments_;
  const int segment = cell_in_slice % segments_;
  const int parts = plan_.chunks_per_block * segments_;
  const std::int64_t within = chunk_begin(held.block_elems, parts, held.chunk_in_block * segments_ + segment);
  if (slice.buffer == Buffer::scratch) {
    return {rank, slice.buffer, (static_cast<std::int64_t>(chunk) * segments_ + segment) * scratch_cell_bytes_};
  }
  const auto& offsets = ranks_[at(rank)].offsets[static_cast<std::size_t>(slice.buffer)];
  return {rank, slice.buffer, (offsets.at(at(chunk / plan_.chunks_per_block)) + within) * element_bytes_};
}

std::int64_t CellMemory::elems(const std::vector<Content>& contents, CellRange cells) const {
  const int parts = plan_.chunks_per_block * segments_;
  std::int64_t total = 0;
  for (int i = cells.begin; i < cells.end; ++i) {
    const Content& held = contents.at(at(i / segments_));
    const int part = held.chunk_in_block * segments_ + i % segments_;
    total += chunk_begin(held.block_elems, parts, part + 1) - chunk_begin(held.block_elems, parts, part);
  }
  return total;
}

std::int64_t CellMemory::scratch_bytes() const {
  return static_cast<std::int64_t>(plan_.scratch_chunks) * segments_ * scratch_cell_bytes_;
}

}  // namespace lockstep::plan
