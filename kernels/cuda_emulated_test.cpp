// Runs the CUDA kernels' own sources on an emulated grid: checks indices, tails, alignment, barriers and arithmetic, as
// far as this is possible without a GPU. cuda_kernels_gpu_test runs them on a GPU. Attention has its own such test; for
// GEMM this runs the kernels that replace cuBLASLt.
#include <gtest/gtest.h>

#include "core/device_cpu.h"
#include "kernels/attention_decode/attention_decode_reference.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/stream_gate.h"
#include "kernels/bucket/bucket_reference.h"
#include "kernels/cross_entropy/cross_entropy_reference.h"
#include "kernels/embedding/embedding_reference.h"
#include "kernels/emulated_cuda/emulated_grid.h"
#include "kernels/norm/norm_reference.h"
#include "kernels/quantize/quantize_reference.h"
#include "kernels/registry.h"
#include "kernels/softmax/softmax_reference.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kMostElems = 200000;  // limit per operand, because each element may need a thread

class EmulatedCuda : public testing::TestWithParam<KernelFamily> {
 protected:
  // Runs in which threads and blocks are scheduled in another order must give the same bits.
  static void expect_good(const KernelCase& one) {
    const auto device = core::make_cpu_device();
    const auto stream = device->make_stream();
    CudaContext cuda(*device, *stream);
    const Context context(cuda);
    std::uint64_t order = 1;
    const CaseRunner runner{*device, context, [&order] { emulated::set_order(++order); }};
    EXPECT_EQ(result_errors(one, 1, runner), "");
    EXPECT_EQ(result_errors(one, 2, runner, 1), "") << "each operand one element off its alignment";
    EXPECT_EQ(determinism_errors(one, 3, {runner}), "");
  }
};

TEST_P(EmulatedCuda, CasesHold) {
  for (const KernelCase& one : GetParam().test_cases()) {
    if (one.operands.front().elems <= kMostElems) expect_good(one);
  }
}

// The emulated device runs a kernel at its launch, so nothing can open the gate; cuda_kernels_gpu_test checks that.
TEST(EmulatedGate, OpensItselfWhenNobodyDoes) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  const CudaContext cuda(*device, *stream);
  StreamGate gate(cuda, std::chrono::milliseconds(1));
  EXPECT_FALSE(gate.lost_patience());
  for (int turn = 0; turn < 2; ++turn) {
    gate.close();
    EXPECT_TRUE(gate.lost_patience());
    gate.open();
  }
}

// Cases for code paths that only shapes take that are too large for the families' own cases.
std::vector<KernelCase> large_cases() {
  constexpr std::int64_t kPastTheStash = 60000;  // columns of f32; 57344 fit in 224 KiB
  const std::map<std::string, std::int64_t> row_terms{{"y", kPastTheStash}, {"dx", kPastTheStash}};
  std::vector<KernelCase> cases{
      make_case(SoftmaxForward{.rows = 2, .columns = kPastTheStash}, {.shape = "past_the_stash", .terms = row_terms}),
      make_case(SoftmaxBackward{.rows = 2, .columns = kPastTheStash}, {.shape = "past_the_stash", .terms = row_terms}),
      make_case(CrossEntropy{.rows = 2, .columns = kPastTheStash, .valid_columns = kPastTheStash - 1},
                {.shape = "past_the_stash",
                 .draws = {{"targets", {.kind = Draw::Kind::index, .below = kPastTheStash - 1}}},
                 .terms = {{"losses", kPastTheStash}, {"logits", kPastTheStash}}}),
      make_case(Quantize{.count = 12345, .block = 5000}, {.shape = "a_block_of_threads_a_block"}),
      make_case(
          Dequantize{.count = 12345, .block = 5000},
          {.shape = "a_block_of_threads_a_block", .draws = {{"codes", {.kind = Draw::Kind::index, .below = 127}}}}),
      make_case(PackBucket{.scale = 0.5F, .counts = std::vector<std::int64_t>(130, 77)}, {.shape = "several_launches"}),
      make_case(UnpackBucket{.scale = 0.5F, .counts = std::vector<std::int64_t>(130, 77)},
                {.shape = "several_launches"}),
  };
  for (Norm norm : {Norm::layer, Norm::rms}) {
    for (std::int64_t columns : {std::int64_t{2048}, kPastTheStash}) {
      const std::string shape = "C" + std::to_string(columns);
      const std::map<std::string, std::int64_t> terms{{"y", columns},  {"mean", columns}, {"rstd", columns},
                                                      {"dx", columns}, {"dgamma", 5},     {"dbeta", 5}};
      cases.push_back(make_case(NormForward{.norm = norm, .rows = 5, .columns = columns, .with_residual = true},
                                {.shape = shape, .terms = terms}));
      cases.push_back(make_case(NormBackward{.norm = norm, .rows = 5, .columns = columns, .with_residual = true},
                                {.shape = shape, .draws = {{"rstd", {.kind = Draw::Kind::positive}}}, .terms = terms}));
    }
  }
  // Contexts without tokens among others: their FLOPs differ from the declared ones, so no family's case has them.
  for (std::int64_t most_keys : {20, 700}) {
    const auto tokens = static_cast<double>(most_keys);
    const DecodeShape shape{.sequences = 3,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_columns = 24,
                            .most_keys = most_keys,
                            .keys = most_keys,
                            .block = 16,
                            .blocks = most_keys};
    cases.push_back(make_case(AttentionDecode{.shape = shape},
                              {.shape = "no_tokens_K" + std::to_string(most_keys),
                               .draws = {{"lengths", {.kind = Draw::Kind::given, .values = {0, tokens, 0}}},
                                         {"table", {.kind = Draw::Kind::index, .below = most_keys}}},
                               .terms = {{"o", most_keys}, {"lse", most_keys}}}));
  }
  // Rows of the table with none, one, and more than one segment of 32 tokens, and ids outside the table.
  for (std::int64_t rows : {2, 9, 1000}) {
    cases.push_back(make_case(EmbeddingBackward{.tokens = 300, .length = 7, .rows = rows, .columns = 24, .first_id = 1},
                              {.shape = "rows" + std::to_string(rows),
                               .draws = {{"ids", {.kind = Draw::Kind::index, .below = rows + 2}}},
                               .terms = {{"dtable", 300}, {"dpositions", 43}}}));
  }
  return cases;
}

std::vector<KernelFamily> emulated_families() {
  std::vector<KernelFamily> families{{"large", large_cases, nullptr}};
  for (const KernelFamily& family : kKernelFamilies) {
    if (std::string_view(family.name) != "attention") families.push_back(family);
  }
  return families;
}

INSTANTIATE_TEST_SUITE_P(Families, EmulatedCuda, testing::ValuesIn(emulated_families()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep::kernels
