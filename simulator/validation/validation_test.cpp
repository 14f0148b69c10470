#include "testing/validation/validation.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "core/error.h"
#include "testing/core/thrown.h"

namespace lockstep::simulator {
namespace {

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Validation : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cases_ = parse_cases(text_of(LOCKSTEP_VALIDATION_CASES), "cases.json");
    all_ = validate(cases_.cases);
    sweeps_ = parse_sweeps(text_of(LOCKSTEP_COLLECTIVE_CASES), "collective_cases.json");
    collectives_ = validate(sweeps_);
    products_ = parse_product_sweeps(text_of(LOCKSTEP_PRODUCT_CASES), "product_cases.json");
  }
  static inline ValidationCases cases_;
  static inline std::vector<Validated> all_;
  static inline std::vector<CollectiveSweep> sweeps_;
  static inline std::vector<ValidatedCollective> collectives_;
  static inline std::vector<ProductSweep> products_;
};

TEST_F(Validation, PageShowsWhatTheSimulatorPredicts) {
  const std::string page = text_of(LOCKSTEP_VALIDATION_PAGE);
  ASSERT_FALSE(page.empty());
  EXPECT_EQ(with_tables(page, all_, collectives_, products_), page)
      << "run: validation_page simulator/validation docs/validation.md";
}

TEST_F(Validation, FitsAtMostThreeRowsOfAMachine) {
  std::map<std::string, std::set<std::string>> rows;
  std::set<std::string> of_factors;  // factors of individual cases: one row each
  for (const ValidationCase& each : cases_.cases) {
    if (each.fitted) (each.product_factor == 1 ? rows[each.machine] : of_factors).insert(each.table + " " + each.title);
  }
  EXPECT_LE(rows["selene"].size(), 3u);
  EXPECT_LE(rows["dgx-h100"].size(), 1u);
  EXPECT_EQ(of_factors, (std::set<std::string>{"experts mixtral, a2a, bf16", "experts mixtral, a2a, fp8"}));
}

TEST_F(Validation, OneRowThatAMachineIsFittedToIsMet) {
  for (const Validated& each : all_) {
    if (!each.of.fitted || each.of.machine != "dgx-h100" || each.of.product_factor != 1) continue;
    EXPECT_NEAR(each.error(), 0, 0.005) << each.of.title;
  }
}

// The description's share equals the fit to its three digits; the fit from another start gives the same.
TEST_F(Validation, MachineIsTheOneThatFits) {
  const Machine machine = load_machine(cases_.machine);
  const std::vector<ValidationCase> cases = cases_.on_machine();
  const double here = fit_product_share(cases, machine);
  EXPECT_NEAR(here, 1, 0.005);
  EXPECT_NEAR(1.1 * fit_product_share(cases, scaled(machine, 1.1)), here, 0.005);
}

// The errors that the page claims. A change that makes predictions worse has to change these limits.
TEST_F(Validation, PredictionsAreAsCloseAsThePageStates) {
  const auto expect = [&](const std::set<std::string>& tables, std::size_t count, double mean, double max) {
    const Score score = score_of(all_, [&](const Validated& each) { return tables.count(each.of.table) > 0; });
    EXPECT_GE(score.count, count);
    EXPECT_LT(score.mean, mean) << *tables.begin();
    EXPECT_LT(score.max, max) << *tables.begin();
  };
  expect({"sc21", "layer", "step", "strong"}, 28, 0.03, 0.08);
  expect({"zero3"}, 3, 0.10, 0.15);
  expect({"fsdp"}, 4, 0.08, 0.10);
  expect({"schedule"}, 10, 0.06, 0.10);
  expect({"nanotron"}, 5, 0.25, 0.34);
  expect({"llama3"}, 1, 0.02, 0.02);
  expect({"attention"}, 12, 0.15, 0.25);
  expect({"hides"}, 5, 0.01, 0.02);
  expect({"volume"}, 3, 0.03, 0.04);
}

// For every published grid, the layout that is predicted fastest is within 2 % of the fastest.
TEST_F(Validation, ChoosesTheLayoutThatWasFastest) {
  const std::vector<Choice> choices = choices_of(all_);
  EXPECT_GE(choices.size(), 7u);
  for (const Choice& choice : choices) EXPECT_LE(choice.regret(), 0.02) << choice.chosen->of.grid;
}

// Only a few points of one sweep per machine are fitted.
TEST_F(Validation, CollectivesAreAsCloseAsThePageStates) {
  const auto score_of_table = [&](const std::string& table) {
    return score_of(collectives_, [&](const ValidatedCollective& each) { return each.table == table; });
  };
  EXPECT_LT(score_of_table("V100").mean, 0.05);
  EXPECT_LT(score_of_table("A100").mean, 0.04);
  EXPECT_LT(score_of_table("H100").mean, 0.05);
  EXPECT_LT(score_of_table("Two nodes").mean, 0.09);
  EXPECT_LT(score_of(collectives_).mean, 0.07);
  EXPECT_GE(score_of(collectives_).count, 80u);
}

TEST_F(Validation, MachinesHaveTheNumbersOfCollectivesThatFit) {
  std::size_t fitted = 0;
  for (const CollectiveSweep& sweep : sweeps_) {
    const Machine best = refitted(sweep);
    for (const NcclNumber number : sweep.fitted) {
      const double value = value_of(load_machine(sweep.machine), number);
      EXPECT_NEAR(value_of(best, number) / value, 1, 0.01) << sweep.machine << " " << static_cast<int>(number);
      ++fitted;
    }
  }
  EXPECT_EQ(fitted, 10u) << "the page states it";
}

TEST_F(Validation, ProductsAreAsCloseAsThePageStates) {
  ASSERT_EQ(products_.size(), 2u);
  for (const ProductSweep& sweep : products_) {
    const Score score = score_of(validate(std::span(&sweep, 1)));
    EXPECT_GE(score.count, 20u) << sweep.table;
    EXPECT_LT(score.mean, 0.09) << sweep.table;
    const ProductSweep best = refitted(sweep);
    EXPECT_NEAR(best.share / sweep.share, 1, 0.01) << sweep.table;
    EXPECT_NEAR(best.other_us / sweep.other_us, 1, 0.02) << sweep.table;
  }
}

TEST(CollectiveSweeps, AreRefusedWithTheField) {
  const auto refused = [](const std::string& collective, const std::string& more) {
    return core::refusal_of([&] {
      parse_sweeps(R"({"sweeps":[{"table":"t","source":"s","machine":"dgx-a100","collective":")" + collective +
                       R"(","ranks":2,"us":[[8,1]])" + more + "}]}",
                   "c.json");
    });
  };
  EXPECT_EQ(refused("all_reduce", ""), "");
  EXPECT_EQ(refused("gossip", ""),
            "c.json: sweeps[0].collective: gossip; allowed: all_reduce all_gather reduce_scatter all_to_all");
  EXPECT_TRUE(core::has(refused("all_reduce", R"(,"fitted":["speed"],"fitted_bytes":[[8,4]])"),
                        "fitted: speed; allowed: start"));
  EXPECT_NE(refused("all_reduce", R"(,"speed":1)"), "");
}

TEST(ValidationPage, IsFilledBlockByBlock) {
  Validated validated;
  validated.of = {
      .table = "step", .title = "a model", .model = "m", .layout = "tp=1", .measure = "step_s", .published = 2.0};
  validated.predicted = 1.9;
  const std::vector<Validated> all{validated};
  const std::string page = "text\n<!-- table step -->\nold\n<!-- end -->\nmore <!-- table score -->\n<!-- end -->";
  EXPECT_EQ(with_tables(page, all, {}, {}),
            "text\n<!-- table step -->\n| case | published | predicted | error |\n| --- | --- | --- | --- |\n"
            "| a model | 2.00 s | 1.90 s | -5.0 % |\n\nTheir layouts:\n```\na model\n  tp=1\n```\n<!-- end -->\n"
            "more <!-- table score -->\n| table | cases | mean error | largest error |\n| --- | --- | --- | --- |\n"
            "| step | 1 | 5.0 % | 5.0 % |\n| all | 1 | 5.0 % | 5.0 % |\n<!-- end -->");
  EXPECT_THROW(with_tables("<!-- table step -->\nno end", all, {}, {}), core::Error);
  EXPECT_THROW(with_tables("<!-- table other -->\n<!-- end -->", all, {}, {}), core::Error);
}

std::string refusal_of(const std::string& json) {
  return core::refusal_of([&] { validate(parse_cases(json, "c.json").cases); });
}

TEST(ValidationCasesFile, IsRefusedWithTheField) {
  const auto with = [](const std::string& model, const std::string& measure, const std::string& published) {
    return R"({"machine":"selene","cases":[{"table":"t","title":"t","model":")" + model +
           R"(","layout":"tp=1","measure":")" + measure + R"(","published":)" + published + R"(,"fitted":false}]})";
  };
  EXPECT_EQ(refusal_of(with("gpt2-124m", "step_s", "1")), "");
  EXPECT_EQ(refusal_of(with("gpt2-124m", "step_s", "-1")),
            "c.json: cases[0].published: -1; allowed: numbers from 0 up");
  EXPECT_EQ(refusal_of(with("gpt2-124m", "hours", "1")),
            "validation: measure 'hours' is not known; allowed: step_s tflops_per_gpu hidden_ktokens sent_nh "
            "forward_ms backward_ms both_ms, experts_ or attention_ before these three");
  EXPECT_TRUE(core::has(refusal_of(with("gpt9", "step_s", "1")), "model: 'gpt9' is not known"));
}

TEST(ValidationScore, LeavesOutWhatWasFitted) {
  Validated fitted;
  fitted.of.published = 1;
  fitted.of.fitted = true;
  fitted.predicted = 3;
  Validated scored;
  scored.of.published = 2;
  scored.predicted = 2.2;
  const std::vector<Validated> all{fitted, scored};
  EXPECT_EQ(score_of(all).count, 1u);
  EXPECT_NEAR(score_of(all).max, 0.1, 1e-12);
}

}  // namespace
}  // namespace lockstep::simulator
