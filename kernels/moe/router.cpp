#include "kernels/moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "kernels/base/operands.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/router.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// A row of scores in f32, in whole vectors: lanes beyond the experts are 0 in scores and -infinity in logits.
struct Row {
  float* logits;
  float* scores;
  std::size_t padded;
  float log_sum = 0;  // log(sum of exp(logits)), softmax only
};

template <class T>
void load_logits(const T* from, std::size_t experts, Row& row) {
  const std::size_t lanes = lanes_f32();
  std::size_t e = 0;
  for (; e + lanes <= experts; e += lanes) store(load(from + e), row.logits + e);
  if (e < experts) store(load_tail(from + e, experts - e), row.logits + e);
  std::fill(row.logits + experts, row.logits + row.padded, -std::numeric_limits<float>::infinity());
}

void softmax(Row& row) {
  const F32 d;
  VF32 largest = load(row.logits);
  for (std::size_t e = 0; e < row.padded; e += lanes_f32()) largest = hn::Max(largest, load(row.logits + e));
  const float top = hn::GetLane(hn::MaxOfLanes(d, largest));
  VF32 sum = hn::Zero(d);
  for (std::size_t e = 0; e < row.padded; e += lanes_f32()) {
    const VF32 weight = exp_f32(hn::Sub(load(row.logits + e), hn::Set(d, top)));
    sum = hn::Add(sum, weight);
    store(weight, row.scores + e);
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));
  const VF32 divisor = hn::Set(d, total);
  for (std::size_t e = 0; e < row.padded; e += lanes_f32()) {
    store(hn::Div(load(row.scores + e), divisor), row.scores + e);
  }
  row.log_sum = top + std::log(total);
}

void sigmoid(Row& row) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F);
  for (std::size_t e = 0; e < row.padded; e += lanes_f32()) {
    store(hn::Div(one, hn::Add(one, exp_f32(hn::Neg(load(row.logits + e))))), row.scores + e);
  }
}

template <class T>
void make_scores(const RouterShape& shape, const T* logits, Row& row) {
  load_logits(logits, static_cast<std::size_t>(shape.experts), row);
  if (shape.scores == RouterScores::softmax) return softmax(row);
  sigmoid(row);
}

// Chooses the experts with the largest values; overwrites the values.
void choose(std::span<float> values, std::span<std::int32_t> choices) {
  for (std::int32_t& choice : choices) {
    const auto best = std::max_element(values.begin(), values.end());
    choice = static_cast<std::int32_t>(best - values.begin());
    *best = -std::numeric_limits<float>::infinity();
  }
}

// Excludes the experts of all groups but the best from the choice.
void limit_groups(const RouterShape& shape, std::span<float> keys) {
  const auto size = static_cast<std::size_t>(shape.experts / shape.groups);
  const auto scored = static_cast<std::ptrdiff_t>(shape.scored_of_group());
  std::array<float, RouterShape::kMostGroups> sums{};
  std::array<float, RouterShape::kMostExperts> sorted;
  for (std::size_t g = 0; g < static_cast<std::size_t>(shape.groups); ++g) {
    const auto group = keys.subspan(g * size, size);
    const auto end = sorted.begin() + scored;
    std::partial_sort_copy(group.begin(), group.end(), sorted.begin(), end, std::greater<>());
    sums[g] = std::accumulate(sorted.begin(), end, 0.0F);
  }
  std::array<std::int32_t, RouterShape::kMostGroups> best{};
  choose({sums.data(), static_cast<std::size_t>(shape.groups)}, {best.data(), static_cast<std::size_t>(shape.limit)});
  const auto chosen_end = best.begin() + static_cast<std::ptrdiff_t>(shape.limit);
  for (std::size_t g = 0; g < static_cast<std::size_t>(shape.groups); ++g) {
    if (std::find(best.begin(), chosen_end, static_cast<std::int32_t>(g)) != chosen_end) continue;
    const auto group = keys.subspan(g * size, size);
    std::fill(group.begin(), group.end(), -std::numeric_limits<float>::infinity());
  }
}

// Returns the keys that decide the order: logits, which have the scores' order but without rounding. Sums of groups are
// sums of scores.
std::span<float> keys_of(const RouterForward& args, const Row& row) {
  const std::span keys(row.logits, static_cast<std::size_t>(args.shape.experts));
  if (args.with_bias) {
    const float* const bias = args.bias.as<float>();
    for (std::size_t e = 0; e < keys.size(); ++e) keys[e] = row.scores[e] + bias[e];
  } else if (args.shape.is_limited()) {
    std::copy_n(row.scores, keys.size(), keys.begin());
  }
  for (float& key : keys) key = std::isnan(key) ? -std::numeric_limits<float>::infinity() : key;
  if (args.shape.is_limited()) limit_groups(args.shape, keys);
  return keys;
}

void write_gates(const RouterShape& shape, const Row& row, std::span<const std::int32_t> choices, float* gates) {
  float sum = 1;
  if (shape.normalised) {
    sum = 0;
    for (const std::int32_t choice : choices) sum += row.scores[choice];
  }
  for (std::size_t j = 0; j < choices.size(); ++j) gates[j] = row.scores[choices[j]] / sum * shape.scale;
}

Row row_in(std::span<float> memory) {
  const std::size_t padded = memory.size() / 3;
  return {memory.data(), memory.data() + padded, padded};
}

void forward(const RouterForward& args, std::span<float> memory, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto top_k = static_cast<std::size_t>(args.shape.top_k);
    Row row = row_in(memory);
    for (std::int64_t t = begin; t < end; ++t) {
      make_scores(args.shape, args.logits.as<T>() + t * args.shape.experts, row);
      const std::span choices(args.choices.as<std::int32_t>() + t * args.shape.top_k, top_k);
      choose(keys_of(args, row), choices);
      write_gates(args.shape, row, choices, args.gates.as<float>() + t * args.shape.top_k);
    }
  });
}

// Adds the gradients of the chosen scores, computed from the gates' gradients, to the gradients already there.
void add_gradients_of_scores(const RouterBackward& args, const Row& row, std::int64_t token, float* slopes) {
  const RouterShape& shape = args.shape;
  const std::span choices(args.choices.as<std::int32_t>() + token * shape.top_k, static_cast<std::size_t>(shape.top_k));
  const float* const d_gates = args.d_gates.as<float>() + token * shape.top_k;
  float sum = 0;
  for (const std::int32_t choice : choices) sum += row.scores[choice];
  float mean = 0;
  for (std::size_t j = 0; j < choices.size(); ++j) mean += d_gates[j] * (row.scores[choices[j]] / sum);
  for (std::size_t j = 0; j < choices.size(); ++j) {
    const float slope = shape.normalised ? (d_gates[j] - mean) / sum : d_gates[j];
    slopes[choices[j]] += slope * shape.scale;
  }
}

template <class T>
void write_gradients_of_logits(const RouterBackward& args, const Row& row, const float* slopes, T* d_logits) {
  const F32 d;
  const auto experts = static_cast<std::size_t>(args.shape.experts);
  const std::size_t lanes = lanes_f32();
  const bool is_softmax = args.shape.scores == RouterScores::softmax;
  VF32 dot = hn::Zero(d);
  for (std::size_t e = 0; is_softmax && e < row.padded; e += lanes) {
    dot = hn::MulAdd(load(row.scores + e), load(slopes + e), dot);
  }
  const VF32 mean = is_softmax ? hn::Set(d, hn::GetLane(hn::SumOfLanes(d, dot))) : hn::Zero(d);
  const VF32 z = hn::Set(d, args.z_scale * row.log_sum);
  const auto gradient = [&](std::size_t e) HWY_ATTR {
    const VF32 score = load(row.scores + e);
    const VF32 slope = load(slopes + e);
    if (!is_softmax) return hn::Mul(slope, hn::Mul(score, hn::Sub(hn::Set(d, 1.0F), score)));
    return hn::Mul(score, hn::Add(hn::Sub(slope, mean), z));
  };
  std::size_t e = 0;
  for (; e + lanes <= experts; e += lanes) store(gradient(e), d_logits + e);
  if (e < experts) store_tail(gradient(e), d_logits + e, experts - e);
}

void backward(const RouterBackward& args, std::span<float> memory, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    Row row = row_in(memory);
    float* const slopes = memory.data() + 2 * row.padded;
    const std::int32_t* const counts = args.counts.as<std::int32_t>();
    for (std::int64_t t = begin; t < end; ++t) {
      make_scores(args.shape, args.logits.as<T>() + t * args.shape.experts, row);
      std::fill_n(slopes, row.padded, 0.0F);
      for (std::int64_t e = 0; args.balance_scale != 0 && e < args.shape.experts; ++e) {
        slopes[e] = args.balance_scale * static_cast<float>(counts[e]);
      }
      add_gradients_of_scores(args, row, t, slopes);
      write_gradients_of_logits(args, row, slopes, args.d_logits.as<T>() + t * args.shape.experts);
    }
  });
}

// Adds the scores of some tokens to `sums` [padded], and returns the sum of their squared logarithms.
float add_loads(const RouterLoads& args, std::span<float> memory, std::int64_t begin, std::int64_t end, float* sums) {
  float z = 0;
  with_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    Row row = row_in(memory);
    std::fill_n(sums, row.padded, 0.0F);
    for (std::int64_t t = begin; t < end; ++t) {
      make_scores(args.shape, args.logits.as<T>() + t * args.shape.experts, row);
      for (std::size_t e = 0; e < row.padded; e += lanes_f32()) {
        store(hn::Add(load(sums + e), load(row.scores + e)), sums + e);
      }
      z += row.log_sum * row.log_sum;
    }
  });
  return z;
}

// Number of floats of a row's memory: logits, scores and slopes, each in whole vectors.
std::size_t row_floats(std::int64_t experts) {
  const std::size_t lanes = lanes_f32();
  return 3 * ((static_cast<std::size_t>(experts) + lanes - 1) / lanes * lanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward);
HWY_EXPORT(add_loads);
HWY_EXPORT(row_floats);

constexpr std::int64_t kLoadTokens = 64;  // tokens whose scores make one part of the sums

// Calls work(memory of the thread, begin, end) for ranges of tokens.
template <class Work>
void for_tokens(const RouterShape& shape, ThreadPool& pool, const Work& work) {
  const std::size_t floats = HWY_DYNAMIC_DISPATCH(row_floats)(shape.experts);
  pool.for_pieces(pool.size(), [&](std::int64_t piece, int thread) {
    work(pool.scratch_of<float>(thread, floats), shape.tokens * piece / pool.size(),
         shape.tokens * (piece + 1) / pool.size());
  });
}

double score_flops(const RouterShape& shape) {
  return static_cast<double>(shape.experts) * (shape.scores == RouterScores::softmax ? 4 : 3);
}

void check_softmax(std::string_view kernel, const RouterShape& shape, const char* what) {
  if (shape.scores == RouterScores::softmax) return;
  throw core::usage_error(std::string(kernel) + ": scores are sigmoid; allowed: softmax, as " + what +
                          " are of probabilities");
}

}  // namespace

void RouterShape::check(std::string_view kernel) const {
  check_sizes(kernel, {{"tokens", tokens}, {"experts", experts}, {"top_k", top_k}});
  check_at_most(kernel, "top_k", top_k, experts, "the experts");
  check_at_most(kernel, "experts", experts, kMostExperts);
  check_at_most(kernel, "top_k", top_k, kMostChoices);
  check_positive(kernel, "scale", scale);
  check_at_least(kernel, "groups", groups, 1);
  check_at_most(kernel, "groups", groups, kMostGroups);
  check_divides(kernel, "groups", groups, "experts", experts);
  check_at_least(kernel, "limit", limit, 1);
  check_at_most(kernel, "limit", limit, groups, "the groups");
  check_at_most(kernel, "top_k", top_k, limit * (experts / groups), "the experts in as many groups as a token may use");
}

void RouterBackward::check_shape() const {
  shape.check(name());
  check_not_negative(name(), "balance_scale", balance_scale);
  check_not_negative(name(), "z_scale", z_scale);
  if (balance_scale != 0 || z_scale != 0) check_softmax(name(), shape, "the balance and z losses");
}

void RouterLoads::check_shape() const {
  shape.check(name());
  check_softmax(name(), shape, "loads");
}

// FLOPs per token: the scores; with a bias E additions; for k gates the sum and division, and the scale.
Cost cost_of(const RouterForward& args) {
  const RouterShape& s = args.shape;
  const auto k = static_cast<double>(s.top_k);
  const double a_token = score_flops(s) + (args.with_bias ? static_cast<double>(s.experts) : 0) +
                         (s.normalised ? 3 : 2) * k +
                         (s.is_limited() ? static_cast<double>(s.groups * s.scored_of_group()) : 0);
  return cost_of_operands(static_cast<double>(s.tokens) * a_token, args);
}

// FLOPs per token: the scores; for k gates 4 through the mean, and 3 or 1 with the scale and 1 to add; for E logits 5
// through the softmax with the z loss in it, 3 through the sigmoid.
Cost cost_of(const RouterBackward& args) {
  const RouterShape& s = args.shape;
  const auto k = static_cast<double>(s.top_k);
  const auto experts = static_cast<double>(s.experts);
  double a_token = score_flops(s) + k * (s.normalised ? 8 : 6);
  a_token += s.scores == RouterScores::softmax ? 5 * experts + 3 : 3 * experts;
  if (args.balance_scale != 0) a_token += experts;
  return cost_of_operands(static_cast<double>(s.tokens) * a_token, args);
}

// FLOPs per token: the scores, their sums, and a logarithm, its square and the sum of those.
Cost cost_of(const RouterLoads& args) {
  const double a_token = score_flops(args.shape) + static_cast<double>(args.shape.experts) + 4;
  return cost_of_operands(static_cast<double>(args.shape.tokens) * a_token, args);
}

void run_cpu(const RouterForward& args, ThreadPool& pool) {
  for_tokens(args.shape, pool, [&](std::span<float> memory, std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(args, memory, begin, end);
  });
}

void run_cpu(const RouterBackward& args, ThreadPool& pool) {
  for_tokens(args.shape, pool, [&](std::span<float> memory, std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(args, memory, begin, end);
  });
}

// The sums are split into parts of a fixed number of tokens, whatever the number of threads, and added in order.
void run_cpu(const RouterLoads& args, ThreadPool& pool) {
  const RouterShape& shape = args.shape;
  const std::size_t floats = HWY_DYNAMIC_DISPATCH(row_floats)(shape.experts);
  const std::size_t stride = floats / 3 + 1;  // sums of a part, then its z
  const std::int64_t parts = (shape.tokens + kLoadTokens - 1) / kLoadTokens;
  const std::span<float> sums = pool.scratch_of<float>(-1, stride * static_cast<std::size_t>(parts));
  pool.for_pieces(parts, [&](std::int64_t part, int thread) {
    float* const to = sums.data() + stride * static_cast<std::size_t>(part);
    const std::int64_t begin = part * kLoadTokens;
    to[stride - 1] = HWY_DYNAMIC_DISPATCH(add_loads)(args, pool.scratch_of<float>(thread, floats), begin,
                                                     std::min(shape.tokens, begin + kLoadTokens), to);
  });
  auto* const probabilities = args.probabilities.as<float>();
  auto* const counts = args.counts.as<std::int32_t>();
  std::fill_n(probabilities, shape.experts, 0.0F);
  std::fill_n(counts, shape.experts, 0);
  float z = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const float* const from = sums.data() + stride * static_cast<std::size_t>(part);
    for (std::int64_t e = 0; e < shape.experts; ++e) probabilities[e] += from[e];
    z += from[stride - 1];
  }
  *args.z.as<float>() = z;
  for (std::int64_t c = 0; c < shape.copies(); ++c) ++counts[args.choices.as<std::int32_t>()[c]];
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
