#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "core/device.h"
#include "kernels/base/case_checks.h"
#include "kernels/gemm/gemm_choice.h"
#include "kernels/gemm/gemm_reference.h"
#include "kernels/registry.h"

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
    GemmChoice::of(*pool).force(implementation);
    contexts.emplace_back(*pool);
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

// Our implementations make several passes over the depth, and over more rows or columns than a block has.
TEST(Gemm, SumsThatGoThroughMemoryAreRight) {
  ThreadPool pool(2);
  for (core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    for (const GemmShape& shape : {GemmShape{3, 1100, 1060}, GemmShape{1100, 1060, 4}}) {
      const CaseFacts facts{.shape = "large", .dtype = dtype, .terms = {{"y", shape.inputs}}};
      const KernelCase kernel_case = make_case(GemmForward{.shape = shape, .epilogue = Epilogue::bias}, facts);
      EXPECT_EQ(errors_of(kernel_case, "own", {&pool}), "");
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

// y[r, :] holds NaN if x[r, :] does, and infinity if it does and w is positive; other rows are not affected.
TEST(Gemm, NanAndInfinityStayInTheirRows) {
  constexpr std::size_t kRows = 35;
  constexpr std::size_t kInputs = 40;
  constexpr std::size_t kOutputs = 33;
  ThreadPool pool(2);
  std::vector<float> x(kRows * kInputs, 1.0F);
  std::vector<float> w(kOutputs * kInputs, 1.0F);
  std::vector<float> y(kRows * kOutputs);
  x[7 * kInputs + 3] = std::numeric_limits<float>::quiet_NaN();
  x[34 * kInputs + 39] = std::numeric_limits<float>::infinity();
  const auto view = [](auto& values) { return static_cast<std::int64_t>(values.size()); };
  const GemmForward args{.shape = {kRows, kInputs, kOutputs},
                         .x = {x.data(), core::DType::f32, view(x)},
                         .w = {w.data(), core::DType::f32, view(w)},
                         .y = {y.data(), core::DType::f32, view(y)}};
  std::vector<std::string> names = GemmChoice::of(pool).names();
  names.emplace_back("");
  for (const std::string& name : names) {
    GemmChoice::of(pool).force(name);
    run(args, Context(pool));
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(std::isnan(y[r * kOutputs + 32]), r == 7) << name << " row " << r;
      if (r == 7) continue;
      EXPECT_EQ(y[r * kOutputs], r == 34 ? std::numeric_limits<float>::infinity() : 40.0F) << name << " row " << r;
    }
  }
}

// Returns the root mean square of y's errors against sums in f64, for factors between 0 and 1.
double error_of(std::string_view implementation, const GemmShape& shape) {
  ThreadPool pool(1);
  GemmChoice::of(pool).force(implementation);
  std::mt19937 random(7);
  std::uniform_real_distribution<float> between(0, 1);
  const auto drawn = [&](std::int64_t elems) {
    std::vector<float> values(static_cast<std::size_t>(elems));
    for (float& value : values) value = between(random);
    return values;
  };
  const std::vector<float> x = drawn(shape.rows * shape.inputs);
  const std::vector<float> w = drawn(shape.outputs * shape.inputs);
  std::vector<float> y(static_cast<std::size_t>(shape.rows * shape.outputs));
  const auto elems = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  run(GemmForward{.shape = shape,
                  .x = {x.data(), core::DType::f32, elems(x)},
                  .w = {w.data(), core::DType::f32, elems(w)},
                  .y = {y.data(), core::DType::f32, elems(y)}},
      Context(pool));
  double squares = 0;
  for (std::int64_t i = 0; i < elems(y); ++i) {
    const float* const row = x.data() + i / shape.outputs * shape.inputs;
    const float* const column = w.data() + i % shape.outputs * shape.inputs;
    double error = y[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < shape.inputs; ++k)
      error -= static_cast<double>(row[k]) * static_cast<double>(column[k]);
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(elems(y)));
}

// On AMX, f32 is multiplied in parts: this must not cause larger errors than sums in f32 have.
TEST(Gemm, PartsOfF32AreAsExactAsF32) {
  ThreadPool pool(1);
  const std::vector<std::string> names = GemmChoice::of(pool).names();
  if (std::find(names.begin(), names.end(), "amx") == names.end()) GTEST_SKIP() << "no AMX here";
  for (const GemmShape& shape : {GemmShape{33, 1, 40}, GemmShape{64, 32, 64}, GemmShape{40, 1000, 70}}) {
    EXPECT_LE(error_of("amx", shape), 1.1 * error_of("packed", shape)) << shape.inputs << " inputs";
  }
}

TEST(Gemm, WrongArgumentsAreNamed) {
  ThreadPool pool(1);
  const auto message = [&](const auto& args) -> std::string {
    try {
      run(args, Context(pool));
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(GemmForward{.shape = {0, 4, 4}}).find("rows is 0"), std::string::npos);
  EXPECT_NE(message(GemmBatched{.batch = 1, .m = 1, .n = 1, .k = -1}).find("k is -1"), std::string::npos);
  std::vector<float> x(16);
  const In view{x.data(), core::DType::f32, 16};
  const GemmForward over{.shape = {4, 4, 4}, .x = view, .w = view, .y = {x.data(), core::DType::f32, 16}};
  EXPECT_NE(message(over).find("y overlap"), std::string::npos);
  EXPECT_THROW(GemmChoice::of(pool).force("cublas"), core::Error);
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
  choice.force("packed");
  choice.run(product, pool);
  EXPECT_EQ(choice.chosen(product).substr(0, 6), "packed");
}

TEST(Gemm, ImplementationIsTold) {
  ThreadPool pool(1);
  std::vector<float> memory(48);
  const GemmForward args{.shape = {4, 4, 4},
                         .x = {memory.data(), core::DType::f32, 16},
                         .w = {memory.data() + 16, core::DType::f32, 16},
                         .y = {memory.data() + 32, core::DType::f32, 16}};
  GemmChoice::of(pool).force("packed");
  EXPECT_EQ(implementation_of(args, Context(pool)), "");
  run(args, Context(pool));
  EXPECT_EQ(implementation_of(args, Context(pool)), "packed by rows");
}

// Two pools compute the same bits without having measured anything: the first implementation that can is chosen.
TEST(GemmChoice, ByRuleBitsRepeatFromPoolToPool) {
  const std::int64_t rows = 96;
  const std::int64_t inputs = 70;
  const std::int64_t outputs = 130;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows * inputs));
  std::vector<float> w(static_cast<std::size_t>(outputs * inputs));
  for (float& value : x) value = normal(random);
  for (float& value : w) value = normal(random);
  std::vector<std::vector<float>> results;
  for (int round = 0; round < 2; ++round) {
    ThreadPool pool(2);
    const Context where(pool);
    choose_gemms_by_rule(where);
    std::vector<float>& y = results.emplace_back(static_cast<std::size_t>(rows * outputs));
    GemmForward args{.shape = {rows, inputs, outputs}};
    args.x = {x.data(), core::DType::f32, rows * inputs};
    args.w = {w.data(), core::DType::f32, outputs * inputs};
    args.y = {y.data(), core::DType::f32, rows * outputs};
    run(args, where);
    EXPECT_EQ(implementation_of(args, where), GemmChoice::of(pool).names().front() + " by columns");
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
    constexpr std::int64_t kInputs = 8;
    ThreadPool pool(threads);
    const Context where(pool);
    choose_gemms_by_rule(where);
    std::vector<float> x(static_cast<std::size_t>(rows * kInputs));
    std::vector<float> w(static_cast<std::size_t>(outputs * kInputs));
    std::vector<float> y(static_cast<std::size_t>(rows * outputs));
    GemmForward args{.shape = {rows, kInputs, outputs}};
    args.x = {x.data(), core::DType::f32, rows * kInputs};
    args.w = {w.data(), core::DType::f32, outputs * kInputs};
    args.y = {y.data(), core::DType::f32, rows * outputs};
    run(args, where);
    const std::string chosen = implementation_of(args, where);
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
