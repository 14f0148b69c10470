#include "kernels/attention_decode/attention_decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(AttentionDecode, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(attention_decode_test_cases(), 20000), "");
}

// Contexts in blocks with memory of their own. Memory outside of contexts is NaN.
struct Served {
  DecodeShape shape;
  std::vector<std::int32_t> table;
  std::vector<std::int32_t> lengths;
  std::vector<float> q, k, v, o, lse;

  explicit Served(const DecodeShape& of) : shape(of) {
    table.resize(static_cast<std::size_t>(shape.sequences * shape.table_row()));
    lengths.assign(static_cast<std::size_t>(shape.sequences), 0);
    q.assign(static_cast<std::size_t>(shape.rows() * shape.head_columns), 0.5F);
    k.assign(static_cast<std::size_t>(shape.cache().elems()), kNaN);
    v = k;
    o.resize(q.size());
    lse.resize(static_cast<std::size_t>(shape.rows()));
  }

  template <class View, class Memory>
  static View view(Memory& memory, core::DType dtype = core::DType::f32) {
    return {memory.data(), dtype, static_cast<std::int64_t>(memory.size())};
  }
  AttentionDecode decode() {
    return {.shape = shape,
            .q = view<In>(q),
            .k = view<In>(k),
            .v = view<In>(v),
            .table = view<In>(table, core::DType::i32),
            .lengths = view<In>(lengths, core::DType::i32),
            .o = view<Out>(o),
            .lse = view<Out>(lse)};
  }
  // Appends a token whose keys are `key` and whose values are `value` in all columns of each head.
  void append(std::int64_t sequence, float key, float value, const Context& where) {
    const std::int32_t t = lengths[static_cast<std::size_t>(sequence)]++;
    const std::int64_t entry = sequence * shape.table_row() + t / shape.block;
    const std::int64_t block = table[static_cast<std::size_t>(entry)];
    std::vector<std::int32_t> places{static_cast<std::int32_t>(block * shape.block + t % shape.block), -1};
    const std::vector<float> keys(static_cast<std::size_t>(2 * shape.kv_heads * shape.head_columns), key);
    const std::vector<float> values(keys.size(), value);
    run(CacheAppend{.tokens = 2,
                    .cache = shape.cache(),
                    .k = view<In>(keys),
                    .v = view<In>(values),
                    .places = view<In>(places, core::DType::i32),
                    .k_cache = view<InOut>(k),
                    .v_cache = view<InOut>(v)},
        where);
  }
};

DecodeShape small_shape() {
  return {.sequences = 2,
          .heads = 2,
          .kv_heads = 1,
          .head_columns = 4,
          .most_keys = 5,
          .keys = 0,
          .block = 2,
          .blocks = 6,
          .scale = 1};
}

// Two sequences whose blocks alternate in the cache grow at different speeds; each token's weight is known.
TEST(AttentionDecode, GeneratedTokensAreSeenByTheirOwnSequenceAlone) {
  ThreadPool pool(2);
  const Context where(pool);
  Served served(small_shape());
  served.table = {4, 1, 3, 0, 5, 2};
  for (int t = 0; t < 5; ++t) {
    served.append(0, 0, static_cast<float>(t), where);  // equal weights: the mean of 0 to t
    if (t < 3) served.append(1, static_cast<float>(t), static_cast<float>(10 * t), where);
    run(served.decode(), where);
    EXPECT_FLOAT_EQ(served.o[0], static_cast<float>(t) / 2);
    EXPECT_FLOAT_EQ(served.lse[0], std::log(static_cast<float>(t + 1)));
  }
  // Scores are 0, 2 and 4, because q is 0.5 in four columns.
  const float sum = 1 + std::exp(2.0F) + std::exp(4.0F);
  for (std::size_t i = 8; i < 16; ++i) {
    EXPECT_FLOAT_EQ(served.o[i], (10 * std::exp(2.0F) + 20 * std::exp(4.0F)) / sum);
  }
  EXPECT_FLOAT_EQ(served.lse[2], std::log(sum));
}

TEST(AttentionDecode, ScoresThatAreNoNumbersStayInTheirSequence) {
  on_each_target([](const std::string& target) {
    ThreadPool pool(1);
    const Context where(pool);
    for (const float bad : {kNaN, kInf, -kInf}) {
      Served served(small_shape());
      served.table = {0, 1, 2, 3, 4, 5};
      for (int t = 0; t < 3; ++t) {
        served.append(0, t == 1 ? bad : 0, static_cast<float>(t), where);
        served.append(1, 1, 7, where);
      }
      run(served.decode(), where);
      if (bad == -kInf) {
        EXPECT_FLOAT_EQ(served.o[0], 1) << target;  // the mean of 0 and 2
      } else {
        EXPECT_TRUE(std::isnan(served.o[0])) << target << bad;
      }
      EXPECT_FLOAT_EQ(served.o[8], 7) << target;
    }
  });
}

TEST(AttentionDecode, AContextOfNoTokensHasNoNumbers) {
  ThreadPool pool(1);
  Served served(small_shape());
  run(served.decode(), Context(pool));
  for (const float value : served.o) EXPECT_TRUE(std::isnan(value));
  for (const float value : served.lse) EXPECT_EQ(value, -kInf);
}

std::string refusal_of_run(const AttentionDecode& args) {
  ThreadPool pool(1);
  return usage_error_of([&] { run(args, Context(pool)); });
}

TEST(AttentionDecode, Refusals) {
  Served served(small_shape());
  DecodeShape shape = served.shape;
  shape.heads = 3;
  shape.kv_heads = 2;
  EXPECT_EQ(refusal(AttentionDecode{.shape = shape}),
            "attention_decode_paged: kv_heads is 2; allowed: divisors of heads, 3");
  shape = served.shape;
  shape.queries = 6;
  EXPECT_EQ(refusal(AttentionDecode{.shape = shape}), "attention_decode_paged: most_keys is 5; allowed: at least 6");
  shape = served.shape;
  shape.blocks = 0;
  EXPECT_EQ(refusal(AttentionDecode{.shape = shape}), "attention_decode_paged: blocks is 0; allowed: at least 1");
  shape.block = 0;
  shape.sequences = 0;
  EXPECT_EQ(refusal(AttentionDecode{.shape = shape}), "attention_decode: sequences is 0; allowed: at least 1");

  served.lengths = {6, 0};
  EXPECT_EQ(refusal_of_run(served.decode()), "attention_decode_paged: lengths[0] is 6; allowed: 0, or 1 to 5");
  served.lengths = {3, 5};
  served.table = {0, 1, -1, 2, 6, -1};
  EXPECT_EQ(refusal_of_run(served.decode()), "attention_decode_paged: table[1][1] is 6; allowed: 0 to 5");
  served.table = {0, 1, -1, 2, 3, -1};
  EXPECT_EQ(refusal_of_run(served.decode()), "attention_decode_paged: table[1][2] is -1; allowed: 0 to 5");
}

TEST(CacheAppend, Refusals) {
  std::vector<float> rows(8);
  std::vector<float> cache(24);
  std::vector<std::int32_t> places{5, 12};
  CacheAppend args{.tokens = 2, .cache = {.blocks = 3, .kv_heads = 1, .block = 2, .head_columns = 4}};
  args.k = args.v = Served::view<In>(rows);
  args.places = Served::view<In>(places, core::DType::i32);
  args.k_cache = args.v_cache = Served::view<InOut>(cache);
  EXPECT_EQ(refusal(args), "cache_append: k_cache and v_cache overlap");
  std::vector<float> other(24);
  args.v_cache = Served::view<InOut>(other);
  ThreadPool pool(1);
  EXPECT_EQ(usage_error_of([&] { run(args, Context(pool)); }),
            "cache_append: places[1] is 12; allowed: 0 to 5, or -1 for a token to leave out");
  args.cache.block = 0;
  EXPECT_EQ(refusal(args), "cache_append: block is 0; allowed: at least 1");
}

}  // namespace
}  // namespace lockstep::kernels
