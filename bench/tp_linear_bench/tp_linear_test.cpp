// Formulas of bytes, comparisons, and passes of two threads; and layers on every form of grid.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bench/step/part.h"
#include "bench/tp_linear_bench/tp_linear.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::tp_linear {
namespace {

using step_bench::kNothing;
using step_bench::Mode;
using step_bench::PartResult;
using step_bench::Pass;
using step_bench::PassRunner;

constexpr Shape kShape{.batch = 2, .length = 24, .hidden = 32, .heads = 8, .vocabulary = 61};

double a_rank(Block kind, const Shape& shape, int ranks, bool sequence_parallel) {
  const TpLayer layer{.kind = kind, .shape = shape, .rank = {ranks, 0}, .sequence_parallel = sequence_parallel};
  const std::array<double, 2> bytes = wire_bytes_of(block_of(layer));
  return bytes[0] + bytes[1];
}

// A layer of a transformer: 8 b s h (t-1)/t elements (Narayanan et al. 2021, arXiv:2104.04473, section 3.2).
TEST(Formulas, ALayerSendsAsPublished) {
  for (const int t : {2, 4, 8}) {
    const auto published = static_cast<double>(8 * kShape.batch * kShape.length * kShape.hidden * (t - 1) / t * 4);
    EXPECT_EQ(a_rank(Block::attention, kShape, t, false) + a_rank(Block::mlp, kShape, t, false), published);
    const double again = published / 4;
    EXPECT_EQ(a_rank(Block::attention, kShape, t, true) + a_rank(Block::mlp, kShape, t, true), published + again);
    EXPECT_EQ(a_rank(Block::up, kShape, t, false) + a_rank(Block::down, kShape, t, false),
              a_rank(Block::mlp, kShape, t, false));
    EXPECT_EQ(a_rank(Block::loss, kShape, t, false), 12 * kShape.batch * kShape.length * (t - 1));
  }
}

TEST(Check, FindsWhatIsFarAndWhatIsNoNumber) {
  const Runs y = runs_of({.name = "y", .shape = {4}}, {});
  const std::vector<float> whole{1, -8, 3, 0.5F};
  EXPECT_EQ(wrong_elems({"y", whole, y}, whole, 0), 0);
  EXPECT_EQ(wrong_elems({"y", {1.07F, -8, 3.09F, 0.5F}, y}, whole, 0.01), 1);  // 0.08 are allowed
  EXPECT_EQ(wrong_elems({"y", {1.07F, -8, 3.02F, 0.5F}, y, true}, whole, 0.01), 1);
  EXPECT_EQ(wrong_elems({"y", {1, -8, std::nanf(""), 0.5F}, y}, whole, 1), 1);
  // The second of two ranks has the last of three words, and one that is none.
  const Runs words = runs_of({.name = "table", .shape = {3, 1}, .split = workload::Split::rows}, {2, 1});
  EXPECT_EQ(wrong_elems({"table", {3, 0}, words}, {1, 2, 3}, 0), 0);
  EXPECT_EQ(wrong_elems({"table", {3, 0.5F}, words}, {1, 2, 3}, 0), 1) << "padding that is not zero";
  EXPECT_EQ(unlike_elems({0.0F, 1}, {-0.0F, 1}), 1);
}

// Calls body(runner) on one rank.
void with_runner(const std::function<void(PassRunner&)>& body) {
  backends::run_mesh({}, {}, [&](backends::MeshRank& mesh) {
    PassRunner runner(mesh, 0, core::WaitPolicy::beside_work(2, 1, std::chrono::seconds(10)));
    body(runner);
  });
}

TEST(PassRunner, KeepsTheOrderThatTasksNeed) {
  std::atomic<int> made{0};
  std::vector<int> seen;
  Pass pass;
  for (int i = 0; i < 8; ++i) {
    const auto make = [&made, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      made = i + 1;
    };
    const int kernel = pass.add(false, 0, make, kNothing);
    pass.add(
        true, 0, [&] { seen.push_back(made); }, kernel);
  }
  int at_end = 0;
  pass.add(
      false, 0, [&] { at_end = static_cast<int>(seen.size()); }, static_cast<int>(pass.tasks().size()) - 1);
  with_runner([&](PassRunner& runner) {
    for (int run = 0; run < 20; ++run) {
      made = 0;
      seen.clear();
      runner.run(pass, Mode::overlapped);
      EXPECT_EQ(at_end, 8);
      for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_GE(seen[i], static_cast<int>(i) + 1);
    }
  });
}

TEST(PassRunner, AFailureOfEitherThreadEndsBoth) {
  for (const bool in_exchange : {false, true}) {
    Pass pass;
    const auto fails = [] { throw core::Error(core::Failure::wrong_data, "as it should"); };
    const auto goes_on = [] {};
    const int first = pass.add(in_exchange, 0, fails, kNothing);
    pass.add(!in_exchange, 0, goes_on, first);
    try {
      with_runner([&](PassRunner& runner) { runner.run(pass, Mode::overlapped); });
      FAIL() << "nothing thrown";
    } catch (const core::Error& error) {
      EXPECT_NE(std::string(error.what()).find("as it should"), std::string::npos) << error.what();
    }
  }
}

TpLinearFlags small_flags(core::DType dtype) {
  TpLinearFlags flags;
  flags.shape = kShape;
  flags.shape.dtype = dtype;
  flags.rounds = 1;
  flags.warmup_rounds = 1;
  flags.blocks = {Block::up, Block::down, Block::mlp};
  flags.ranks.clear();
  return flags;
}

class EveryGrid : public testing::TestWithParam<core::DType> {};

TEST_P(EveryGrid, GivesWhatOneRankGivesAndSendsByFormula) {
  TpLinearFlags flags = small_flags(GetParam());
  for (const char* grid : {"2x2", "2.5d:2x2x1", "2.5d:2x2x2", "2x2x2"}) {
    flags.grids.push_back(workload::parse_grid(grid));
  }
  check_cases(flags);
  const std::vector<Case> cases = cases_of(flags);
  ASSERT_EQ(cases.size(), 3 * flags.grids.size());  // the column-parallel layer, the row-parallel one, and the pair
  for (const Case& bench_case : cases) {
    SCOPED_TRACE(name_of(bench_case.block) + " " + workload::text_of(*bench_case.grid));
    const Reference reference = reference_of(bench_case, flags.shape, 1);
    ASSERT_EQ(reference.size(), bench_case.block == Block::mlp ? 4U : 3U);
    for (const PartResult& form : run_case(flags, bench_case, reference)) {
      EXPECT_EQ(form.wrong(), 0);
      EXPECT_EQ(form.unlike(), 0);
      EXPECT_EQ(form.sent_bytes(), form.formula_bytes());
      EXPECT_FALSE(form.is_wrong());
    }
    Reference other = reference;
    other.begin()->second.at(7) = 1e6F;
    for (const PartResult& form : run_case(flags, bench_case, other)) EXPECT_TRUE(form.is_wrong());
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, EveryGrid, testing::Values(core::DType::f32, core::DType::bf16));

// A reference of another layer would do as well, if nothing was looked at.
TEST(EveryRow, IsWrongWhereTheReferenceIsAnother) {
  const TpLinearFlags flags = small_flags(core::DType::f32);
  const Case bench_case{Block::down, 2, true, {1, 2}};
  Reference reference = reference_of(bench_case, flags.shape, 1);
  reference.at("y").at(5) += 1;
  for (const PartResult& form : run_case(flags, bench_case, reference)) {
    EXPECT_EQ(form.wrong(), form.checked_passes);  // on the one rank that has the element
    EXPECT_TRUE(form.is_wrong());
  }
}

TEST(EveryRow, IsWrongWhereAnExchangeIsMissingOrHasOtherBytes) {
  PartResult result;
  result.checked_passes = 1;
  PartResult::OfRank& rank = result.ranks.emplace_back();
  rank.sent_bytes = {32, 64};
  rank.formula_bytes = {32, 64};
  rank.least_bytes = 96;
  EXPECT_FALSE(result.is_wrong());
  rank.sent_bytes = {64, 64};  // another algorithm, of the same exchanges
  EXPECT_FALSE(result.is_wrong());
  rank.least_bytes = 64;
  EXPECT_TRUE(result.is_wrong()) << "exchanges of fewer bytes, sent by an algorithm that sends more";
  rank.least_bytes = 96;
  rank.sent_bytes = {32, 32};
  EXPECT_TRUE(result.is_wrong()) << "fewer bytes than any algorithm sends";
}

}  // namespace
}  // namespace lockstep::tp_linear
