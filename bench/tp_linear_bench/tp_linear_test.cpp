// Formulas of bytes, rows of tiles, comparisons, and passes of two threads; and every layer on a few ranks.
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
#include "bench/tp_linear_bench/block.h"
#include "bench/tp_linear_bench/tp_linear.h"
#include "core/error.h"
#include "core/wait.h"
#include "parallel/parameters/store.h"

namespace lockstep::tp_linear {
namespace {

using step_bench::Mode;
using step_bench::PartResult;
using step_bench::PassRunner;

constexpr Shape kShape{.batch = 2, .length = 24, .hidden = 32, .heads = 8, .vocabulary = 61};

std::int64_t a_rank(BlockKind kind, const Shape& shape, int ranks, bool sequence_parallel) {
  return formula_bytes_of_all(kind, shape, {ranks, 0, sequence_parallel, 1}) / ranks;
}

// A layer of a transformer: 8 b s h (t-1)/t elements (Narayanan et al. 2021, arXiv:2104.04473, section 3.2).
TEST(Formulas, ALayerSendsAsPublished) {
  for (const int t : {2, 4, 8}) {
    const std::int64_t published = 8 * kShape.batch * kShape.length * kShape.hidden * (t - 1) / t * 4;
    EXPECT_EQ(a_rank(BlockKind::attention, kShape, t, false) + a_rank(BlockKind::mlp, kShape, t, false), published);
    const std::int64_t again = 2 * kShape.batch * kShape.length * kShape.hidden * (t - 1) / t * 4;
    EXPECT_EQ(a_rank(BlockKind::attention, kShape, t, true) + a_rank(BlockKind::mlp, kShape, t, true),
              published + again);
    EXPECT_EQ(a_rank(BlockKind::column, kShape, t, false) + a_rank(BlockKind::row, kShape, t, false),
              a_rank(BlockKind::mlp, kShape, t, false));
    EXPECT_EQ(a_rank(BlockKind::cross_entropy, kShape, t, false), 12 * kShape.batch * kShape.length * (t - 1));
  }
}

TEST(Tiles, EveryRowHasOnePlaceAndATileSomeOfEachShare) {
  for (const bool sequence_parallel : {false, true}) {
    for (const int tiles : {1, 2, 4, 8}) {
      const Tiles all{48, {3, 0, sequence_parallel, tiles}};
      std::vector<int> seen(48);
      const std::vector<std::int32_t> order = all.order();
      for (const Tile& tile : all.all()) {
        std::vector<int> of_share(3);
        for (std::int64_t i = 0; i < tile.rows; ++i) {
          const std::int32_t row = order[static_cast<std::size_t>(tile.first + i)];
          ++seen[static_cast<std::size_t>(row)];
          ++of_share[static_cast<std::size_t>(row / 16)];
          if (!all.reorders()) {
            EXPECT_EQ(row, tile.first + i);
          }
        }
        if (all.reorders()) {
          EXPECT_EQ(of_share, std::vector<int>(3, static_cast<int>(tile.rows / 3)));
        }
      }
      EXPECT_EQ(seen, std::vector<int>(48, 1));
    }
  }
}

TEST(Check, FindsWhatIsFarAndWhatIsNoNumber) {
  const Result result{{.name = "y", .shape = {4}}};
  const std::vector<float> whole{1, -8, 3, 0.5F};
  EXPECT_EQ(wrong_elems(result, {}, whole, whole, 0), 0);
  EXPECT_EQ(wrong_elems(result, {}, {1.07F, -8, 3.09F, 0.5F}, whole, 0.01), 1);  // 0.08 are allowed
  const Result of_its_own{{.name = "y", .shape = {4}}, nullptr, true};
  EXPECT_EQ(wrong_elems(of_its_own, {}, {1.07F, -8, 3.02F, 0.5F}, whole, 0.01), 1);
  EXPECT_EQ(wrong_elems(result, {}, {1, -8, std::nanf(""), 0.5F}, whole, 1), 1);
  // The second of two ranks has the last of three words, and one that is none.
  const Result words{{.name = "table", .shape = {3, 1}, .split = workload::Split::rows}};
  EXPECT_EQ(wrong_elems(words, {2, 1}, {3, 0}, {1, 2, 3}, 0), 0);
  EXPECT_EQ(wrong_elems(words, {2, 1}, {3, 0.5F}, {1, 2, 3}, 0), 1) << "padding that is not zero";
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
    const int kernel = pass.add(TaskKind::other_kernel, [&made, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      made = i + 1;
    });
    pass.add(
        TaskKind::exchange, [&] { seen.push_back(made); }, kernel);
  }
  int at_end = 0;
  pass.add(
      TaskKind::other_kernel, [&] { at_end = static_cast<int>(seen.size()); },
      static_cast<int>(pass.tasks().size()) - 1);
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
    const int first = in_exchange ? pass.add(TaskKind::exchange, fails) : pass.add(TaskKind::other_kernel, fails);
    if (in_exchange) {
      pass.add(TaskKind::other_kernel, goes_on, first);
    } else {
      pass.add(TaskKind::exchange, goes_on, first);
    }
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
  flags.tiles = {2, 4};
  flags.ranks = {2, 4};
  flags.blocks = {BlockKind::column,    BlockKind::row,       BlockKind::mlp,
                  BlockKind::attention, BlockKind::embedding, BlockKind::cross_entropy};
  return flags;
}

class EveryLayer : public testing::TestWithParam<core::DType> {};

TEST_P(EveryLayer, GivesWhatOneRankGivesAndSendsByFormula) {
  const TpLinearFlags flags = small_flags(GetParam());
  for (const Case& one : cases_of(flags)) {
    SCOPED_TRACE(name_of(one.block) + " tp " + std::to_string(one.ranks) + " sp " +
                 std::to_string(static_cast<int>(one.sequence_parallel)));
    const Reference reference = reference_of(one.block, flags.shape, 1);
    const std::vector<PartResult> forms = run_case(flags, one, reference);
    ASSERT_EQ(forms.size(), one.tiles.size());
    for (std::size_t f = 0; f < forms.size(); ++f) {
      EXPECT_EQ(forms[f].wrong(), 0) << one.tiles[f] << " tiles";
      EXPECT_EQ(forms[f].sent_bytes(), forms[f].formula_bytes()) << one.tiles[f] << " tiles";
      EXPECT_TRUE(one.tiles[f] > 1 || forms[f].unlike() == 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, EveryLayer, testing::Values(core::DType::f32, core::DType::bf16));

TEST_P(EveryLayer, OnAGridGivesWhatOneRankGivesAndSendsByThePapersFormulas) {
  TpLinearFlags flags = small_flags(GetParam());
  flags.ranks.clear();
  for (const char* grid : {"2x2", "2.5d:2x2x1", "2.5d:2x2x2", "2x2x2"}) {
    flags.grids.push_back(workload::parse_grid(grid));
  }
  check_cases(flags);
  const std::vector<Case> cases = cases_of(flags);
  ASSERT_EQ(cases.size(), 3 * flags.grids.size());  // the column-parallel layer, the row-parallel one, and the pair
  for (const Case& one : cases) {
    SCOPED_TRACE(name_of(one.block) + " " + workload::text_of(*one.grid));
    const Reference reference = grid_reference_of(one.block, flags.shape, 1);
    ASSERT_EQ(reference.size(), one.block == BlockKind::mlp ? 4U : 3U);
    for (const PartResult& form : run_case(flags, one, reference)) {
      EXPECT_EQ(form.wrong(), 0);
      EXPECT_EQ(form.unlike(), 0);
      EXPECT_EQ(form.sent_bytes(), form.formula_bytes());
      EXPECT_FALSE(form.is_wrong());
    }
    Reference other = reference;
    other.begin()->second.at(7) = 1e6F;
    for (const PartResult& form : run_case(flags, one, other)) EXPECT_TRUE(form.is_wrong());
  }
}

// The layer that grids share, on one rank, is the one that the library's products make.
TEST(GridReference, IsTheLayerWithoutABias) {
  const Reference grid = grid_reference_of(BlockKind::column, kShape, 1);
  const workload::Parameter x{.name = "x", .shape = {kShape.rows(), kShape.hidden}, .deviation = 1};
  const workload::Parameter w{.name = "w",
                              .shape = {kShape.inner(), kShape.hidden},
                              .deviation = 1 / std::sqrt(static_cast<float>(kShape.hidden))};
  const auto values = [](const workload::Parameter& whole) {
    std::vector<float> all(static_cast<std::size_t>(whole.elems()));
    parallel::fill_initial_values(whole, kSeed, 0, all);
    return all;
  };
  const std::vector<float> xs = values(x);
  const std::vector<float> ws = values(w);
  const auto width = static_cast<std::size_t>(kShape.hidden);
  const auto outputs = static_cast<std::size_t>(kShape.inner());
  for (const auto& [row, output] : {std::pair{0U, 0U}, std::pair{5U, 77U}, std::pair{47U, 127U}}) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) {
      sum += static_cast<double>(xs[row * width + i]) * static_cast<double>(ws[output * width + i]);
    }
    EXPECT_NEAR(grid.at("y").at(row * outputs + output), sum, 1e-5);
  }
}

// A reference of another layer would do as well, if nothing was looked at.
TEST(EveryRow, IsWrongWhereTheReferenceIsAnother) {
  const TpLinearFlags flags = small_flags(core::DType::f32);
  Reference reference = reference_of(BlockKind::row, flags.shape, 1);
  reference.at("y").at(5) += 1;
  for (const PartResult& form : run_case(flags, {BlockKind::row, 2, true, {1, 2}}, reference)) {
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
