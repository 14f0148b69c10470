// Runs the unchanged CUDA kernels of attention on an emulated block: products lane by lane, tiles, masks and tails,
// with the checks that they must pass on a device. cuda_kernels_gpu_test runs them on a GPU.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "core/device.h"
#include "core/random.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_forward.cuh"
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/base/view.h"
#include "kernels/registry.h"
#include "testing/emulated_cuda/emulated_block.h"
#include "testing/kernels/attention_shapes.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

// Runs the blocks of a grid one after another.
template <class Body>
void run_grid(std::int64_t blocks, std::size_t shared_bytes, std::uint64_t seed, Body body) {
  emulated::Threads threads;
  for (std::int64_t block = 0; block < blocks; ++block) {
    EmulatedBlock emulated({.threads = kAttentionThreads,
                            .shared_bytes = shared_bytes,
                            .seed = core::hash64(seed, static_cast<std::uint64_t>(block)),
                            .late_copies = seed % 2 == 0});
    emulated.run(threads, [&](EmulatedLane& lane) { body(lane, block); });
  }
}

// Corresponds to the launches of attention_launch.cuh.
template <class T>
void run_emulated(const AttentionForward& args, bool small, std::uint64_t seed) {
  const ForwardOperands<T> operands = operands_for<T>(args);
  with_attention_kernels<T>(static_cast<int>(args.shape.head_columns), small, [&](auto chosen) {
    using Tiles = typename decltype(chosen)::Forward;
    run_grid(query_blocks_of(args.shape, Tiles::kRows), forward_shared_bytes<Tiles>(), seed,
             [&](EmulatedLane& lane, std::int64_t block) { attention_forward_block<Tiles>(lane, operands, block); });
  });
}

template <class T>
void run_emulated(const AttentionBackward& args, bool small, std::uint64_t seed) {
  const AttentionShape& s = args.shape;
  const std::int64_t rows = s.batch * s.heads * s.queries;
  std::vector<QueryNumbers> numbers(static_cast<std::size_t>(rows));
  const BackwardOperands<T> operands = operands_for<T>(args, numbers.data());
  run_grid(numbers_blocks<T>(operands.geometry, rows), 0, seed, [&](EmulatedLane& lane, std::int64_t block) {
    attention_numbers_block(lane, operands, static_cast<int>(rows), block);
  });
  with_attention_kernels<T>(static_cast<int>(s.head_columns), small, [&](auto chosen) {
    using Kernels = decltype(chosen);
    run_grid(backward_blocks_of<Kernels>(s), gradient_shared_bytes<Kernels>(), seed,
             [&](EmulatedLane& lane, std::int64_t block) {
               attention_backward_block<Kernels>(lane, operands, keys_blocks_of<Kernels>(s), block);
             });
  });
}

// The case of a kernel, run by its emulation; each run has another order of threads and another timing of copies. With
// a missing barrier, one run would give other bits than the next.
template <class Args>
KernelCase emulated_case(const Args& shape, core::DType dtype, bool small) {
  KernelCase kernel_case = case_of(shaped(shape, dtype));
  kernel_case.run = [args = shaped(shape, dtype), small, seed = std::uint64_t{0}](std::span<void* const> memory,
                                                                                  const Context& /*where*/) mutable {
    const Args bound = with_memory(args, memory);
    ++seed;
    with_activation_type(bound.q.dtype, [&](auto zero) { run_emulated<decltype(zero)>(bound, small, seed); });
  };
  return kernel_case;
}

template <class Args>
void expect_right(const AttentionShape& shape, core::DType dtype, bool same_bits, bool small) {
  const KernelCase kernel_case = emulated_case(Args{.shape = shape}, dtype, small);
  const auto device = core::make_cpu_device();
  ThreadPool pool(1);
  const Context context(pool);
  const CaseRunner runner{*device, context};
  EXPECT_EQ(result_errors(kernel_case, 1, runner), "");
  EXPECT_EQ(result_errors(kernel_case, 2, runner, 1), "") << "each operand one element off its alignment";
  if (same_bits) {
    EXPECT_EQ(determinism_errors(kernel_case, 3, {runner}), "") << "a barrier may be missing";
  }
}

void expect_right(const AttentionShape& shape, core::DType dtype, bool same_bits, bool small = false) {
  expect_right<AttentionForward>(shape, dtype, same_bits, small);
  expect_right<AttentionBackward>(shape, dtype, same_bits, small);
}

void expect_cases(core::DType dtype) {
  for (const AttentionShape& shape : kAttentionTestShapes) expect_right(shape, dtype, false);
}

// Tests each tile size twice. bf16 and f16 differ in one instruction: each has one of the two tests.
void expect_columns(core::DType dtype) {
  for (const std::int64_t columns : {24, 64, 128, 200}) {
    expect_right({.batch = 1, .heads = 2, .queries = 40, .keys = 129, .head_columns = columns}, dtype, true);
  }
}

// With a negative scale, the largest product is the smallest score.
void expect_negative_scale(core::DType dtype) {
  expect_right({.batch = 1, .heads = 1, .queries = 66, .keys = 66, .head_columns = 48, .scale = -0.2F}, dtype, false);
}

TEST(AttentionEmulated, CasesF32) {
  expect_cases(core::DType::f32);
}
TEST(AttentionEmulated, CasesBf16) {
  expect_cases(core::DType::bf16);
}
TEST(AttentionEmulated, ColumnsF32) {
  expect_columns(core::DType::f32);
}
TEST(AttentionEmulated, ColumnsF16) {
  expect_columns(core::DType::f16);
}
TEST(AttentionEmulated, SmallTiles) {
  expect_right({.batch = 1, .heads = 2, .queries = 70, .keys = 135, .head_columns = 64}, core::DType::bf16, true, true);
}
TEST(AttentionEmulated, NegativeScale) {
  expect_negative_scale(core::DType::f32);
  expect_negative_scale(core::DType::bf16);
}

}  // namespace
}  // namespace lockstep::kernels
