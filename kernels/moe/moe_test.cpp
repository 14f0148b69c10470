#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "kernels/moe/moe_reference.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"
#include "testing/kernels/router_choices.h"

namespace lockstep::kernels {
namespace {

TEST(Moe, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(moe_test_cases()), "");
}

TEST(Moe, ChoicesAreExpertsForScoresThatAreNotNumbers) {
  ThreadPool pool(1);
  for (const RouterShape& shape : {kPlainRouter, kLimitedRouter}) {
    EXPECT_EQ(choices_outside_of_experts(shape, Context(pool)), 0);
  }
}

// The choices do not change with a small step of the logits.
CaseFacts router_facts(const RouterShape& shape) {
  return {.shape = "T5_E7_k3", .dtype = core::DType::f64, .derive = [shape](ReferenceData<double>& data) {
            for (std::int64_t c = 0; c < shape.copies() && !data["choices"].empty(); ++c) {
              data["choices"][static_cast<std::size_t>(c)] = static_cast<double>((c / 3 + c % 3) % shape.experts);
            }
            for (std::size_t i = 0; i < data["logits"].size(); ++i) {
              const auto token = static_cast<std::int64_t>(i) / shape.experts;
              const auto place = (static_cast<std::int64_t>(i) % shape.experts - token + shape.experts) % shape.experts;
              data["logits"][i] = -0.3 * static_cast<double>(place) + 0.1 * static_cast<double>(token);
            }
          }};
}

TEST(Moe, TheRoutersBackwardIsTheDerivative) {
  for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid}) {
    for (const bool normalised : {false, true}) {
      const RouterShape shape{
          .tokens = 5, .experts = 7, .top_k = 3, .scores = scores, .normalised = normalised, .scale = 2.5F};
      EXPECT_EQ(gradient_errors({.forward = make_case(RouterForward{.shape = shape}, router_facts(shape)),
                                 .backward = make_case(RouterBackward{.shape = shape}, router_facts(shape)),
                                 .outputs = {{"gates", "d_gates"}},
                                 .inputs = {{"logits", "d_logits"}}}),
                "");
    }
  }
}

// Compares gradients of the balance and z losses with differences of their sums, in f64.
TEST(Moe, TheLossesGradientsAreTheDerivativesOfTheSums) {
  const RouterShape shape{.tokens = 4, .experts = 5, .top_k = 2};
  const CaseFacts facts{.shape = "T4_E5_k2", .dtype = core::DType::f64};
  ReferenceData<double> data =
      draw_inputs(make_case(RouterBackward{.shape = shape, .balance_scale = 0.5F, .z_scale = 0.25F}, facts), 7);
  const std::vector<double> counts{3, 1, 0, 2, 2};
  const std::vector<double> choices{0, 1, 0, 3, 4, 0, 3, 4};
  std::copy(counts.begin(), counts.end(), data["counts"].begin());
  std::copy(choices.begin(), choices.end(), data["choices"].begin());
  std::fill(data["d_gates"].begin(), data["d_gates"].end(), 0);
  reference(RouterBackward{.shape = shape, .balance_scale = 0.5F, .z_scale = 0.25F}, data);
  const std::vector<double> logits(data["logits"].begin(), data["logits"].end());
  const auto loss = [&](const std::vector<double>& at) {
    ReferenceData<double> sums;
    sums.add("logits", at);
    sums.add("choices", choices);
    sums.add("counts", std::vector<double>(5));
    sums.add("probabilities", std::vector<double>(5));
    sums.add("z", {0});
    reference(RouterLoads{.shape = shape}, sums);
    double total = 0.125 * sums["z"][0];
    for (std::size_t e = 0; e < 5; ++e) total += 0.5 * counts[e] * sums["probabilities"][e];
    EXPECT_EQ(std::vector<double>(sums["counts"].begin(), sums["counts"].end()), counts);
    return total;
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    std::vector<double> up = logits;
    std::vector<double> down = logits;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(data["d_logits"][i], (loss(up) - loss(down)) / 2e-5, 1e-8) << i;
  }
}

TEST(Moe, TheSumsBackwardIsTheDerivative) {
  const auto derive = [](ReferenceData<double>& data) {
    const std::vector<double> slots{2, -1, 0, 4, 5, 1};
    const std::vector<double> copies{2, 5, 0, -1, 3, 4};
    if (!data["slots"].empty()) std::copy(slots.begin(), slots.end(), data["slots"].begin());
    if (!data["copies"].empty()) std::copy(copies.begin(), copies.end(), data["copies"].begin());
  };
  const CaseFacts facts{.shape = "T3_k2", .dtype = core::DType::f64, .derive = derive};
  const Unpermute forward{.tokens = 3, .top_k = 2, .rows = 6, .columns = 5};
  EXPECT_EQ(gradient_errors(
                {.forward = make_case(forward, facts),
                 .backward = make_case(UnpermuteBackward{.tokens = 3, .top_k = 2, .rows = 6, .columns = 5}, facts),
                 .outputs = {{"out", "d_out"}},
                 .inputs = {{"y", "dy"}, {"gates", "d_gates"}}}),
            "");
}

// Second choices are dropped before first ones.
TEST(Moe, ACapacityDropsTheLastChoices) {
  const std::vector<std::int32_t> choices{0, 1, 0, 1, 1, 0};
  std::vector<std::int32_t> counts(2);
  std::vector<std::int32_t> slots(6);
  std::vector<std::int32_t> copies(4);
  run_on_cpu(AssignSlots{.tokens = 3, .experts = 2, .top_k = 2, .capacity = 2},
             {choices.data(), counts.data(), slots.data(), copies.data()});
  EXPECT_EQ(counts, (std::vector<std::int32_t>{3, 3}));
  EXPECT_EQ(slots, (std::vector<std::int32_t>{0, 3, 1, -1, 2, -1}));
  EXPECT_EQ(copies, (std::vector<std::int32_t>{0, 2, 4, 1}));
}

// A mixture of one expert is a dense layer: its gate is 1, and rows return unchanged.
TEST(Moe, OneExpertChangesNoBit) {
  const std::vector<float> logits{-3, 0, 88, 1e-30F};
  std::vector<std::int32_t> choices(4);
  std::vector<float> gates(4);
  for (const bool normalised : {false, true}) {
    run_on_cpu(RouterForward{.shape = {.tokens = 4, .experts = 1, .top_k = 1, .normalised = normalised}},
               {logits.data(), choices.data(), gates.data()});
    EXPECT_EQ(gates, std::vector<float>(4, 1.0F));
    EXPECT_EQ(choices, std::vector<std::int32_t>(4, 0));
  }
}

// Experts 0 and 1 have the largest scores but are in different groups; the group of 4 and 5 has the larger sum of two.
TEST(Moe, ATokensExpertsComeFromTheBestGroups) {
  const std::vector<float> logits{3, -9, 2.9F, -9, 2.5F, 2.5F};
  std::vector<std::int32_t> choices(2);
  std::vector<float> gates(2);
  const auto chosen = [&](std::int64_t groups, std::int64_t limit) {
    const RouterShape shape{
        .tokens = 1, .experts = 6, .top_k = 2, .scores = RouterScores::sigmoid, .groups = groups, .limit = limit};
    run_on_cpu(RouterForward{.shape = shape}, {logits.data(), choices.data(), gates.data()});
    return choices;
  };
  EXPECT_EQ(chosen(1, 1), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(chosen(3, 3), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(chosen(3, 2), (std::vector<std::int32_t>{0, 2})) << "one score of each group counts";
  EXPECT_EQ(chosen(3, 1), (std::vector<std::int32_t>{4, 5})) << "two scores of each group count";
}

TEST(Moe, WrongArgumentsAreNamed) {
  EXPECT_EQ(refusal(RouterForward{.shape = {.tokens = 4, .experts = 8, .top_k = 3, .groups = 4, .limit = 1}}),
            "router_fwd: top_k is 3; allowed: at most 2, the experts in as many groups as a token may use");
  EXPECT_EQ(refusal(RouterForward{.shape = {.tokens = 4, .experts = 8, .top_k = 2, .groups = 3}}),
            "router_fwd: groups is 3; allowed: divisors of experts, 8");
  EXPECT_EQ(refusal(RouterForward{.shape = {.tokens = 4, .experts = 2, .top_k = 3}}),
            "router_fwd: top_k is 3; allowed: at most 2, the experts");
  EXPECT_NE(refusal(RouterLoads{.shape = {.tokens = 4, .experts = 2, .top_k = 1, .scores = RouterScores::sigmoid}})
                .find("allowed: softmax"),
            std::string::npos);
  EXPECT_EQ(refusal(GroupedGemmForward{.shape = {{0, 0}, 4, 4}}), "grouped_gemm_fwd: rows is 0; allowed: at least 1");
  EXPECT_EQ(refusal(GroupedGemmForward{.shape = {{3, -1}, 4, 4}}),
            "grouped_gemm_fwd: the least rows of a group is -1; allowed: at least 0");
}

}  // namespace
}  // namespace lockstep::kernels
