#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "core/device.h"
#include "kernels/gemm/gemm_choice.h"
#include "kernels/gemm/gemm_reference.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

TEST(Gemm, CasesHoldOnTheCpu) {
  for (const KernelCase& kernel_case : gemm_test_cases()) EXPECT_EQ(cpu_errors(kernel_case), "");
}

std::string errors_of(const KernelCase& kernel_case, std::string_view implementation,
                      const std::vector<ThreadPool*>& pools) {
  const auto device = core::make_cpu_device();
  std::vector<Context> contexts;
  for (ThreadPool* pool : pools) {
    contexts.emplace_back(*pool);
    choose_gemms_by_rule(contexts.back(), implementation);
  }
  std::vector<CaseRunner> runners;
  for (const Context& context : contexts) runners.push_back({*device, context});
  std::string text;
  for (std::size_t i = 0; i < runners.size(); ++i)
    text += result_errors(kernel_case, 7 + i, runners[i], static_cast<int>(i));
  return text + determinism_errors(kernel_case, 7, runners);
}

// Tests each implementation separately: measurement would hide those that are slower.
TEST(Gemm, EveryImplementationIsRight) {
  ThreadPool pool1(1);
  ThreadPool pool2(2);
  ThreadPool pool3(3);
  for (const std::string& name : GemmChoice::of(pool1).names()) {
    for (KernelCase kernel_case : gemm_test_cases()) {
      const std::vector<std::string> able = gemm_implementations(kernel_case.dtype);
      if (std::find(able.begin(), able.end(), name) == able.end()) continue;
      kernel_case.deterministic = name != "onednn";  // ours sum in one order for any number of threads
      EXPECT_EQ(errors_of(kernel_case, name, {&pool1, &pool2, &pool3}), "") << name;
    }
  }
}

// Our implementation makes several passes over the depth, and over more rows or columns than a block has.
TEST(Gemm, SumsThatGoThroughMemoryAreRight) {
  ThreadPool pool(2);
  for (core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const GemmShape& shape : {GemmShape{3, 1100, 1060}, GemmShape{1100, 1060, 4}}) {
      const CaseFacts facts{.shape = "large", .dtype = dtype, .terms = {{"y", shape.inputs}}};
      const KernelCase kernel_case = make_case(GemmForward{.shape = shape, .epilogue = Epilogue::bias}, facts);
      EXPECT_EQ(errors_of(kernel_case, "packed", {&pool}), "");
    }
  }
}

TEST(Gemm, GradientsAreThoseOfTheForward) {
  const GemmShape shape{4, 5, 3};
  const CaseFacts facts{.shape = "small", .dtype = core::DType::f64};
  const KernelCase forward = make_case(GemmForward{.shape = shape, .epilogue = Epilogue::bias}, facts);
  EXPECT_EQ(gradient_errors({.forward = forward,
                             .backward = make_case(GemmInputGradient{.shape = shape}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"x", "dx"}}}),
            "");
  EXPECT_EQ(gradient_errors({.forward = forward,
                             .backward = make_case(GemmWeightGradient{.shape = shape, .with_bias = true}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"w", "dw"}, {"bias", "dbias"}}}),
            "");
}

// A layer's forward in f32, with memory of its own.
struct Layer {
  explicit Layer(const GemmShape& of)
      : shape(of),
        x(elems(of.rows * of.inputs), 1),
        w(elems(of.outputs * of.inputs), 1),
        y(elems(of.rows * of.outputs)) {}

  GemmForward args() {
    return with_memory(shaped(GemmForward{.shape = shape}, core::DType::f32),
                       std::vector<void*>{x.data(), w.data(), y.data()});
  }
  static std::size_t elems(std::int64_t count) { return static_cast<std::size_t>(count); }

  GemmShape shape;
  std::vector<float> x;
  std::vector<float> w;
  std::vector<float> y;
};

// y[r, :] holds NaN if x[r, :] does, and infinity if it does and w is positive; other rows are not affected.
TEST(Gemm, NanAndInfinityStayInTheirRows) {
  constexpr std::size_t kRows = 35;
  constexpr std::size_t kInputs = 40;
  constexpr std::size_t kOutputs = 33;
  ThreadPool pool(2);
  Layer layer({kRows, kInputs, kOutputs});
  layer.x[7 * kInputs + 3] = std::numeric_limits<float>::quiet_NaN();
  layer.x[34 * kInputs + 39] = std::numeric_limits<float>::infinity();
  const std::vector<float>& y = layer.y;
  for (const std::string& name : GemmChoice::of(pool).names()) {
    choose_gemms_by_rule(Context(pool), name);
    run(layer.args(), Context(pool));
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(std::isnan(y[r * kOutputs + 32]), r == 7) << name << " row " << r;
      if (r == 7) continue;
      EXPECT_EQ(y[r * kOutputs], r == 34 ? std::numeric_limits<float>::infinity() : 40.0F) << name << " row " << r;
    }
  }
}

TEST(Gemm, WrongArgumentsAreNamed) {
  ThreadPool pool(1);
  const auto message = [&](const auto& args) { return usage_error_of([&] { run(args, Context(pool)); }); };
  EXPECT_NE(message(GemmForward{.shape = {0, 4, 4}}).find("rows is 0"), std::string::npos);
  EXPECT_NE(message(GemmBatched{.batch = 1, .m = 1, .n = 1, .k = -1}).find("k is -1"), std::string::npos);
  std::vector<float> x(16);
  const In view{x.data(), core::DType::f32, 16};
  const GemmForward over{.shape = {4, 4, 4}, .x = view, .w = view, .y = {x.data(), core::DType::f32, 16}};
  EXPECT_NE(message(over).find("y overlap"), std::string::npos);
}

// A choice is kept and can be queried.
TEST(Gemm, ChoiceIsKept) {
  ThreadPool pool(2);
  std::vector<float> memory(12288);
  const Product product{.m = 64,
                        .n = 64,
                        .k = 64,
                        .a = {memory.data(), core::DType::f32, 64, 1},
                        .b = {memory.data() + 4096, core::DType::f32, 64, 1},
                        .c = {memory.data() + 8192, core::DType::f32, 64}};
  GemmChoice choice(2);
  EXPECT_EQ(choice.chosen(product), "");
  choice.run(product, pool);
  const std::string first = choice.chosen(product);
  EXPECT_NE(first, "");
  choice.run(product, pool);
  EXPECT_EQ(choice.chosen(product), first);
  choice.choose_by_rule("packed");
  EXPECT_EQ(choice.chosen(product), "");
  choice.run(product, pool);
  EXPECT_EQ(choice.chosen(product).substr(0, 6), "packed");
}

TEST(Gemm, ImplementationIsTold) {
  ThreadPool pool(1);
  Layer layer({4, 4, 4});
  const GemmForward args = layer.args();
  choose_gemms_by_rule(Context(pool), "packed");
  EXPECT_EQ(implementation_of(args, Context(pool)), "");
  run(args, Context(pool));
  EXPECT_EQ(implementation_of(args, Context(pool)), "packed by rows");
}

// Two pools compute the same bits without having measured anything: the first implementation that can is chosen.
TEST(GemmChoice, ByRuleBitsRepeatFromPoolToPool) {
  Layer layer({96, 70, 130});
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (float& value : layer.x) value = normal(random);
  for (float& value : layer.w) value = normal(random);
  std::vector<std::vector<float>> results;
  for (int round = 0; round < 2; ++round) {
    ThreadPool pool(2);
    const Context where(pool);
    choose_gemms_by_rule(where);
    run(layer.args(), where);
    results.push_back(layer.y);
    EXPECT_EQ(implementation_of(layer.args(), where), GemmChoice::of(pool).names().front() + " by columns");
  }
  EXPECT_EQ(results[0], results[1]);
}

// The named implementation comes first if it can compute the product; otherwise the fixed order follows.
TEST(GemmChoice, ByRuleTheNamedImplementationComesFirst) {
  ThreadPool pool(1);
  std::vector<float> memory(48);
  for (const std::string& name : GemmChoice::of(pool).names()) {
    for (const core::DType dtype : {core::DType::f32, core::DType::f16}) {
      const GemmForward args{.shape = {4, 4, 4},
                             .x = {memory.data(), dtype, 16},
                             .w = {memory.data() + 16, dtype, 16},
                             .y = {memory.data() + 32, dtype, 16}};
      const Context where(pool);
      choose_gemms_by_rule(where, name);
      run(args, where);
      EXPECT_EQ(implementation_of(args, where), (dtype == core::DType::f32 ? name : "packed") + " by rows");
    }
  }
  EXPECT_THROW(choose_gemms_by_rule(Context(pool), "cublas"), core::Error);
}

// The larger side is split, so that threads pack less between them, unless one thread gets much more than its share.
TEST(GemmChoice, ByRuleTheLargerSideIsSplit) {
  const auto split_of = [](std::int64_t rows, std::int64_t outputs, int threads) {
    ThreadPool pool(threads);
    const Context where(pool);
    choose_gemms_by_rule(where);
    Layer layer({rows, 8, outputs});
    run(layer.args(), where);
    const std::string chosen = implementation_of(layer.args(), where);
    return chosen.substr(chosen.rfind(' ') + 1);
  };
  EXPECT_EQ(split_of(256, 768, 2), "columns");
  EXPECT_EQ(split_of(768, 256, 2), "rows");
  EXPECT_EQ(split_of(256, 256, 2), "rows");
  EXPECT_EQ(split_of(96, 64, 2), "columns");  // 3 grains of rows are split into 2 and 1
  EXPECT_EQ(split_of(64, 96, 2), "rows");
}

}  // namespace
}  // namespace lockstep::kernels
