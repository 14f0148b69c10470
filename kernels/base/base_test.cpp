// Checks that every refusal of a kernel's arguments names the argument, and that the registry has every family.
#include "kernels/base/operands.h"

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/activation/activation.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/base/thread_pool.h"
#include "kernels/registry.h"
#include "testing/core/forwarding_device.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

alignas(64) std::array<float, 64> storage{};

GeluForward good() {
  GeluForward args = shaped(GeluForward{.count = 8}, core::DType::f32);
  args.x.data = storage.data();
  args.y.data = storage.data() + 8;
  return args;
}

std::string refusal(const std::function<void(GeluForward&)>& spoil) {
  GeluForward args = good();
  spoil(args);
  return kernels::refusal(args);
}

TEST(Operands, GoodArgumentsPass) {
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& args) { args.y.data = storage.data(); }), "") << "y may be x";
}

TEST(Operands, WrongArgumentsAreNamed) {
  EXPECT_EQ(refusal([](auto& args) { args.count = 0; }), "gelu_fwd: count is 0; allowed: at least 1");
  EXPECT_EQ(refusal([](auto& args) { args.y.elems = 7; }), "gelu_fwd: y has 7 elements; its shape requires 8");
  EXPECT_EQ(refusal([](auto& args) { args.x.data = nullptr; }), "gelu_fwd: x has no memory");
  EXPECT_EQ(refusal([](auto& args) { args.x.dtype = core::DType::i32; }),
            "gelu_fwd: x is int32; allowed: half, float, bfloat16");
  EXPECT_EQ(refusal([](auto& args) { args.y.dtype = core::DType::bf16; }), "gelu_fwd: y is bfloat16; allowed: float");
  EXPECT_EQ(refusal([](auto& args) { args.x.data = reinterpret_cast<std::byte*>(storage.data()) + 2; }),
            "gelu_fwd: x is not aligned to its elements of 4 bytes");
  EXPECT_EQ(refusal([](auto& args) { args.y.data = storage.data() + 4; }), "gelu_fwd: x and y overlap");
}

// y's rows start `begin` elements after x's; both have four rows, and the last row ends with the operand's 26 elements.
std::string refusal_of_rows(std::ptrdiff_t begin, Rows x_rows, Rows y_rows) {
  const auto at = [](std::ptrdiff_t first) { return storage.data() + 16 + first; };
  const std::vector<Operand> operands{{"x", Access::read, at(0), core::DType::f32, 26, 26, kF32, x_rows},
                                      {"y", Access::write, at(begin), core::DType::f32, 26, 26, kF32, y_rows}};
  return usage_error_of([&] { check_operands("k", operands); });
}

TEST(Operands, RowsBetweenRowsDoNotOverlap) {
  const Rows two{.elems = 2, .stride = 8};
  for (std::ptrdiff_t begin : {2, 3, 6, -2, -6, 10, 18}) EXPECT_EQ(refusal_of_rows(begin, two, two), "") << begin;
  for (std::ptrdiff_t begin : {0, 1, 7, -1, -7, 8, 9, -8, 16}) {
    EXPECT_EQ(refusal_of_rows(begin, two, two), "k: x and y overlap") << begin;
  }
  EXPECT_EQ(refusal_of_rows(4, {.elems = 4, .stride = 8}, two), "");
  EXPECT_EQ(refusal_of_rows(3, {.elems = 4, .stride = 8}, two), "k: x and y overlap");
  EXPECT_EQ(refusal_of_rows(3, two, {.elems = 2, .stride = 9}), "k: x and y overlap") << "strides differ";
  EXPECT_EQ(refusal_of_rows(3, two, {}), "k: x and y overlap") << "y is dense";
}

TEST(ThreadPool, RangesCoverEveryElementOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 5, 64, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count), 0);
      pool.for_ranges(count, 16, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % 16, 0);
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1)) << threads << " threads";
    }
  }
}

TEST(ThreadPool, PiecesRunOnceEach) {
  ThreadPool pool(3);
  std::vector<int> visits(100, 0);
  for (int repeat = 0; repeat < 200; ++repeat) {
    pool.for_pieces(100, [&](std::int64_t piece, int thread) {
      EXPECT_EQ(piece % 3, thread);
      ++visits[static_cast<std::size_t>(piece)];
    });
  }
  EXPECT_EQ(visits, std::vector<int>(100, 200));
}

TEST(ThreadPool, AnExceptionOfAnyThreadReachesTheCaller) {
  ThreadPool pool(2);
  for (int thrower : {0, 1}) {
    EXPECT_THROW(pool.on_each_thread([thrower](int thread) {
      if (thread == thrower) throw std::runtime_error("no");
    }),
                 std::runtime_error);
  }
  std::atomic<int> calls = 0;
  pool.on_each_thread([&](int) { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(ThreadPool, ScratchIsOfEachThreadAndAligned) {
  ThreadPool pool(2);
  std::byte* shared = pool.scratch(-1, 100);
  std::vector<std::byte*> own(2);
  pool.on_each_thread([&](int thread) { own[static_cast<std::size_t>(thread)] = pool.scratch(thread, 5000); });
  EXPECT_NE(own[0], own[1]);
  EXPECT_NE(own[0], shared);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own[1]) % 128, 0U);
  EXPECT_EQ(pool.scratch(0, 4000), own[0]);
}

TEST(ThreadPool, KeepsOneObjectOfAType) {
  struct Kept {
    explicit Kept(int num_threads) : count(num_threads) {}
    int count;
  };
  ThreadPool pool(2);
  EXPECT_EQ(pool.kept<Kept>().count, 2);
  pool.kept<Kept>().count = 7;
  EXPECT_EQ(pool.kept<Kept>().count, 7);
  EXPECT_EQ(ThreadPool(1).kept<Kept>().count, 1);
}

GradientCheck gelu_check() {
  const CaseFacts facts{.shape = "N17", .dtype = core::DType::f64};
  return {.forward = make_case(GeluForward{.count = 17}, facts),
          .backward = make_case(GeluBackward{.count = 17}, facts),
          .outputs = {{"y", "dy"}},
          .inputs = {{"x", "dx"}}};
}

TEST(GradientCheck, HoldsForADerivative) {
  EXPECT_EQ(gradient_errors(gelu_check()), "");
}

TEST(GradientCheck, FindsOneElementThatIsOff) {
  GradientCheck check = gelu_check();
  const auto right = check.backward.reference;
  check.backward.reference = [right](ReferenceData<double>& data) {
    right(data);
    data["dx"][3] *= 1.0001;
  };
  EXPECT_NE(gradient_errors(check).find("dx says"), std::string::npos);
}

TEST(GradientCheck, FindsNaN) {
  GradientCheck check = gelu_check();
  check.backward.reference = [](ReferenceData<double>& data) {
    for (double& value : data["dx"]) value = std::nan("");
  };
  EXPECT_NE(gradient_errors(check), "");
}

constexpr int kProcessors = 132;

// A kernel that does nothing is wrong on every device, except where no kernel computes anything.
TEST(ResultErrors, AreFoundOnEveryDeviceThatComputes) {
  class NothingComputed final : public core::ForwardingDevice {
    bool computes() const override { return false; }
  };
  int launches = 0;
  KernelCase idle = make_case(GeluForward{.count = 64}, {.shape = "N64"});
  idle.run = [&](const auto&, const Context&) { ++launches; };
  ThreadPool pool(1);
  const Context context(pool);
  core::ForwardingDevice device;
  EXPECT_NE(result_errors(idle, 1, {device, context}), "");
  EXPECT_EQ(launches, 1);
  NothingComputed stand_in;
  EXPECT_EQ(result_errors(idle, 1, {stand_in, context}), "");
  EXPECT_EQ(determinism_errors(idle, 1, {{stand_in, context}}), "");
  EXPECT_EQ(launches, 1 + 1 + 2);
  EXPECT_TRUE(inputs_for(stand_in, idle, 1).arrays().empty());
}

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
  EXPECT_TRUE(layout.warp_per_row);
  EXPECT_EQ(layout.blocks, 1024);
  EXPECT_EQ(layout.threads, 256);
  EXPECT_TRUE(row_layout(1, 1, 1, 4, kProcessors).warp_per_row);
  EXPECT_TRUE(row_layout(1, 1024, 1, 4, kProcessors).warp_per_row);
  EXPECT_FALSE(row_layout(1, 1025, 1, 4, kProcessors).warp_per_row);
}

TEST(CudaGeometry, LongRowsHaveABlockAndAStashThatFits) {
  const RowLayout vocabulary = row_layout(4096, 50304, 4, 4, kProcessors);
  EXPECT_FALSE(vocabulary.warp_per_row);
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
      for (std::int64_t columns = items; columns < 70000; columns += std::int64_t{items} * 131) {
        const AheadLayout at = ahead_layout(8192, columns, items, 12, kProcessors, most_cluster);
        if (at.rows_ahead == 0) {
          EXPECT_GT(columns, kRowThreads * kBlockItems / 2 * most_cluster) << "items " << items;
          continue;
        }
        const std::int64_t slice = slice_columns(columns, items, at.cluster);
        EXPECT_EQ(at.warp_per_row, items > 1 && columns <= kWarpRowElems);
        const std::int64_t room = at.warp_per_row ? kWarpRowElems : std::int64_t{at.threads} * kBlockItems;
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
  EXPECT_TRUE(narrow.warp_per_row);
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

TEST(Registry, EachCaseHasAnotherName) {
  for (const auto cases : {&KernelFamily::test_cases, &KernelFamily::bench_cases}) {
    std::set<std::string> names;
    for (const KernelFamily& family : kKernelFamilies) {
      for (const KernelCase& kernel_case : (family.*cases)())
        EXPECT_TRUE(names.insert(kernel_case.name()).second) << kernel_case.name();
    }
  }
}

// Kernels without a row in the registry would be built, but neither tested nor timed.
TEST(Registry, HasEveryFolderWithKernels) {
  std::set<std::string> registered;
  for (const KernelFamily& family : kKernelFamilies) registered.insert(family.name);
  std::set<std::string> folders;
  std::istringstream names(LOCKSTEP_KERNEL_FOLDERS);  // from kernels/CMakeLists.txt: NAME of every NAME_cases.cpp
  for (std::string name; names >> name;) folders.insert(name);
  for (const std::string& folder : folders) {
    EXPECT_EQ(registered.count(folder), 1U) << "kernels/registry.h has no row for " << folder << "_cases.cpp";
  }
  for (const std::string& name : registered) {
    EXPECT_EQ(folders.count(name), 1U) << "kernels/registry.h has a row for " << name << ", but there is no " << name
                                       << "_cases.cpp";
  }
}

TEST(Registry, FamiliesHaveNamesOfTheirOwnAndCases) {
  std::set<std::string> names;
  for (const KernelFamily& family : kKernelFamilies) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.test_cases().empty()) << family.name;
    EXPECT_FALSE(family.bench_cases().empty()) << family.name;
  }
}

}  // namespace
}  // namespace lockstep::kernels
