#include "kernels/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cross_entropy/cross_entropy_reference.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(CrossEntropy, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(cross_entropy_test_cases()), "");
}

// A batch of f32 rows that owns its memory.
struct Batch {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::int32_t> targets;
  std::vector<float> logits;
  std::vector<float> losses = std::vector<float>(static_cast<std::size_t>(rows));

  In targets_view() const { return {targets.data(), core::DType::i32, rows}; }
  In logits_in() const { return {logits.data(), core::DType::f32, rows * columns}; }
  InOut logits_view() { return {logits.data(), core::DType::f32, rows * columns}; }
  Out losses_view() { return {losses.data(), core::DType::f32, rows}; }
};

Batch drawn(std::int64_t rows, std::int64_t columns, double scale = 3) {
  const KernelCase one =
      make_case(CrossEntropy{.rows = rows, .columns = columns, .valid_columns = columns},
                {.shape = "",
                 .draws = {{"targets", {.kind = Draw::Kind::index, .below = columns}}, {"logits", {.scale = scale}}}});
  ReferenceData<double> data = draw_inputs(one, 7);
  return {
      rows, columns, {data["targets"].begin(), data["targets"].end()}, {data["logits"].begin(), data["logits"].end()}};
}

void run_whole(Batch& batch, ThreadPool& pool, float scale = 1, std::int64_t valid_columns = -1) {
  run(CrossEntropy{.rows = batch.rows,
                   .columns = batch.columns,
                   .valid_columns = valid_columns < 0 ? batch.columns : valid_columns,
                   .scale = scale,
                   .targets = batch.targets_view(),
                   .logits = batch.logits_view(),
                   .losses = batch.losses_view()},
      Context(pool));
}

// Returns the batch's columns [first, first + columns); columns beyond the batch's end are padding.
Batch shard_of(const Batch& whole, std::int64_t first, std::int64_t columns) {
  Batch shard{whole.rows, columns, whole.targets, {}};
  for (std::int64_t n = 0; n < whole.rows; ++n) {
    for (std::int64_t c = first; c < first + columns; ++c) {
      shard.logits.push_back(c < whole.columns ? whole.logits[static_cast<std::size_t>(n * whole.columns + c)] : kNan);
    }
  }
  return shard;
}

// Computes the stats of all shards, then each shard's finish; the gradients replace the whole batch's logits.
struct Sharded {
  std::int64_t shards;
  std::int64_t columns;  // columns of a shard
  std::vector<Batch> parts;
  std::vector<float> stats;
};

Sharded run_sharded(const Batch& whole, std::int64_t shards, float scale, ThreadPool& pool) {
  const std::int64_t columns = (whole.columns + shards - 1) / shards;
  Sharded all{shards, columns, {}, std::vector<float>(static_cast<std::size_t>(3 * shards * whole.rows))};
  const auto valid = [&](std::int64_t s) { return std::clamp<std::int64_t>(whole.columns - s * columns, 0, columns); };
  for (std::int64_t s = 0; s < shards; ++s) {
    all.parts.push_back(shard_of(whole, s * columns, columns));
    Batch& part = all.parts.back();
    run(CrossEntropyStats{.rows = part.rows,
                          .columns = columns,
                          .valid_columns = valid(s),
                          .first_id = s * columns,
                          .targets = part.targets_view(),
                          .logits = part.logits_in(),
                          .stats = {all.stats.data() + 3 * s * part.rows, core::DType::f32, 3 * part.rows}},
        Context(pool));
  }
  for (std::int64_t s = 0; s < shards; ++s) {
    Batch& part = all.parts[static_cast<std::size_t>(s)];
    run(CrossEntropyFinish{.rows = part.rows,
                           .columns = columns,
                           .valid_columns = valid(s),
                           .first_id = s * columns,
                           .shards = shards,
                           .scale = scale,
                           .targets = part.targets_view(),
                           .stats = {all.stats.data(), core::DType::f32, 3 * shards * part.rows},
                           .logits = part.logits_view(),
                           .losses = part.losses_view()},
        Context(pool));
  }
  return all;
}

// Tolerance that CaseFacts::terms would give a sum of this many terms.
float tolerance(std::int64_t terms, float largest) {
  return 8 * std::sqrt(static_cast<float>(terms)) * 0x1p-24F * largest;
}

void expect_same(const Batch& whole, const Sharded& sharded) {
  for (std::size_t n = 0; n < static_cast<std::size_t>(whole.rows); ++n) {
    EXPECT_EQ(sharded.parts[0].losses[n], sharded.parts.back().losses[n]) << "the same on every rank";
    EXPECT_NEAR(sharded.parts[0].losses[n], whole.losses[n], tolerance(whole.columns, 1 + whole.losses[n])) << n;
    for (std::int64_t c = 0; c < sharded.columns * sharded.shards; ++c) {
      const Batch& part = sharded.parts[static_cast<std::size_t>(c / sharded.columns)];
      const float got =
          part.logits[n * static_cast<std::size_t>(sharded.columns) + static_cast<std::size_t>(c % sharded.columns)];
      const float wanted = c < whole.columns
                               ? whole.logits[n * static_cast<std::size_t>(whole.columns) + static_cast<std::size_t>(c)]
                               : 0.0F;
      ASSERT_NEAR(got, wanted, tolerance(whole.columns, 1)) << n << " " << c;
    }
  }
}

TEST(CrossEntropy, ShardsOfAnIndivisibleVocabularyGiveTheWholesLoss) {
  ThreadPool pool(2);
  for (std::int64_t columns : {1, 7, 5003}) {
    for (std::int64_t shards = 1; shards <= 4; ++shards) {
      Batch whole = drawn(11, columns);
      const Sharded sharded = run_sharded(whole, shards, 0.25F, pool);
      run_whole(whole, pool, 0.25F);
      expect_same(whole, sharded);
    }
  }
}

TEST(CrossEntropy, PaddedColumnsCountForNothing) {
  ThreadPool pool(1);
  Batch batch = drawn(3, 50);
  Batch padded = shard_of(batch, 0, 64);  // NaN in the padding
  run_whole(batch, pool);
  run_whole(padded, pool, 1, 50);
  EXPECT_EQ(batch.losses, padded.losses);
  for (std::size_t i = 0; i < padded.logits.size(); ++i) {
    EXPECT_EQ(padded.logits[i], i % 64 < 50 ? batch.logits[i / 64 * 50 + i % 64] : 0.0F);
  }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  ThreadPool pool(1);
  Batch batch{2, 3, {0, 1}, {3e38F, -3e38F, 3e38F, 1000, 1001, -5}};
  run_whole(batch, pool);
  EXPECT_NEAR(batch.losses[0], std::log(2.0F), 1e-6F);
  EXPECT_NEAR(batch.losses[1], std::log1p(std::exp(-1.0F)), 1e-6F);
}

// One maximum rises from chunk to chunk by more than a float can hold, the other one falls.
TEST(CrossEntropy, ChunksAreCorrectedForLaterMaxima) {
  on_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    ThreadPool pool(1);
    for (float slope : {0.5F, 0.001F, -0.001F, -0.5F}) {
      Batch batch = drawn(1, 6001, 1);
      for (std::size_t c = 0; c < 6001; ++c) batch.logits[c] += slope * static_cast<float>(c);
      ReferenceData<double> wanted;
      wanted.add("targets", {static_cast<double>(batch.targets[0])});
      wanted.add("logits", {batch.logits.begin(), batch.logits.end()});
      wanted.add("losses", {0});
      reference(CrossEntropy{.rows = 1, .columns = 6001, .valid_columns = 6001}, wanted);
      run_whole(batch, pool);
      EXPECT_NEAR(batch.losses[0], wanted["losses"][0], 1e-6 * (1 + wanted["losses"][0]));
      for (std::size_t c = 0; c < 6001; ++c) ASSERT_NEAR(batch.logits[c], wanted["logits"][c], 2e-6) << c;
    }
  });
}

// Returns five chunks, each `by` above the one before; the first may be -infinity. The first maximum of 16-bit rows is
// used until a later chunk is far above it.
std::vector<double> rising_chunks(double by, bool first_is_lowest) {
  std::vector<double> logits(9001);
  for (std::size_t c = 0; c < logits.size(); ++c) {
    const double chunk = std::floor(static_cast<double>(c) / 2048);
    logits[c] = chunk == 0 && first_is_lowest ? -kInfinity : by * chunk - 4 * static_cast<double>(c % 7);
  }
  return logits;
}

// Returns the losses, followed by the gradient.
std::vector<double> results_of_row(core::DType dtype, const std::vector<double>& logits, std::int32_t target) {
  const auto columns = static_cast<std::int64_t>(logits.size());
  std::vector<std::byte> row(logits.size() * core::size_of(dtype));
  store(logits, dtype, row.data());
  float loss = 0;
  ThreadPool pool(1);
  run(CrossEntropy{.rows = 1,
                   .columns = columns,
                   .valid_columns = columns,
                   .targets = {&target, core::DType::i32, 1},
                   .logits = {row.data(), dtype, columns},
                   .losses = {&loss, core::DType::f32, 1}},
      Context(pool));
  std::vector<double> results = load(dtype, row.data(), columns);
  results.push_back(loss);
  return results;
}
std::vector<double> wanted_of_row(const std::vector<double>& logits, std::int32_t target) {
  ReferenceData<double> data;
  data.add("targets", {static_cast<double>(target)});
  data.add("logits", logits);
  data.add("losses", {0});
  const auto columns = static_cast<std::int64_t>(logits.size());
  reference(CrossEntropy{.rows = 1, .columns = columns, .valid_columns = columns}, data);
  std::vector<double> wanted(data["logits"].begin(), data["logits"].end());
  wanted.push_back(data["losses"][0]);
  return wanted;
}

TEST(CrossEntropy, RowsOf16BitsHoldWhereLaterChunksAreFarAbove) {
  on_each_target([](const std::string& name) {
    for (core::DType dtype : {core::DType::bf16, core::DType::f16, core::DType::f32}) {
      for (double by : {-64.0, 0.0, 8.0, 16.0, 64.0, 128.0}) {
        for (bool first_is_lowest : {false, true}) {
          const std::vector<double> logits = rising_chunks(by, first_is_lowest);
          const std::vector<double> got = results_of_row(dtype, logits, 8999);
          const std::vector<double> wanted = wanted_of_row(logits, 8999);
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            const double allowed = 0x1p-8 * std::fabs(wanted[i]) + 2e-6;
            ASSERT_NEAR(got[i], wanted[i], allowed) << name << " " << core::name_of(dtype) << " by " << by << " [" << i;
          }
        }
      }
    }
  });
}

TEST(CrossEntropy, NanAndInfinityStayInTheirRow) {
  on_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    ThreadPool pool(1);
    for (float bad : {kNan, kInfinity}) {
      for (std::size_t at : {0U, 20U, 39U}) {
        Batch clean = drawn(3, 40);
        Batch batch = clean;
        batch.logits[40 + at] = bad;
        run_whole(clean, pool);
        run_whole(batch, pool);
        EXPECT_EQ(batch.losses[0], clean.losses[0]);
        EXPECT_TRUE(std::isnan(batch.losses[1]));
        EXPECT_EQ(batch.losses[2], clean.losses[2]);
        for (std::size_t c = 40; c < 80; ++c) EXPECT_TRUE(std::isnan(batch.logits[c])) << c;
        EXPECT_EQ(batch.logits[80], clean.logits[80]);
      }
    }
  });
}

TEST(CrossEntropy, MinusInfinityHasNoProbability) {
  on_each_target([](const std::string& target) {
    SCOPED_TRACE(target);
    ThreadPool pool(1);
    Batch batch{3, 2, {0, 0, 0}, {1, -kInfinity, -kInfinity, 1, -kInfinity, -kInfinity}};
    run_whole(batch, pool);
    EXPECT_EQ(batch.losses[0], 0.0F);
    EXPECT_EQ(batch.logits[1], 0.0F);
    EXPECT_EQ(batch.losses[1], kInfinity);
    EXPECT_TRUE(std::isnan(batch.losses[2]));
    EXPECT_TRUE(std::isnan(batch.logits[4]));
  });
}

// A shard in which a row has only -infinity does not spoil the other shards' columns.
TEST(CrossEntropy, ShardOfMinusInfinity) {
  ThreadPool pool(1);
  Batch whole{1, 4, {0}, {1, 2, -kInfinity, -kInfinity}};
  const Sharded sharded = run_sharded(whole, 2, 1, pool);
  EXPECT_EQ(sharded.stats[3], -kInfinity);
  EXPECT_EQ(sharded.stats[4], 0.0F);
  run_whole(whole, pool);
  expect_same(whole, sharded);
}

template <class Args>
std::string refusal_to_run(const Args& args) {
  ThreadPool pool(1);
  return usage_error_of([&] { run(args, Context(pool)); });
}

TEST(CrossEntropy, TargetsOutOfRangeAreNamedAndNothingIsWritten) {
  Batch batch = drawn(3, 20);
  const std::vector<float> before = batch.logits;
  CrossEntropy args{.rows = 3, .columns = 20, .valid_columns = 18};
  args.targets = batch.targets_view();
  args.logits = batch.logits_view();
  args.losses = batch.losses_view();
  batch.targets = {0, 18, -1};
  EXPECT_EQ(refusal_to_run(args), "cross_entropy: targets[1] is 18; allowed: 0 to 17");
  batch.targets = {0, 17, -1};
  EXPECT_EQ(refusal_to_run(args), "cross_entropy: targets[2] is -1; allowed: 0 to 17");
  EXPECT_EQ(batch.logits, before);
  batch.targets = {0, 17, 1};
  EXPECT_EQ(refusal_to_run(args), "");
}

TEST(CrossEntropy, ShapesThatCannotBeAreNamed) {
  EXPECT_EQ(refusal(CrossEntropy{.rows = 0, .columns = 4, .valid_columns = 4}),
            "cross_entropy: rows is 0; allowed: at least 1");
  EXPECT_EQ(refusal(CrossEntropy{.rows = 1, .columns = 4, .valid_columns = 0}),
            "cross_entropy: valid_columns is 0; allowed: at least 1");
  EXPECT_EQ(refusal(CrossEntropyStats{.rows = 1, .columns = 4, .valid_columns = 5, .first_id = 0}),
            "cross_entropy_stats: valid_columns is 5; allowed: at most 4, the columns");
  EXPECT_EQ(refusal(CrossEntropyFinish{.rows = 1, .columns = 4, .valid_columns = 0, .first_id = -1, .shards = 1}),
            "cross_entropy_finish: first_id is -1; allowed: at least 0");
  EXPECT_EQ(refusal(CrossEntropyFinish{.rows = 1, .columns = 4, .valid_columns = 0, .first_id = 0, .shards = 0}),
            "cross_entropy_finish: shards is 0; allowed: at least 1");
}

// The gradient that replaces the logits is the derivative of the sum of the losses: central differences in f64.
TEST(CrossEntropy, ReferenceIsTheDerivativeOfItsLoss) {
  const CrossEntropy args{.rows = 1, .columns = 7, .valid_columns = 6};
  const std::vector<double> logits{0.3, -1, 2, 0.7, -0.2, 1.5, 9};
  const auto evaluated = [&](const std::vector<double>& at) {
    ReferenceData<double> data;
    data.add("targets", {2});
    data.add("logits", at);
    data.add("losses", {0});
    reference(args, data);
    return data;
  };
  constexpr double kStep = 1e-5;
  for (std::size_t c = 0; c < logits.size(); ++c) {
    std::vector<double> up = logits;
    std::vector<double> down = logits;
    up[c] += kStep;
    down[c] -= kStep;
    const double slope = (evaluated(up)["losses"][0] - evaluated(down)["losses"][0]) / (2 * kStep);
    EXPECT_NEAR(evaluated(logits)["logits"][c], slope, 1e-9) << c;
  }
}

}  // namespace
}  // namespace lockstep::kernels
