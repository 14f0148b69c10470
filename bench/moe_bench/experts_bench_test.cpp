// Cases and their refusals, stated imbalance, bytes and results of small layers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/moe_bench/moe.h"
#include "core/error.h"

namespace lockstep::experts_bench {
namespace {

ExpertsFlags flags_of(std::vector<std::string> more) {
  std::vector<std::string> words{"moe_bench", "--tokens", "96", "--hidden", "32", "--ffn",
                                 "48",        "--rounds", "1",  "--warmup", "1"};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_experts_flags(static_cast<int>(argv.size()), argv.data());
}

std::string refusal_of(std::vector<std::string> more) {
  try {
    flags_of(std::move(more));
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Cases, WhatCannotBeIsRefused) {
  EXPECT_EQ(refusal_of({"--ep", "3"}), "--ep 3: does not divide --experts 8; allowed: a divisor");
  EXPECT_NE(refusal_of({"--top-k", "9"}).find("allowed: at most --experts"), std::string::npos);
  EXPECT_NE(refusal_of({"--skew", "4.5"}).find("allowed: at most 4 times"), std::string::npos);
  EXPECT_NE(refusal_of({"--loads", "1,2"}).find("one for each of --experts 8"), std::string::npos);
}

TEST(Rows, AreRightAndSendByFormula) {
  for (const char* dtype : {"f32", "bf16"}) {
    const ExpertsFlags flags =
        flags_of({"--ep", "1,2,4", "--capacity", "0,1", "--skew", "0,1,2", "--dtype", dtype, "--shared", "32"});
    for (const Case& bench_case : cases_of(flags)) {
      const Result result = run_case(flags, bench_case);
      SCOPED_TRACE(std::string(dtype) + " ep " + std::to_string(bench_case.ranks) + " capacity " +
                   std::to_string(bench_case.capacity_factor) + " skew " + std::to_string(bench_case.skew));
      EXPECT_EQ(result.part.wrong(), 0);
      EXPECT_EQ(result.part.sent_bytes(), result.part.formula_bytes());
      if (bench_case.skew > 0) {
        EXPECT_NEAR(result.most_load, bench_case.skew, 0.12);
      }
      if (bench_case.capacity_factor == 0) {
        EXPECT_EQ(result.dropped, 0);
      } else if (bench_case.skew == 2) {
        EXPECT_GT(result.dropped, result.copies / 16);  // an eighth of all, but for what falls where there is room
      }
    }
  }
}

// k T h (EP - 1) / EP elements per direction, four times.
TEST(Rows, WithAnEvenCapacitySendTheLeast) {
  const ExpertsFlags flags = flags_of({"--ep", "2,4", "--capacity", "1"});
  for (const Case& bench_case : cases_of(flags)) {
    const Result result = run_case(flags, bench_case);
    const double a_rank = 4.0 * 2 * 96 * 32 * 4 * (bench_case.ranks - 1) / bench_case.ranks;
    EXPECT_EQ(result.part.sent_bytes(), a_rank * bench_case.ranks);
  }
}

// A hot expert's rank has the rows that the load implies.
TEST(Rows, OfASkewedRouterLieOnOneRank) {
  const ExpertsFlags flags = flags_of({"--ep", "4", "--skew", "3"});
  const Result result = run_case(flags, cases_of(flags).front());
  EXPECT_NEAR(static_cast<double>(result.most_rows) / result.mean_rows, (3 + 5.0 / 7) / 2, 0.15);
}

}  // namespace
}  // namespace lockstep::experts_bench
