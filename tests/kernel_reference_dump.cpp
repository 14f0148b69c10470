// Cases for tests/test_gradients.py: small shapes of every kernel that has a gradient, and of the optimizers.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_reference.h"
#include "kernels/base/kernel_case.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cross_entropy_reference.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_reference.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_reference.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/residual/residual.h"
#include "kernels/rotary/rotary.h"
#include "kernels/softmax/softmax.h"
#include "tests/npy.h"

namespace lockstep::kernels::tests {

struct ReferenceCase {
  KernelCase one;
  std::map<std::string, double> arguments;  // integers, flags and factors, by their names in the kernel's struct
};

std::vector<ReferenceCase> reference_cases();

namespace {

using Cases = std::vector<ReferenceCase>;

double number(std::int64_t value) {
  return static_cast<double>(value);
}

void add_gelu(Cases& cases) {
  cases.push_back({make_case(GeluForward{.count = 501}, {.shape = "N501"}), {}});
  cases.push_back({make_case(GeluBackward{.count = 501}, {.shape = "N501"}), {}});
}

void add_swiglu(Cases& cases) {
  const SwigluForward forward{.rows = 7, .columns = 13};
  const SwigluBackward backward{.rows = forward.rows, .columns = forward.columns};
  const std::map<std::string, double> arguments{{"rows", number(forward.rows)}, {"columns", number(forward.columns)}};
  cases.push_back({make_case(forward, {.shape = "N7_C13"}), arguments});
  cases.push_back({make_case(backward, {.shape = "N7_C13"}), arguments});
}

void add_rotary(Cases& cases) {
  for (const bool backward : {false, true}) {
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      const Rotary args{.pairs = pairs,
                        .rows = 10,
                        .length = 5,
                        .heads = 3,
                        .head_columns = 6,
                        .first_position = 700,
                        .theta = 500,
                        .backward = backward};
      cases.push_back({make_case(args, {.shape = pairs == RotaryPairs::halves ? "halves" : "neighbours"}),
                       {{"rows", number(args.rows)},
                        {"length", number(args.length)},
                        {"heads", number(args.heads)},
                        {"head_columns", number(args.head_columns)},
                        {"first_position", number(args.first_position)},
                        {"theta", args.theta},
                        {"halves", pairs == RotaryPairs::halves ? 1 : 0}}});
    }
  }
}

void add_cross_entropy(Cases& cases) {
  const CrossEntropy args{.rows = 7, .columns = 50, .valid_columns = 47, .scale = 0.125F};
  const Draw ids{.kind = Draw::Kind::index, .below = args.valid_columns};
  cases.push_back({make_case(args, {.shape = "R7_V50", .draws = {{"targets", ids}}}),
                   {{"rows", number(args.rows)},
                    {"columns", number(args.columns)},
                    {"valid_columns", number(args.valid_columns)},
                    {"scale", args.scale}}});
}

void add_gemm(Cases& cases) {
  const GemmShape shape{.rows = 9, .inputs = 13, .outputs = 6};
  const std::map<std::string, double> arguments{
      {"rows", number(shape.rows)}, {"inputs", number(shape.inputs)}, {"outputs", number(shape.outputs)}};
  const auto add = [&](const auto& args) { cases.push_back({make_case(args, {.shape = "N9_C13_O6"}), arguments}); };
  for (Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
    add(GemmForward{.shape = shape, .epilogue = epilogue});
  }
  for (const bool flag : {false, true}) {
    add(GemmInputGradient{.shape = shape, .through_gelu = flag});
    add(GemmWeightGradient{.shape = shape, .with_bias = flag});
  }
}

std::vector<double> copy_of(std::span<const double> values) {
  return {values.begin(), values.end()};
}

// A backward's y is the softmax of random inputs.
void add_softmax(Cases& cases) {
  const SoftmaxForward forward{.rows = 5, .columns = 19};
  const std::map<std::string, double> arguments{{"rows", number(forward.rows)}, {"columns", number(forward.columns)}};
  cases.push_back({make_case(forward, {.shape = "R5_C19"}), arguments});
  const auto derive = [forward](ReferenceData<double>& data) {
    ReferenceData<double> of_forward;
    of_forward.add("x", copy_of(data["y"]));
    of_forward.add("y", copy_of(data["y"]));
    reference(forward, of_forward);
    std::copy(of_forward["y"].begin(), of_forward["y"].end(), data["y"].begin());
  };
  const SoftmaxBackward backward{.rows = forward.rows, .columns = forward.columns};
  cases.push_back({make_case(backward, {.shape = "R5_C19", .derive = derive}), arguments});
}

// A backward's mean and rstd are those of its x.
void add_norm(Cases& cases, Norm norm, bool with_residual) {
  const NormForward forward{.norm = norm, .rows = 6, .columns = 21, .with_residual = with_residual};
  const NormBackward backward{
      .norm = norm, .rows = forward.rows, .columns = forward.columns, .with_residual = with_residual};
  const std::map<std::string, double> arguments{{"rows", number(forward.rows)},
                                                {"columns", number(forward.columns)},
                                                {"epsilon", static_cast<double>(forward.epsilon)}};
  const auto derive = [forward](ReferenceData<double>& data) {
    for (std::int64_t r = 0; r < forward.rows; ++r) {
      const auto x =
          data["x"].subspan(static_cast<std::size_t>(r * forward.columns), static_cast<std::size_t>(forward.columns));
      const RowMoments<double> row = row_moments<double>(forward.norm, x, forward.epsilon);
      if (forward.norm == Norm::layer) data["mean"][static_cast<std::size_t>(r)] = row.mean;
      data["rstd"][static_cast<std::size_t>(r)] = row.rstd;
    }
  };
  cases.push_back({make_case(forward, {.shape = "R6_C21"}), arguments});
  cases.push_back({make_case(backward, {.shape = "R6_C21", .derive = derive}), arguments});
}

// A backward's o and lse are the forward's.
void add_attention(Cases& cases, const AttentionShape& shape, const std::string& name) {
  const std::map<std::string, double> arguments{{"batch", number(shape.batch)},
                                                {"heads", number(shape.heads)},
                                                {"queries", number(shape.queries)},
                                                {"keys", number(shape.keys)},
                                                {"head_columns", number(shape.head_columns)},
                                                {"causal", shape.causal ? 1 : 0},
                                                {"factor", static_cast<double>(shape.factor())},
                                                {"stride", number(shape.stride())},
                                                {"key_heads", number(shape.key_heads())},
                                                {"key_stride", number(shape.key_stride())}};
  const auto derive = [shape](ReferenceData<double>& data) {
    ReferenceData<double> of_forward;
    for (const char* operand : {"q", "k", "v", "o", "lse"}) of_forward.add(operand, copy_of(data[operand]));
    reference(AttentionForward{.shape = shape}, of_forward);
    for (const char* result : {"o", "lse"}) {
      std::copy(of_forward[result].begin(), of_forward[result].end(), data[result].begin());
    }
  };
  cases.push_back({make_case(AttentionForward{.shape = shape}, {.shape = name}), arguments});
  cases.push_back({make_case(AttentionBackward{.shape = shape}, {.shape = name, .derive = derive}), arguments});
}

void add_embedding(Cases& cases, std::int64_t length, std::int64_t first_id, const std::string& name) {
  constexpr std::int64_t kVocabulary = 11;
  const EmbeddingForward forward{
      .tokens = 24, .length = length, .rows = kVocabulary - first_id, .columns = 5, .first_id = first_id};
  const EmbeddingBackward backward{.tokens = forward.tokens,
                                   .length = forward.length,
                                   .rows = forward.rows,
                                   .columns = forward.columns,
                                   .first_id = forward.first_id};
  const CaseFacts facts{.shape = name, .draws = {{"ids", {.kind = Draw::Kind::index, .below = kVocabulary}}}};
  const std::map<std::string, double> arguments{{"tokens", number(forward.tokens)},
                                                {"length", number(forward.length)},
                                                {"rows", number(forward.rows)},
                                                {"columns", number(forward.columns)},
                                                {"first_id", number(forward.first_id)}};
  cases.push_back({make_case(forward, facts), arguments});
  cases.push_back({make_case(backward, facts), arguments});
}

void add_optimizer(Cases& cases) {
  const std::map<std::string, Draw> draws{{"v", {.kind = Draw::Kind::positive, .scale = 1e-3}},
                                          {"clip", {.kind = Draw::Kind::positive}}};
  for (const OptimizerKind kind : kOptimizerKinds) {
    for (const std::int64_t step : {1, 7}) {
      const OptimizerStep args{
          .count = 101, .kind = kind, .numbers = {.decay = 0.1F}, .step = step, .grad_scale = 0.25F};
      const OptimizerNumbers& numbers = args.numbers;
      cases.push_back({make_case(args, {.shape = "N101_step" + std::to_string(step), .draws = draws}),
                       {{"rate", numbers.rate},
                        {"beta1", numbers.beta1},
                        {"beta2", numbers.beta2},
                        {"epsilon", numbers.epsilon},
                        {"decay", numbers.decay},
                        {"step", number(args.step)},
                        {"grad_scale", args.grad_scale}}});
    }
  }
}

}  // namespace

std::vector<ReferenceCase> reference_cases() {
  Cases cases;
  for (const bool with_residual : {false, true}) {
    for (Norm norm : {Norm::layer, Norm::rms}) add_norm(cases, norm, with_residual);
  }
  add_softmax(cases);
  // batch, heads, queries, keys, head_columns, causal, scale, qkv_stride, kv_heads
  add_attention(cases, {2, 3, 9, 9, 4}, "causal");
  add_attention(cases, {1, 2, 5, 8, 4, true, 0.3F, 29}, "strided");
  add_attention(cases, {1, 2, 6, 4, 8, false}, "whole");
  add_attention(cases, {2, 6, 5, 7, 4, true, 0, 0, 2}, "grouped");
  add_attention(cases, {1, 4, 5, 5, 4, true, 0, 25, 1}, "grouped_strided");
  add_embedding(cases, 8, 0, "positions");
  add_embedding(cases, 0, 4, "shard");
  add_optimizer(cases);
  cases.push_back({make_case(ResidualAdd{.count = 33}, {.shape = "N33"}), {}});
  add_gelu(cases);
  add_swiglu(cases);
  add_rotary(cases);
  add_cross_entropy(cases);
  add_gemm(cases);
  return cases;
}

}  // namespace lockstep::kernels::tests

// Writes results of kernels' references for random inputs, so that tests/test_gradients.py can compare them with
// PyTorch's automatic differentiation: kernel_reference_dump FOLDER. A case is a folder in FOLDER with case.json
// (kernel, its arguments, operands) and, for each operand, before/NAME.npy and after/NAME.npy in f64.
namespace {

namespace fs = std::filesystem;
using lockstep::kernels::Access;
using lockstep::kernels::CaseOperand;
using lockstep::kernels::KernelCase;
using lockstep::kernels::ReferenceData;
using lockstep::kernels::tests::ReferenceCase;

void write_all(const fs::path& folder, const ReferenceData<double>& data) {
  fs::create_directories(folder);
  for (const auto& [name, values] : data.arrays()) lockstep::tests::write_npy(folder / (name + ".npy"), values);
}

// Inputs that are computed from others are not rounded to the operand's dtype, so that both sides compute from the same
// numbers.
ReferenceData<double> exact_inputs(const KernelCase& one) {
  ReferenceData<double> data = lockstep::kernels::draw_inputs(one, /*seed=*/7);
  if (one.derive) one.derive(data);
  for (std::size_t k = 0; k < one.operands.size(); ++k) {
    auto& values = data.arrays()[k].second;
    if (one.operands[k].access == Access::write) values.assign(values.size(), 0.0);
  }
  return data;
}

void dump(const fs::path& folder, const ReferenceCase& dumped) {
  ReferenceData<double> data = exact_inputs(dumped.one);
  write_all(folder / "before", data);
  dumped.one.reference(data);
  write_all(folder / "after", data);
  nlohmann::json operands = nlohmann::json::object();
  for (const CaseOperand& operand : dumped.one.operands) operands[operand.name] = operand.access != Access::read;
  std::ofstream(folder / "case.json") << nlohmann::json{
      {"kernel", dumped.one.kernel}, {"arguments", dumped.arguments}, {"written", operands}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kernel_reference_dump FOLDER\n");
    return 6;
  }
  try {
    for (const ReferenceCase& dumped : lockstep::kernels::tests::reference_cases()) {
      dump(fs::path(argv[1]) / (dumped.one.kernel + "-" + dumped.one.shape), dumped);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_reference_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
