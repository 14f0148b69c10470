// The CUDA kernels of attention, as they are, on an emulated block: their products lane by lane, their tiles, masks and
// tails, against f64. This is what can be known of them without a device; cuda_kernels_gpu_test runs them on one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_forward.cuh"
#include "kernels/attention/attention_sizes.cuh"
#include "kernels/attention/emulated_block.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  int batch;
  int heads;
  int queries;
  int keys;
  int head_columns;
  bool causal = true;
  bool wide = false;
  int stride_factor = 1;  // row stride of q, k, v, in rows
  float scale = 0.25F;

  int row() const { return heads * head_columns; }
  std::string name() const {
    return "B" + std::to_string(batch) + " H" + std::to_string(heads) + " Q" + std::to_string(queries) + " K" +
           std::to_string(keys) + " D" + std::to_string(head_columns) + (causal ? " causal" : "") +
           (wide ? " wide" : "");
  }
};

using Array = std::vector<double>;

// [batch, heads, length, head_columns] of what lies as [batch, length, heads, head_columns] with a stride.
struct Index {
  const Shape& s;
  int length;
  int stride;
  std::size_t operator()(int b, int h, int i, int c) const {
    return static_cast<std::size_t>((b * length + i) * stride + h * s.head_columns + c);
  }
  std::size_t elems() const { return static_cast<std::size_t>((s.batch * length - 1) * stride + s.row()); }
};

struct Indices {
  explicit Indices(const Shape& s)
      : q{s, s.queries, s.row() * s.stride_factor}, k{s, s.keys, s.row() * s.stride_factor}, o{s, s.queries, s.row()} {}
  Index q;
  Index k;  // and v
  Index o;
};

struct Expected {
  Array o, lse, dq, dk, dv;
};

Expected expected(const Shape& s, const Array& q, const Array& k, const Array& v, const Array& d_o) {
  const Indices at(s);
  Expected e{Array(at.o.elems()), Array(static_cast<std::size_t>(s.batch * s.heads * s.queries)), Array(at.q.elems()),
             Array(at.k.elems()), Array(at.k.elems())};
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      for (int i = 0; i < s.queries; ++i) {
        const int seen = s.causal ? i + s.keys - s.queries + 1 : s.keys;
        Array p(static_cast<std::size_t>(seen));
        double sum = 0;
        double delta = 0;
        for (int j = 0; j < seen; ++j) {
          double score = 0;
          for (int c = 0; c < s.head_columns; ++c) score += q[at.q(b, h, i, c)] * k[at.k(b, h, j, c)];
          p[static_cast<std::size_t>(j)] = std::exp(static_cast<double>(s.scale) * score);
          sum += p[static_cast<std::size_t>(j)];
        }
        for (double& one : p) one /= sum;
        e.lse[static_cast<std::size_t>((b * s.heads + h) * s.queries + i)] = std::log(sum);
        for (int c = 0; c < s.head_columns; ++c) {
          double& o = e.o[at.o(b, h, i, c)];
          for (int j = 0; j < seen; ++j) o += p[static_cast<std::size_t>(j)] * v[at.k(b, h, j, c)];
          delta += o * d_o[at.o(b, h, i, c)];
        }
        for (int j = 0; j < seen; ++j) {
          const double one = p[static_cast<std::size_t>(j)];
          double dp = 0;
          for (int c = 0; c < s.head_columns; ++c) {
            dp += d_o[at.o(b, h, i, c)] * v[at.k(b, h, j, c)];
            e.dv[at.k(b, h, j, c)] += one * d_o[at.o(b, h, i, c)];
          }
          const double ds = static_cast<double>(s.scale) * one * (dp - delta);
          for (int c = 0; c < s.head_columns; ++c) {
            e.dq[at.q(b, h, i, c)] += ds * k[at.k(b, h, j, c)];
            e.dk[at.k(b, h, j, c)] += ds * q[at.q(b, h, i, c)];
          }
        }
      }
    }
  }
  return e;
}

template <class T>
std::vector<T> narrowed(const Array& from) {
  std::vector<T> to;
  for (double one : from) to.push_back(EmulatedLane::narrow<T>(static_cast<float>(one)));
  return to;
}

template <class T>
Array widened(const std::vector<T>& from) {
  Array to;
  for (T one : from) to.push_back(static_cast<double>(EmulatedLane::widen(one)));
  return to;
}

template <class T>
Array drawn(std::size_t elems, core::Random& random) {
  Array values(elems);
  for (double& one : values) one = random.uniform() * 4 - 2;
  return widened(narrowed<T>(values));
}

// Every element of `got` is near; between rows, where nobody writes, it is 0 as at the start. What should be 0, as the
// gradients of a lone score are, is the rest of a subtraction of numbers near 1.
void expect_near(const char* what, const Shape& s, const Array& got, const Array& wanted, double allowed) {
  double largest = 1;
  for (double one : wanted) largest = std::max(largest, std::fabs(one));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - wanted[i]), allowed * largest)
        << what << " " << i << " of " << s.name() << ": " << got[i] << ", wanted " << wanted[i];
  }
}

template <class Body>
void run_blocks(std::int64_t blocks, const EmulatedBlock::Options& options, Body body) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    EmulatedBlock::Options own = options;
    own.seed = core::hash64(options.seed, static_cast<std::uint64_t>(block));
    EmulatedBlock emulated(own);
    emulated.run([&](EmulatedLane& lane) { body(lane, block); });
  }
}

// What the kernels make of inputs, on blocks that differ by the seed and by when copies happen.
template <class T, class Kernels, int kColumns>
Expected computed(const Shape& s, const Array& q, const Array& k, const Array& v, const Array& d_o,
                  EmulatedBlock::Options options) {
  using Forward = typename Kernels::template Forward<kColumns>;
  using Queries = typename Kernels::template Queries<kColumns>;
  using Keys = typename Kernels::template Keys<kColumns>;
  const AttentionGeometry g{.heads = s.heads,
                            .queries = s.queries,
                            .keys = s.keys,
                            .head_columns = s.head_columns,
                            .causal = s.causal,
                            .wide = s.wide,
                            .qkv_stride = std::int64_t{s.row()} * s.stride_factor,
                            .scale = s.scale};
  const auto q_t = narrowed<T>(q);
  const auto k_t = narrowed<T>(k);
  const auto v_t = narrowed<T>(v);
  const auto d_o_t = narrowed<T>(d_o);
  std::vector<T> o(d_o.size()), dq(q.size()), dk(k.size()), dv(v.size());
  const int heads = s.batch * s.heads;
  const int rows = heads * s.queries;
  std::vector<float> lse(static_cast<std::size_t>(rows)), delta(lse.size());

  options.shared_bytes = forward_shared_bytes<Forward>();
  const ForwardOperands<T> forward{g, q_t.data(), k_t.data(), v_t.data(), o.data(), lse.data()};
  run_blocks(heads * tiles_of(s.queries, Forward::kRows), options,
             [&](EmulatedLane& lane, std::int64_t block) { attention_forward_block<Forward>(lane, forward, block); });
  const BackwardOperands<T> backward{g,         q_t.data(), k_t.data(), v_t.data(),  o.data(), lse.data(), d_o_t.data(),
                                     dq.data(), dk.data(),  dv.data(),  delta.data()};
  run_blocks(tiles_of(rows, kAttentionWarps), options,
             [&](EmulatedLane& lane, std::int64_t block) { attention_delta_block(lane, backward, rows, block); });
  options.shared_bytes = backward_shared_bytes<Queries>();
  run_blocks(heads * tiles_of(s.queries, Queries::kRows), options,
             [&](EmulatedLane& lane, std::int64_t block) { attention_queries_block<Queries>(lane, backward, block); });
  options.shared_bytes = backward_shared_bytes<Keys>();
  run_blocks(heads * tiles_of(s.keys, Keys::kRows) * Keys::kSlices, options,
             [&](EmulatedLane& lane, std::int64_t block) { attention_keys_block<Keys>(lane, backward, block); });
  return {widened(o), widened(lse), widened(dq), widened(dk), widened(dv)};
}

template <class T, class Kernels, int kColumns>
void expect_case(const Shape& s) {
  const Indices at(s);
  core::Random random(core::hash64(static_cast<std::uint64_t>(s.queries), static_cast<std::uint64_t>(s.keys),
                                   static_cast<std::uint64_t>(s.head_columns)));
  const Array q = drawn<T>(at.q.elems(), random);
  const Array k = drawn<T>(at.k.elems(), random);
  const Array v = drawn<T>(at.k.elems(), random);
  const Array d_o = drawn<T>(at.o.elems(), random);
  const Expected wanted = expected(s, q, k, v, d_o);
  const Expected got = computed<T, Kernels, kColumns>(s, q, k, v, d_o, {.seed = 1, .late_copies = false});
  const Expected again = computed<T, Kernels, kColumns>(s, q, k, v, d_o, {.seed = 2, .late_copies = true});
  EXPECT_TRUE(got.o == again.o && got.lse == again.lse && got.dq == again.dq && got.dk == again.dk &&
              got.dv == again.dv)
      << s.name() << ": a barrier is missing";

  // Of 16-bit elements the probabilities and their gradients are rounded, too.
  const double unit = sizeof(T) == 4 ? 2e-6 : (std::is_same_v<T, core::Float16> ? 0x1p-11 : 0x1p-8);
  expect_near("o", s, got.o, wanted.o, 2 * unit);
  expect_near("lse", s, got.lse, wanted.lse, 2e-6);
  expect_near("dq", s, got.dq, wanted.dq, 3 * unit);
  expect_near("dk", s, got.dk, wanted.dk, 3 * unit);
  expect_near("dv", s, got.dv, wanted.dv, 3 * unit);
}

// Lengths around the tiles, which have 16 to 128 rows.
const std::vector<std::pair<int, int>> kLengths{{1, 1}, {1, 70}, {17, 17}, {63, 129}, {130, 130}};

template <class T, class Kernels, int kColumns>
void expect_lengths(int head_columns, bool wide) {
  for (const auto& [queries, keys] : kLengths) {
    for (const bool causal : {true, false}) {
      if (!causal && queries == keys) continue;
      expect_case<T, Kernels, kColumns>({.batch = 1,
                                         .heads = queries < 100 ? 2 : 1,
                                         .queries = queries,
                                         .keys = keys,
                                         .head_columns = head_columns,
                                         .causal = causal,
                                         .wide = wide,
                                         .stride_factor = wide ? 3 : 1});
    }
  }
}

template <class T>
using Tensor = TensorCoreKernels<T>;

TEST(AttentionEmulated, TensorCores32) {
  expect_lengths<core::BFloat16, Tensor<core::BFloat16>, 32>(32, true);
}
TEST(AttentionEmulated, TensorCores32Padded) {
  expect_lengths<core::Float16, Tensor<core::Float16>, 32>(8, true);
}
TEST(AttentionEmulated, TensorCores64Odd) {
  expect_lengths<core::Float16, Tensor<core::Float16>, 64>(35, false);
}
TEST(AttentionEmulated, MultiplyAdd64) {
  expect_lengths<float, MultiplyAddKernels<float>, 64>(64, true);
}
TEST(AttentionEmulated, MultiplyAdd64Odd) {
  expect_lengths<float, MultiplyAddKernels<float>, 64>(5, false);
}

TEST(AttentionEmulated, TensorCores64And128) {
  const Shape s{.batch = 2, .heads = 1, .queries = 70, .keys = 140, .head_columns = 64, .wide = true};
  expect_case<core::BFloat16, Tensor<core::BFloat16>, 64>(s);
  expect_case<core::BFloat16, Tensor<core::BFloat16>, 128>(
      {.batch = 1, .heads = 2, .queries = 70, .keys = 140, .head_columns = 128, .wide = true, .scale = 0.125F});
}

TEST(AttentionEmulated, MultiplyAdd128And256) {
  expect_case<float, MultiplyAddKernels<float>, 128>(
      {.batch = 1, .heads = 1, .queries = 20, .keys = 70, .head_columns = 100, .wide = true, .scale = 0.125F});
  expect_case<core::BFloat16, MultiplyAddKernels<core::BFloat16>, 256>(
      {.batch = 1, .heads = 2, .queries = 33, .keys = 70, .head_columns = 200, .wide = true, .scale = 0.1F});
}

}  // namespace
}  // namespace lockstep::kernels
