// How work is laid out on a CUDA device: plain arithmetic, the same in every build and tested without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace lockstep::kernels {

inline constexpr int kWarpLanes = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr std::size_t kAccessBytes = 16;  // the widest that one thread loads or stores at once

// Elements a thread takes at once: as many of the widest type as one access holds, or 1 if an operand or a row is not
// aligned to that. `row_elems`: what each row of a matrix has; 0 where there are no rows.
int items_an_access(std::size_t widest_bytes, std::int64_t row_elems, std::initializer_list<const void*> operands);

// Blocks for `tiles` of equal work that a block takes with the stride of the grid: enough to fill the device a few
// times, as blocks end at different times, and no more.
std::int64_t grid_blocks(std::int64_t tiles, int num_multiprocessors);

// Blocks that each make a part of a sum: as many as run at a time, as one block adds the parts.
std::int64_t part_blocks(std::int64_t tiles, int num_multiprocessors);

// Rows that are read, summed up and read again: a warp a row where a row fits its registers, else a block a row, which
// keeps what it read in shared memory if that is large enough.
inline constexpr std::int64_t kWarpRowElems = 1024;
inline constexpr int kWarpItems = static_cast<int>(kWarpRowElems) / kWarpLanes;  // a lane
inline constexpr int kWarpsABlock = kBlockThreads / kWarpLanes;
inline constexpr int kRowThreads = 512;  // the most of a block that has a row: two such fit, one reads, one writes
inline constexpr int kRowBlocks = 2;     // on a multiprocessor at least, for __launch_bounds__
inline constexpr std::size_t kStashBytes = std::size_t{224} << 10;  // of the 227 KiB that a block may have on Hopper

struct RowLayout {
  bool warp_a_row;
  int threads;              // a block
  std::int64_t blocks;      // which take rows with the stride of the grid
  std::size_t stash_bytes;  // of dynamic shared memory; 0: rows are read from memory again
};

// Threads of a block that has a row of `packs`: so many that each has about `packs_a_thread`.
int row_threads(std::int64_t packs, std::int64_t packs_a_thread);

// For kernels that always take a block a row. `stash_bytes_an_elem`: what a block keeps of each element of its row.
RowLayout block_row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                           int num_multiprocessors);

RowLayout row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                     int num_multiprocessors);

// Sums over rows, column by column: each of `parts` groups of workers adds the rows part, part + parts, ... into one
// partial sum in the workspace, and a second kernel adds these in their order.
std::int64_t column_sum_parts(std::int64_t rows, std::int64_t rows_at_once, int num_multiprocessors);

// Offsets into a workspace, each piece aligned for any access.
class WorkspacePlan {
 public:
  std::size_t add(std::size_t size_bytes) {
    const std::size_t offset = total_bytes_;
    total_bytes_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  std::size_t total_bytes() const { return total_bytes_; }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::size_t total_bytes_ = 0;
};

// Where embedding's backward keeps what in its workspace: offsets in bytes. `counts` and `cursors` are next to each
// other, and are cleared together; they end where `begins` begins.
struct EmbeddingWorkspace {
  std::size_t counts;          // [rows] i32, and so are the others up to segments
  std::size_t cursors;         // [2]
  std::size_t begins;          // [rows]
  std::size_t first_segments;  // [rows]
  std::size_t slots;           // [tokens]
  std::size_t list;            // [tokens]
  std::size_t sorted;          // [tokens]
  std::size_t segments;        // [most segments][columns] f32
  std::size_t total_bytes;
};

// Rows of more than `segment` tokens have segments: at most this many together.
constexpr std::int64_t most_segments(std::int64_t tokens, std::int64_t segment) {
  return tokens / segment + tokens / (segment + 1);
}
EmbeddingWorkspace embedding_workspace(std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                                       std::int64_t segment);

}  // namespace lockstep::kernels
