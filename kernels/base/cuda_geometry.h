// Launch geometry of CUDA kernels: plain arithmetic, the same in every build and tested without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace lockstep::kernels {

inline constexpr int kWarpLanes = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr std::size_t kAccessBytes = 16;  // the widest load or store of one thread

// Returns how many elements a thread takes at once: as many of the widest type as one access holds, or 1 if an operand
// or a row is not aligned to that. `row_elems`: elements per row of a matrix; 0 without rows.
int items_an_access(std::size_t widest_bytes, std::int64_t row_elems, std::initializer_list<const void*> operands);

// Returns the number of blocks for `tiles` of equal work, which blocks take in a grid-stride loop: enough for a few
// waves, because blocks end at different times, and no more.
std::int64_t grid_blocks(std::int64_t tiles, int num_multiprocessors);

// Returns the number of blocks that each compute a partial sum: as many as run at a time, because one block adds the
// partial sums.
std::int64_t part_blocks(std::int64_t tiles, int num_multiprocessors);

// Rows that are read, summed up and read again: one warp per row if the row fits its registers, else one block per row,
// which keeps the row in shared memory if that is large enough.
inline constexpr std::int64_t kWarpRowElems = 1024;
inline constexpr int kWarpItems = static_cast<int>(kWarpRowElems) / kWarpLanes;  // per lane
inline constexpr int kWarpsPerBlock = kBlockThreads / kWarpLanes;
inline constexpr int kRowThreads =
    512;  // most threads of a block that computes a row: two blocks fit, so that one reads while the other writes
inline constexpr int kRowBlocks = 2;  // least blocks per multiprocessor, for __launch_bounds__
inline constexpr std::size_t kStashBytes = std::size_t{224}
                                           << 10;  // less than the 227 KiB that a block may use on Hopper
// The limit for a block if two are to fit a multiprocessor. It has 228 KiB, of which every block takes 1 KiB and its
// static shared memory.
inline constexpr std::size_t kStashBytesOfTwo = std::size_t{112} << 10;

struct RowLayout {
  bool warp_per_row;
  int threads;              // per block
  std::int64_t blocks;      // they take rows in a grid-stride loop
  std::size_t stash_bytes;  // dynamic shared memory; 0: rows are read from memory again
  int cluster = 1;          // blocks that share a row
};

// Returns the number of threads for a block whose row has `packs` packs: about `packs_per_thread` for each thread.
int row_threads(std::int64_t packs, std::int64_t packs_per_thread);

// Returns how many columns of a row each block of a cluster computes. They are whole accesses; the last blocks may have
// fewer columns, or none.
constexpr std::int64_t slice_columns(std::int64_t columns, int items, int cluster) {
  return (columns / items + cluster - 1) / cluster * items;
}

// For kernels that always use at least one block per row. If a row does not fit a block with kStashBytesOfTwo, a
// cluster of up to `most_cluster` blocks (a power of two) shares the row. `stash_bytes_an_elem`: bytes that a block
// keeps of each element of its part of the row.
RowLayout block_row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                           int num_multiprocessors, int most_cluster = 1);

RowLayout row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                     int num_multiprocessors, int most_cluster = 1);

// Layout of persistent teams that compute many rows each and keep sums of the rows' columns in registers. A team is one
// warp for rows of at most kWarpRowElems elements in wide accesses, otherwise a cluster, mostly of one block. A team
// prefetches `rows_ahead` rows into shared memory, `row_bytes_an_elem` for each element. All blocks fit the device at
// the same time. `parts`: number of partial column sums, for add_column_parts_kernel.
inline constexpr int kBlockItems = 16;  // elements of a row per thread, if a block computes a row
struct AheadLayout {
  bool warp_per_row = false;
  int threads = 0;
  std::int64_t blocks = 0;
  std::int64_t parts = 0;
  int rows_ahead = 0;  // 1 or 2; 0: the rows are too long for teams
  std::size_t shared_bytes = 0;
  int cluster = 1;
};
AheadLayout ahead_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t row_bytes_an_elem,
                         int num_multiprocessors, int most_cluster);

// Column sums over rows: each of `parts` groups of workers adds the rows part, part + parts, ... into one partial sum
// in the workspace, and a second kernel adds these in order.
std::int64_t column_sum_parts(std::int64_t rows, std::int64_t rows_at_once, int num_multiprocessors);

// Computes offsets into a workspace, each aligned for any access.
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

// Workspace layout of embedding's backward: offsets in bytes.
struct EmbeddingWorkspace {
  std::size_t counts;          // [rows] i32, like the others up to `segments`
  std::size_t begins;          // [rows]
  std::size_t first_segments;  // [rows]
  std::size_t ended;           // [rows]
  std::size_t cursors;         // [3]
  std::size_t slots;           // [tokens]
  std::size_t list;            // [tokens]
  std::size_t sorted;          // [tokens]
  std::size_t long_rows;       // [rows that may have more than `few_tokens` tokens]
  std::size_t segments;        // [most segments][columns] f32
  std::size_t total_bytes;
};

// Only rows with more than `segment` tokens have segments; this is the upper bound of their total number.
constexpr std::int64_t most_segments(std::int64_t tokens, std::int64_t segment) {
  return tokens / segment + tokens / (segment + 1);
}
EmbeddingWorkspace embedding_workspace(std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                                       std::int64_t segment, std::int64_t few_tokens);

}  // namespace lockstep::kernels
