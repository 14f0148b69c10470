#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention/attention_reference.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Attention, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(attention_test_cases()), "");
}

// A fused QKV activation, and its gradients: a token's row holds q, then k, then v.
struct Fused {
  AttentionShape shape;
  std::vector<float> qkv;
  std::vector<float> o;
  std::vector<float> lse;
  std::vector<float> d_o;
  std::vector<float> dqkv;

  template <class View, class Memory>
  View part(Memory& memory, std::int64_t which) const {
    return {memory.data() + which * shape.row(), core::DType::f32, shape.extent()};
  }
  template <class View, class Memory>
  static View all(Memory& memory) {
    return {memory.data(), core::DType::f32, static_cast<std::int64_t>(memory.size())};
  }
  AttentionForward forward() {
    return {shape, part<In>(qkv, 0), part<In>(qkv, 1), part<In>(qkv, 2), all<Out>(o), all<Out>(lse)};
  }
  AttentionBackward backward() {
    return {.shape = shape,
            .q = part<In>(qkv, 0),
            .k = part<In>(qkv, 1),
            .v = part<In>(qkv, 2),
            .o = all<In>(o),
            .lse = all<In>(lse),
            .d_o = all<In>(d_o),
            .dq = part<Out>(dqkv, 0),
            .dk = part<Out>(dqkv, 1),
            .dv = part<Out>(dqkv, 2)};
  }
};

// Makes one with `gap` elements after v in each row.
Fused fused(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t columns, std::int64_t gap = 0) {
  AttentionShape shape{batch, heads, length, length, columns};
  shape.qkv_stride = 3 * shape.row() + gap;
  const auto tokens = static_cast<std::size_t>(batch * length);
  const auto row = static_cast<std::size_t>(shape.row());
  const auto stride = static_cast<std::size_t>(shape.stride());
  Fused result{shape,
               std::vector<float>(tokens * stride),
               std::vector<float>(tokens * row),
               std::vector<float>(tokens * static_cast<std::size_t>(heads)),
               std::vector<float>(tokens * row),
               std::vector<float>(tokens * stride, -7)};
  for (std::size_t i = 0; i < result.qkv.size(); ++i) result.qkv[i] = std::sin(static_cast<float>(i * i % 1009));
  for (std::size_t i = 0; i < result.d_o.size(); ++i) result.d_o[i] = std::cos(static_cast<float>(i * i % 907));
  return result;
}

// Returns q, k, v or one of their gradients, packed.
std::vector<float> packed(const Fused& from, const std::vector<float>& memory, std::int64_t which) {
  std::vector<float> rows;
  for (std::int64_t n = 0; n < from.shape.batch * from.shape.queries; ++n) {
    const auto row = memory.begin() + n * from.shape.stride() + which * from.shape.row();
    rows.insert(rows.end(), row, row + from.shape.row());
  }
  return rows;
}

TEST(Attention, FusedActivationsGiveThePackedBits) {
  ThreadPool pool(2);
  Fused case_data = fused(2, 3, 70, 20, 5);
  run(case_data.forward(), Context(pool));
  run(case_data.backward(), Context(pool));

  AttentionShape shape = case_data.shape;
  shape.qkv_stride = 0;
  std::array<std::vector<float>, 3> inputs;
  std::array<std::vector<float>, 3> gradients;
  for (std::size_t i = 0; i < 3; ++i) {
    inputs[i] = packed(case_data, case_data.qkv, static_cast<std::int64_t>(i));
    gradients[i].resize(inputs[i].size());
  }
  std::vector<float> o(case_data.o.size());
  std::vector<float> lse(case_data.lse.size());
  const auto& [q, k, v] = inputs;
  run_on_cpu(AttentionForward{.shape = shape}, {q.data(), k.data(), v.data(), o.data(), lse.data()}, 2);
  EXPECT_EQ(case_data.o, o);
  EXPECT_EQ(case_data.lse, lse);
  run_on_cpu(AttentionBackward{.shape = shape},
             {q.data(), k.data(), v.data(), o.data(), lse.data(), case_data.d_o.data(), gradients[0].data(),
              gradients[1].data(), gradients[2].data()},
             2);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(packed(case_data, case_data.dqkv, static_cast<std::int64_t>(i)), gradients[i]);
}

TEST(Attention, NothingBetweenRowsIsWritten) {
  ThreadPool pool(1);
  Fused case_data = fused(2, 3, 70, 21, 5);
  run(case_data.forward(), Context(pool));
  run(case_data.backward(), Context(pool));
  const auto stride = static_cast<std::size_t>(case_data.shape.stride());
  for (std::size_t i = 0; i < case_data.dqkv.size(); ++i) {
    if (i % stride >= stride - 5) {
      ASSERT_EQ(case_data.dqkv[i], -7) << i;
    }
  }
}

// Element of a token's q, k or v.
float& at(Fused& case_data, std::int64_t token, std::int64_t which, std::int64_t column) {
  return case_data
      .qkv[static_cast<std::size_t>(token * case_data.shape.stride() + which * case_data.shape.row() + column)];
}
bool row_is_nan(const Fused& case_data, std::int64_t query) {
  for (std::int64_t c = 0; c < case_data.shape.head_columns; ++c) {
    if (!std::isnan(case_data.o[static_cast<std::size_t>(query * case_data.shape.head_columns + c)])) return false;
  }
  return true;
}

TEST(Attention, BadQueryRowIsNanAlone) {
  on_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    ThreadPool pool(1);
    for (float bad : {kNan, kInfinity}) {
      Fused case_data = fused(1, 1, 130, 8);
      for (std::int64_t j = 0; j < 130; ++j) at(case_data, j, 1, 3) = 1;  // so that infinity gives scores of +infinity
      at(case_data, 70, 0, 3) = bad;
      run(case_data.forward(), Context(pool));
      for (std::int64_t i = 0; i < 130; ++i) EXPECT_EQ(row_is_nan(case_data, i), i == 70) << i;
      EXPECT_TRUE(std::isnan(case_data.lse[70]));
    }
  });
}

TEST(Attention, BadKeyReachesTheQueriesThatSeeIt) {
  on_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    ThreadPool pool(1);
    Fused case_data = fused(1, 1, 130, 8);
    at(case_data, 70, 1, 3) = kNan;
    run(case_data.forward(), Context(pool));
    for (std::int64_t i = 0; i < 130; ++i) EXPECT_EQ(row_is_nan(case_data, i), i >= 70) << i;
  });
}

TEST(Attention, ScoresOfMinusInfinityHaveNoWeight) {
  on_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    ThreadPool pool(1);
    Fused case_data = fused(1, 1, 130, 1);
    for (std::int64_t j = 0; j < 130; ++j) at(case_data, j, 0, 0) = 1;
    for (std::int64_t j = 0; j < 130; ++j) at(case_data, j, 1, 0) = j == 100 ? 1 : -kInfinity;
    run(case_data.forward(), Context(pool));
    for (std::int64_t i = 0; i < 100; ++i) {
      EXPECT_TRUE(row_is_nan(case_data, i)) << i;
      EXPECT_EQ(case_data.lse[static_cast<std::size_t>(i)], -kInfinity) << i;
    }
    for (std::size_t i = 100; i < 130; ++i) {
      EXPECT_EQ(case_data.o[i], at(case_data, 100, 2, 0)) << i;
      EXPECT_EQ(case_data.lse[i], 1) << i;
    }
  });
}

TEST(Attention, LargeScoresDoNotOverflow) {
  ThreadPool pool(1);
  Fused case_data = fused(1, 1, 130, 8);
  for (float& value : case_data.qkv) value *= 100;
  run(case_data.forward(), Context(pool));
  for (float value : case_data.o) ASSERT_LE(std::fabs(value), 100.0F);
  run(case_data.backward(), Context(pool));
  for (float value : case_data.dqkv) ASSERT_TRUE(std::isfinite(value));
}

TEST(Attention, WrongShapesAreNamed) {
  const auto of = [](const AttentionShape& shape) { return refusal(AttentionForward{.shape = shape}); };
  EXPECT_EQ(of({0, 1, 1, 1, 1}), "attention_fwd: batch is 0; allowed: at least 1");
  EXPECT_EQ(of({1, 1, 4, 3, 1}), "attention_fwd: keys is 3; allowed: at least 4");
  EXPECT_EQ(of({1, 1, 4, 0, 1, false}), "attention_fwd: keys is 0; allowed: at least 1");
  EXPECT_EQ(of({1, 2, 4, 4, 8, true, 0, 15}), "attention_fwd: qkv_stride is 15; allowed: at least 16");
}

TEST(Attention, GradientsMayBeInterleavedAndNotOverlap) {
  Fused case_data = fused(1, 2, 9, 4);
  EXPECT_EQ(refusal(case_data.backward()), "");
  AttentionBackward args = case_data.backward();
  args.dv.data = case_data.dqkv.data() + 2 * case_data.shape.row() - 1;
  EXPECT_EQ(refusal(args), "attention_bwd: dk and dv overlap");
  args = case_data.backward();
  args.dq.data = case_data.qkv.data();
  EXPECT_EQ(refusal(args), "attention_bwd: q and dq overlap");
}

TEST(Attention, ReferenceOfTheBackwardIsTheDerivative) {
  for (const AttentionShape& shape : {AttentionShape{1, 2, 5, 5, 3}, AttentionShape{2, 1, 3, 6, 4, true, 0.7F},
                                      AttentionShape{1, 1, 4, 3, 2, false}}) {
    const CaseFacts facts{.shape = "small", .dtype = core::DType::f64};
    const GradientCheck check{.forward = make_case(AttentionForward{.shape = shape}, facts),
                              .backward = make_case(AttentionBackward{.shape = shape}, facts),
                              .outputs = {{"o", "d_o"}},
                              .inputs = {{"q", "dq"}, {"k", "dk"}, {"v", "dv"}}};
    EXPECT_EQ(gradient_errors(check), "");
  }
}

}  // namespace
}  // namespace lockstep::kernels
