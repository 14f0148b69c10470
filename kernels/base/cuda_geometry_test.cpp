#include "kernels/base/cuda_geometry.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::kernels {
namespace {

constexpr int kProcessors = 132;

TEST(CudaGeometry, WideAccessesNeedAlignedOperandsAndRows) {
  alignas(16) std::array<std::byte, 32> memory{};
  const std::byte* const aligned = memory.data();
  EXPECT_EQ(items_an_access(2, 0, {aligned, aligned + 16}), 8);
  EXPECT_EQ(items_an_access(4, 0, {aligned}), 4);
  EXPECT_EQ(items_an_access(2, 0, {aligned, aligned + 8}), 1);
  EXPECT_EQ(items_an_access(2, 24, {aligned}), 8);
  EXPECT_EQ(items_an_access(2, 20, {aligned}), 1);
  EXPECT_EQ(items_an_access(4, 20, {aligned}), 4);
}

TEST(CudaGeometry, AGridHasNoIdleBlocksAndABound) {
  EXPECT_EQ(grid_blocks(1, kProcessors), 1);
  EXPECT_EQ(grid_blocks(1000, kProcessors), 1000);
  EXPECT_EQ(grid_blocks(std::int64_t{1} << 40, kProcessors), 32 * kProcessors);
}

TEST(CudaGeometry, PartsOfASumAreAsManyAsRunAtATime) {
  EXPECT_EQ(part_blocks(3, kProcessors), 3);
  EXPECT_EQ(part_blocks(1 << 20, kProcessors), 8 * kProcessors);
}

TEST(CudaGeometry, ShortRowsHaveAWarp) {
  const RowLayout layout = row_layout(8192, 768, 8, 2, kProcessors);
  EXPECT_TRUE(layout.warp_a_row);
  EXPECT_EQ(layout.blocks, 1024);
  EXPECT_EQ(layout.threads, 256);
  EXPECT_TRUE(row_layout(1, 1, 1, 4, kProcessors).warp_a_row);
  EXPECT_TRUE(row_layout(1, 1024, 1, 4, kProcessors).warp_a_row);
  EXPECT_FALSE(row_layout(1, 1025, 1, 4, kProcessors).warp_a_row);
}

TEST(CudaGeometry, LongRowsHaveABlockAndAStashThatFits) {
  const RowLayout vocabulary = row_layout(4096, 50304, 4, 4, kProcessors);
  EXPECT_FALSE(vocabulary.warp_a_row);
  EXPECT_EQ(vocabulary.threads, 512);
  EXPECT_EQ(vocabulary.blocks, 4096);
  EXPECT_EQ(vocabulary.stash_bytes, std::size_t{50304} * 4);
  EXPECT_EQ(row_layout(4096, 65536, 4, 4, kProcessors).stash_bytes, 0U);
  EXPECT_EQ(row_layout(8, 1031, 1, 4, kProcessors).threads, 288);
  EXPECT_EQ(row_layout(8, 2048, 8, 2, kProcessors).threads, 128);
}

TEST(CudaGeometry, ClustersShareRowsSoThatTwoBlocksFitAMultiprocessor) {
  const RowLayout vocabulary = row_layout(4096, 50304, 4, 4, kProcessors, 8);  // 196.5 KiB
  EXPECT_EQ(vocabulary.cluster, 2);
  EXPECT_EQ(vocabulary.blocks, 2 * 4096);
  EXPECT_EQ(vocabulary.stash_bytes, std::size_t{50304} * 2);
  EXPECT_EQ(row_layout(8, 50304, 8, 2, kProcessors, 8).cluster, 1);
  EXPECT_EQ(row_layout(8, 128256, 4, 4, kProcessors, 8).cluster, 8);  // 501 KiB
  const RowLayout longest = row_layout(8, 400000, 4, 4, kProcessors, 8);
  EXPECT_EQ(longest.cluster, 8);
  EXPECT_GT(longest.stash_bytes, kStashBytesOfTwo);
  const RowLayout too_long = row_layout(8, 500000, 4, 4, kProcessors, 8);
  EXPECT_EQ(too_long.cluster, 1);
  EXPECT_EQ(too_long.stash_bytes, 0U);
}

// Every column has a block and a thread of a team that has room for it, and all that is read ahead fits.
TEST(CudaGeometry, TeamsThatReadAheadHaveRoomForWholeRows) {
  for (const int most_cluster : {1, 8}) {
    for (const int items : {1, 4, 8}) {
      for (std::int64_t columns = items; columns < 70000; columns += items * 131) {
        const AheadLayout at = ahead_layout(8192, columns, items, 12, kProcessors, most_cluster);
        if (at.rows_ahead == 0) {
          EXPECT_GT(columns, kRowThreads * kBlockItems / 2 * most_cluster) << "items " << items;
          continue;
        }
        const std::int64_t slice = slice_columns(columns, items, at.cluster);
        EXPECT_EQ(at.warp_a_row, items > 1 && columns <= kWarpRowElems);
        const std::int64_t room = at.warp_a_row ? kWarpRowElems : std::int64_t{at.threads} * kBlockItems;
        EXPECT_GE(slice * at.cluster, columns);
        EXPECT_LE(slice, room) << columns << " columns";
        EXPECT_LE(at.shared_bytes, kStashBytes);
        EXPECT_EQ(at.blocks, at.parts * at.cluster);
        EXPECT_LE(at.blocks, 2 * kProcessors) << "all blocks run at a time";
      }
    }
  }
}

TEST(CudaGeometry, TeamsReadAsManyRowsAheadAsLeaveRoomForTwoBlocks) {
  const AheadLayout narrow = ahead_layout(8192, 1024, 8, 4, kProcessors, 8);
  EXPECT_TRUE(narrow.warp_a_row);
  EXPECT_EQ(narrow.rows_ahead, 2);
  EXPECT_EQ(narrow.parts, 2 * kProcessors);
  EXPECT_EQ(narrow.shared_bytes, std::size_t{96} << 10);
  const AheadLayout wide = ahead_layout(8192, 8192, 8, 4, kProcessors, 8);
  EXPECT_EQ(wide.threads, 512);
  EXPECT_EQ(wide.parts, kProcessors);
  EXPECT_EQ(ahead_layout(8192, 12288, 8, 4, kProcessors, 8).cluster, 2);
  EXPECT_EQ(ahead_layout(8192, 12288, 8, 4, kProcessors, 1).rows_ahead, 0);
  EXPECT_EQ(ahead_layout(3, 8192, 8, 4, kProcessors, 8).parts, 3);
}

TEST(CudaGeometry, ARowsBlockHasWholeWarps) {
  EXPECT_EQ(row_threads(1, 1), 128);
  EXPECT_EQ(row_threads(129, 1), 160);
  EXPECT_EQ(row_threads(129, 4), 128);
  EXPECT_EQ(row_threads(100000, 1), kRowThreads);
}

TEST(CudaGeometry, ColumnSumsHaveAPartForEachGroupOfRowsUpToABound) {
  EXPECT_EQ(column_sum_parts(1, 8, kProcessors), 1);
  EXPECT_EQ(column_sum_parts(17, 8, kProcessors), 3);
  EXPECT_EQ(column_sum_parts(1 << 20, 8, kProcessors), 2 * kProcessors);
}

TEST(CudaGeometry, WorkspacePiecesAreAlignedAndApart) {
  WorkspacePlan plan;
  EXPECT_EQ(plan.add(1), 0U);
  EXPECT_EQ(plan.add(256), 256U);
  EXPECT_EQ(plan.add(257), 512U);
  EXPECT_EQ(plan.total_bytes(), 1024U);
}

// The worst case is rows of segment + 1 tokens, with two segments each; this test tries all ways to deal tokens to two
// rows.
TEST(CudaGeometry, SegmentsOfAnEmbeddingNeverNeedMoreThanTheirBound) {
  constexpr std::int64_t kSegment = 4;
  const auto segments_of = [](std::int64_t count) { return count > kSegment ? (count + kSegment - 1) / kSegment : 0; };
  for (std::int64_t tokens = 1; tokens < 60; ++tokens) {
    for (std::int64_t row = 1; row <= tokens; ++row) {
      const std::int64_t equal_rows = tokens / row * segments_of(row) + segments_of(tokens % row);
      EXPECT_LE(equal_rows, most_segments(tokens, kSegment)) << tokens << " tokens in rows of " << row;
    }
  }
  EXPECT_EQ(most_segments(5, kSegment), 2);
}

TEST(CudaGeometry, EmbeddingsWorkspaceEndsWithItsSegments) {
  const EmbeddingWorkspace at = embedding_workspace(100, 17, 8, 32, 256);
  EXPECT_EQ(at.counts, 0U);
  EXPECT_EQ(at.begins, 256U);
  EXPECT_EQ(at.total_bytes, at.segments + 256);
}

}  // namespace
}  // namespace lockstep::kernels
