#include "kernels/embedding/embedding.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding/embedding.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"

// Shared by all targets, each of which includes this file.
#ifndef LOCKSTEP_KERNELS_EMBEDDING_SHARE
#define LOCKSTEP_KERNELS_EMBEDDING_SHARE
namespace lockstep::kernels {
namespace {

// One thread's part of the table rows, of `shares` parts: every `shares`-th group of rows, each group at least one page
// of memory. The hardware prefetcher stays within a page, so it does not take cache lines away from another thread that
// adds to them.
struct Share {
  std::int64_t number;
  std::int64_t shares;
  std::int64_t group_rows;

  bool has(std::int64_t row) const { return row >= 0 && row / group_rows % shares == number; }
};

}  // namespace
}  // namespace lockstep::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kAhead =
    2;  // tokens by which table rows are prefetched ahead; rows in random order defeat the hardware prefetcher

// Returns the table row of a token, or -1 if the token is not in this shard.
template <class Args>
HWY_INLINE std::int64_t row_of(const Args& args, std::int64_t token) {
  const std::int64_t row = args.ids.template as<std::int32_t>()[token] - args.first_id;
  return row >= 0 && row < args.rows ? row : -1;
}

template <class Args, class T>
HWY_INLINE void prefetch_row(const Args& args, const T* table, std::int64_t token, std::int64_t count) {
  if (token >= args.tokens) return;
  const std::int64_t row = row_of(args, token);
  if (row < 0) return;
  const auto* begin = reinterpret_cast<const std::byte*>(table + row * args.columns);
  const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t b = 0; b < bytes; b += 64) hwy::Prefetch(begin + b);
}

// to = a + b; prefetches the rows that follow b and `to`. A BFloat16 NaN has a zero lower half, as store_numbers
// requires.
template <class T>
void add_rows(const T* a, const T* b, T* to, std::size_t count) {
  const std::size_t step = pair_elems();
  const auto sum = [](Pair x, Pair y) HWY_ATTR { return Pair{hn::Add(x.a, y.a), hn::Add(x.b, y.b)}; };
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(b + i, step * sizeof(T));
    prefetch_ahead(to + i, step * sizeof(T));
    store_numbers(sum(load_pair(a + i), load_pair(b + i)), to + i);
  }
  if (i == count) return;
  store_pair_tail(sum(load_pair_tail(a + i, count - i), load_pair_tail(b + i, count - i)), to + i, count - i);
}

template <class T>
void accumulate(const T* from, float* to, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(hn::Add(load(to + i), load(from + i)), to + i);
  if (i < count) store_tail(hn::Add(load_tail(to + i, count - i), load_tail(from + i, count - i)), to + i, count - i);
}

// Computes y of one token; `positions` is null without position embeddings. Adding a position to zero gives that
// position, except for -0.
template <class T>
HWY_INLINE void forward_token(const T* row, const T* positions, T* y, std::int64_t columns) {
  if (row != nullptr && positions != nullptr) {
    add_rows(row, positions, y, static_cast<std::size_t>(columns));
  } else if (row != nullptr || positions != nullptr) {
    std::copy_n(row != nullptr ? row : positions, columns, y);
  } else {
    std::fill_n(y, columns, T{});
  }
}

void forward(const EmbeddingForward& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.table.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const table = args.table.as<T>();
    for (std::int64_t n = begin; n < end; ++n) {
      prefetch_row(args, table, n + kAhead, args.columns);
      const std::int64_t row = row_of(args, n);
      forward_token(row < 0 ? nullptr : table + row * args.columns,
                    args.length == 0 ? nullptr : args.positions.as<T>() + n % args.length * args.columns,
                    args.y.as<T>() + n * args.columns, args.columns);
    }
  });
}

// Adds all columns of the table rows and positions of this share, each row's tokens in their order.
void backward_rows(const EmbeddingBackward& args, const Share& share) {
  with_activation_type(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(args.columns);
    const T* const dy = args.dy.as<T>();
    float* const dtable = args.dtable.as<float>();
    for (std::int64_t n = 0; n < args.tokens; ++n) {
      const std::int64_t row = row_of(args, n);
      if (share.has(row)) accumulate(dy + n * args.columns, dtable + row * args.columns, count);
    }
    const std::int64_t last = args.length * (share.number + 1) / share.shares;
    for (std::int64_t p = args.length * share.number / share.shares; p < last; ++p) {
      float* const dposition = args.dpositions.as<float>() + p * args.columns;
      for (std::int64_t n = p; n < args.tokens; n += args.length) accumulate(dy + n * args.columns, dposition, count);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward_rows);

constexpr std::int64_t kPageBytes = 4096;

const char* const kRowsTouched = "of the table only rows that tokens name, counted as if all were different";

}  // namespace

Cost cost_of(const EmbeddingForward& args) {
  const core::DType dtype = args.table.dtype;
  const std::int64_t touched = std::min(args.tokens, args.rows);
  const double bytes = static_cast<double>(size_bytes(core::DType::i32, args.tokens)) +
                       static_cast<double>(size_bytes(dtype, (touched + args.length + args.tokens) * args.columns));
  const double adds = args.length > 0 ? static_cast<double>(args.tokens * args.columns) : 0;
  return {adds, bytes, kRowsTouched};
}

Cost cost_of(const EmbeddingBackward& args) {
  const std::int64_t touched = std::min(args.tokens, args.rows);
  const double bytes = static_cast<double>(size_bytes(core::DType::i32, args.tokens)) +
                       static_cast<double>(size_bytes(args.dy.dtype, args.tokens * args.columns)) +
                       2.0 * static_cast<double>(size_bytes(core::DType::f32, (touched + args.length) * args.columns));
  const double adds = static_cast<double>(args.tokens * args.columns) * (args.length > 0 ? 2 : 1);
  return {adds, bytes, kRowsTouched};
}

void run_cpu(const EmbeddingForward& args, ThreadPool& pool) {
  pool.for_ranges(args.tokens, 1, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(forward)(args, begin, end); });
}

void run_cpu(const EmbeddingBackward& args, ThreadPool& pool) {
  const std::int64_t row_bytes = args.columns * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t group_rows = (kPageBytes + row_bytes - 1) / row_bytes;
  pool.on_each_thread([&](int thread) {
    HWY_DYNAMIC_DISPATCH(backward_rows)(args, {thread, pool.size(), group_rows});
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
