#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/attention_decode/attention_decode.h"
#include "kernels/attention_decode/attention_decode_reference.h"
#include "kernels/base/kernel_case.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

// A shape with the lengths of its contexts.
struct Contexts {
  DecodeShape shape;
  std::vector<std::int64_t> lengths;
};

Contexts contexts(DecodeShape shape, std::vector<std::int64_t> lengths) {
  shape.sequences = static_cast<std::int64_t>(lengths.size());
  shape.keys = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {shape, std::move(lengths)};
}

Draw given(const std::vector<std::int64_t>& values) {
  return {.kind = Draw::Kind::given, .values = std::vector<double>(values.begin(), values.end())};
}

// Returns a number without a common divisor with `count`, about 0.6 * count: its multiples modulo `count` reach all
// numbers.
std::int64_t scattering_step(std::int64_t count) {
  std::int64_t step = std::max<std::int64_t>(1, count * 5 / 8);
  while (std::gcd(step, count) != 1) ++step;
  return step;
}

// Scatters each context's blocks all over the cache; -1 for entries that are not needed.
std::vector<std::int64_t> scattered_table(const Contexts& all) {
  const DecodeShape& s = all.shape;
  const std::int64_t step = scattering_step(s.blocks);
  std::vector<std::int64_t> table;
  std::int64_t next = 0;
  for (const std::int64_t length : all.lengths) {
    for (std::int64_t i = 0; i < s.table_row(); ++i) {
      table.push_back(i * s.block < length ? next++ * step % s.blocks : -1);
    }
  }
  return table;
}

std::string name_of(const Contexts& all) {
  const DecodeShape& s = all.shape;
  std::string name = fmt::format("S{}_H{}_D{}_K{}", s.sequences, s.heads, s.head_columns, s.most_keys);
  if (s.group() > 1) name += fmt::format("_G{}", s.group());
  if (s.queries > 1) name += fmt::format("_Q{}", s.queries);
  if (s.keys != s.sequences * s.most_keys) name += "_ragged";
  if (s.paged()) name += fmt::format("_b{}", s.block);
  return name;
}

void add(std::vector<KernelCase>& cases, const Contexts& all, core::DType dtype) {
  const DecodeShape& s = all.shape;
  const std::int64_t terms = s.most_keys + s.head_columns;
  CaseFacts facts{.shape = name_of(all),
                  .dtype = dtype,
                  .draws = {{"lengths", given(all.lengths)}},
                  .terms = {{"o", terms}, {"lse", terms}},
                  .rounded_factors = {"o"}};
  if (s.paged()) facts.draws["table"] = given(scattered_table(all));
  cases.push_back(make_case(AttentionDecode{.shape = s}, std::move(facts)));
}

// Adds the same contexts in a contiguous cache and in blocks, of which `spare` are unused.
void add_pair(std::vector<KernelCase>& cases, Contexts all, std::int64_t block, std::int64_t spare, core::DType dtype) {
  add(cases, all, dtype);
  all.shape.block = block;
  all.shape.blocks = spare;
  for (const std::int64_t length : all.lengths) all.shape.blocks += (length + block - 1) / block;
  add(cases, all, dtype);
}

// Appends tokens of as many sequences, each in a block of its own.
void add_append(std::vector<KernelCase>& cases, std::int64_t tokens, const CacheShape& cache, bool pads,
                core::DType dtype) {
  const std::int64_t step = scattering_step(cache.blocks);
  std::vector<std::int64_t> places;
  for (std::int64_t t = 0; t < tokens; ++t) places.push_back(t * step % cache.blocks * cache.block + t % cache.block);
  Draw draw = given(places);
  draw.below = cache.blocks * cache.block;
  if (pads) draw.values.back() = -1;
  cases.push_back(make_case(CacheAppend{.tokens = tokens, .cache = cache},
                            {.shape = fmt::format("N{}_H{}_D{}_b{}{}", tokens, cache.kv_heads, cache.head_columns,
                                                  cache.block, pads ? "_padded" : ""),
                             .dtype = dtype,
                             .draws = {{"places", draw}}}));
}

DecodeShape heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t columns, std::int64_t most_keys,
                  std::int64_t queries = 1, float scale = 0) {
  DecodeShape shape{};
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_columns = columns;
  shape.most_keys = most_keys;
  shape.queries = queries;
  shape.scale = scale;
  return shape;
}

Contexts uniform(const DecodeShape& shape, std::size_t sequences) {
  return contexts(shape, std::vector<std::int64_t>(sequences, shape.most_keys));
}

}  // namespace

std::vector<KernelCase> attention_decode_test_cases() {
  const std::vector<Contexts> all{
      contexts(heads(1, 1, 1, 1), {1}),
      contexts(heads(4, 2, 64, 40), {40, 1, 17}),
      contexts(heads(6, 2, 20, 70), {70, 33}),
      contexts(heads(9, 1, 128, 50), {50, 7}),
      contexts(heads(2, 2, 31, 530), {530}),
      contexts(heads(3, 3, 40, 20), {20, 3}),
      contexts(heads(4, 2, 16, 90, 3), {90, 3}),
      contexts(heads(2, 1, 8, 520, 2), {513, 520}),
      contexts(heads(5, 1, 200, 33, 1, 0.3F), {33, 32}),
      contexts(heads(2, 1, 256, 100), {100}),
  };
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::size_t i = 0; i < all.size(); ++i) add_pair(cases, all[i], i % 3 == 1 ? 5 : 16, i % 4, dtype);
    add_append(cases, 1, {.blocks = 1, .kv_heads = 1, .block = 1, .head_columns = 1}, false, dtype);
    add_append(cases, 7, {.blocks = 9, .kv_heads = 3, .block = 16, .head_columns = 64}, true, dtype);
    add_append(cases, 33, {.blocks = 40, .kv_heads = 2, .block = 5, .head_columns = 31}, false, dtype);
  }
  return cases;
}

// Heads of Llama 3 8B (groups of 4) and of Llama 2 7B (no groups); the last case is a server's batch.
std::vector<KernelCase> attention_decode_bench_cases() {
  constexpr std::int64_t kBlock = 16;
  std::vector<std::int64_t> ragged;
  for (std::int64_t n = 1; n <= 8; ++n) ragged.push_back(n * 256);
  std::vector<Contexts> all;
  for (const std::int64_t kv_heads : {8, 32}) {
    for (const std::int64_t keys : {256, 1024, 4096}) all.push_back(uniform(heads(32, kv_heads, 128, keys), 1));
  }
  all.push_back(contexts(heads(32, 8, 128, 2048), ragged));
  all.push_back(uniform(heads(32, 8, 128, 1024), 64));
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Contexts& batch : all) add_pair(cases, batch, kBlock, 0, dtype);
    for (const std::int64_t tokens : {64, 512}) {
      add_append(cases, tokens, {.blocks = 512, .kv_heads = 8, .block = kBlock, .head_columns = 128}, false, dtype);
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
