// Runs the decode kernel on tensor cores on an emulated block: products lane by lane, tails of tiles, tables, masks,
// and the merge of the warps. cuda_emulated_test has the other kernels of this folder, cuda_kernels_gpu_test runs all
// on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/random.h"
#include "kernels/attention_decode/attention_decode_reference.h"
#include "kernels/attention_decode/decode_tiles.cuh"
#include "kernels/base/kernel_case.h"
#include "testing/emulated_cuda/emulated_block.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

template <class Tiles>
void run_blocks(const DecodeOperands<typename Tiles::Value>& operands, std::int64_t table_entries, std::uint64_t seed) {
  const std::int64_t blocks = operands.shape.sequences * operands.shape.kv_heads * operands.chunks * operands.parts;
  emulated::Threads threads;
  for (std::int64_t block = 0; block < blocks; ++block) {
    EmulatedBlock emulated({.threads = kAttentionThreads,
                            .shared_bytes = decode_shared_bytes<Tiles>(table_entries),
                            .seed = core::hash64(seed, static_cast<std::uint64_t>(block)),
                            .late_copies = seed % 2 == 0});
    emulated.run(threads, [&](EmulatedLane& lane) { decode_tiles_block<Tiles>(lane, operands, block); });
  }
}

// Does the work of attention_decode.cu's second kernel.
template <class T>
void merge_parts(const DecodeOperands<T>& args) {
  const DecodeShape& s = args.shape;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t length = args.lengths[row / s.queries / s.heads];
    const std::int64_t parts = (length + args.part_tokens - 1) / args.part_tokens;
    double sum = 0;
    std::vector<double> o(static_cast<std::size_t>(s.head_columns));
    for (std::int64_t slot = row * args.parts; slot < row * args.parts + parts; ++slot) {
      const double weight = std::exp(static_cast<double>(args.part_sums[2 * slot]));
      sum += weight * static_cast<double>(args.part_sums[2 * slot + 1]);
      for (std::size_t c = 0; c < o.size(); ++c) {
        const double part = static_cast<double>(args.part_o[slot * s.head_columns + static_cast<std::int64_t>(c)]);
        o[c] += weight * part;
      }
    }
    args.lse[row] = static_cast<float>(std::log(sum));
    T* const to = args.o + query_offset(args, row);
    for (std::size_t c = 0; c < o.size(); ++c) to[c] = EmulatedLane::narrow<T>(static_cast<float>(o[c] / sum));
  }
}

template <class T>
void run_emulated(const AttentionDecode& args, std::int64_t parts, std::uint64_t seed) {
  const DecodeShape& s = args.shape;
  DecodeOperands<T> operands = decode_operands<T>(args, kDecodeTileRows);
  const std::int64_t block = s.paged() ? s.block : 1;
  operands.part_tokens = (s.most_keys + parts * block - 1) / (parts * block) * block;
  operands.parts = (s.most_keys + operands.part_tokens - 1) / operands.part_tokens;
  std::vector<float> part_o(static_cast<std::size_t>(s.rows() * operands.parts * s.head_columns), NAN);
  std::vector<float> part_sums(static_cast<std::size_t>(2 * s.rows() * operands.parts), NAN);
  operands.part_o = part_o.data();
  operands.part_sums = part_sums.data();
  const std::int64_t entries = s.paged() ? (operands.part_tokens + block - 1) / block : 0;
  if (s.head_columns <= 64) {
    run_blocks<DecodeTiles<T, 64>>(operands, entries, seed);
  } else {
    run_blocks<DecodeTiles<T, 128>>(operands, entries, seed);
  }
  if (operands.parts > 1) merge_parts(operands);
}

struct Given {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_columns;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
};

KernelCase emulated_case(const Given& given, core::DType dtype, std::int64_t block, std::int64_t parts) {
  DecodeShape shape{.sequences = static_cast<std::int64_t>(given.lengths.size()),
                    .heads = given.heads,
                    .kv_heads = given.kv_heads,
                    .head_columns = given.head_columns,
                    .most_keys = 0,
                    .keys = 0,
                    .queries = given.queries,
                    .block = block,
                    .blocks = block == 0 ? 0 : 40};
  Draw lengths{.kind = Draw::Kind::given};
  for (const std::int64_t length : given.lengths) {
    shape.most_keys = std::max(shape.most_keys, length);
    shape.keys += length;
    lengths.values.push_back(static_cast<double>(length));
  }
  const std::int64_t terms = shape.most_keys + shape.head_columns;
  CaseFacts facts{.shape = "H" + std::to_string(given.heads) + "_" + std::to_string(given.kv_heads) + "_D" +
                           std::to_string(given.head_columns) + "_b" + std::to_string(block),
                  .dtype = dtype,
                  .draws = {{"lengths", lengths}},
                  .terms = {{"o", terms}, {"lse", terms}},
                  .rounded_factors = {"o"}};
  if (block > 0) facts.draws["table"] = {.kind = Draw::Kind::index, .below = shape.blocks};
  KernelCase kernel_case = make_case(AttentionDecode{.shape = shape}, facts);
  kernel_case.run = [args = shaped(AttentionDecode{.shape = shape}, dtype), parts, seed = std::uint64_t{0}](
                        std::span<void* const> memory, const Context& /*where*/) mutable {
    const AttentionDecode bound = with_memory(args, memory);
    ++seed;
    if (bound.q.dtype == core::DType::bf16) return run_emulated<core::BFloat16>(bound, parts, seed);
    run_emulated<core::Float16>(bound, parts, seed);
  };
  return kernel_case;
}

// Rows that fill a block's 16, more and fewer; contexts that end in a tile, at its end, and before the second warp's
// tokens; several queries, which see different tokens; columns that do not fill a tile.
void expect_right(core::DType dtype) {
  const auto device = core::make_cpu_device();
  ThreadPool pool(1);
  const Context context(pool);
  const CaseRunner runner{*device, context};
  const std::array all{Given{8, 2, 64, {200, 1, 64}}, Given{40, 2, 24, {70, 130}}, Given{9, 1, 128, {150, 15}},
                       Given{4, 2, 16, {90, 3}, 3},   Given{16, 1, 72, {129}},     Given{2, 1, 8, {17, 16}, 2}};
  for (const Given& given : all) {
    for (const auto& [block, parts] : {std::pair{0, 1}, std::pair{5, 3}, std::pair{16, 1}}) {
      const KernelCase kernel_case = emulated_case(given, dtype, block, parts);
      EXPECT_EQ(result_errors(kernel_case, 1, runner), "") << parts << " parts";
    }
  }
  EXPECT_EQ(determinism_errors(emulated_case(all[4], dtype, 16, 3), 3, {runner}), "") << "a barrier may be missing";
}

TEST(AttentionDecodeTiles, Bf16) {
  expect_right(core::DType::bf16);
}
TEST(AttentionDecodeTiles, F16) {
  expect_right(core::DType::f16);
}

// The end of a padded batch.
TEST(AttentionDecodeTiles, AContextWithoutTokensHasNoNumbers) {
  std::vector<core::BFloat16> ones(64 * 16, core::to_bfloat16(1));
  std::vector<core::BFloat16> o(2 * 16, core::to_bfloat16(1));
  std::vector<float> lse(2, 1);
  const std::int32_t length = 0;
  const DecodeShape shape{.sequences = 1, .heads = 2, .kv_heads = 1, .head_columns = 16, .most_keys = 64, .keys = 0};
  const In all{ones.data(), core::DType::bf16, static_cast<std::int64_t>(ones.size())};
  run_emulated<core::BFloat16>({.shape = shape,
                                .q = {ones.data(), core::DType::bf16, 2 * 16},
                                .k = all,
                                .v = all,
                                .lengths = {&length, core::DType::i32, 1},
                                .o = {o.data(), core::DType::bf16, 2 * 16},
                                .lse = {lse.data(), core::DType::f32, 2}},
                               1, 1);
  for (const core::BFloat16 value : o) EXPECT_TRUE(std::isnan(core::to_float(value)));
  for (const float value : lse) EXPECT_EQ(value, -INFINITY);
}

}  // namespace
}  // namespace lockstep::kernels
