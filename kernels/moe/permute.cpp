#include "kernels/moe/permute.h"

#include <algorithm>
#include <vector>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/permute.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void copy_row(const T* from, std::int64_t columns, T* to) {
  if (from != nullptr) {
    std::copy_n(from, columns, to);
  } else {
    std::fill_n(to, columns, T{});
  }
}

void permute(const Permute& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const copies = args.copies.as<std::int32_t>();
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const from = copies[r] < 0 ? nullptr : args.x.as<T>() + copies[r] / args.top_k * args.columns;
      copy_row(from, args.columns, args.y.as<T>() + r * args.columns);
    }
  });
}

// The rows and gates of a token's copies that were not dropped.
template <class T>
struct TokenRows {
  const T* of[16];
  float gates[16];
  std::size_t count = 0;
};

template <class T>
TokenRows<T> copies_of(const Unpermute& args, std::int64_t token) {
  TokenRows<T> rows;
  for (std::int64_t c = token * args.top_k; c < (token + 1) * args.top_k; ++c) {
    const std::int32_t slot = args.slots.as<std::int32_t>()[c];
    if (slot < 0) continue;
    rows.of[rows.count] = args.y.as<T>() + slot * args.columns;
    rows.gates[rows.count++] = args.with_gates ? args.gates.as<float>()[c] : 1;
  }
  return rows;
}

HWY_INLINE Pair times(Pair x, VF32 factor) {
  return {hn::Mul(x.a, factor), hn::Mul(x.b, factor)};
}

void unpermute(const Unpermute& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const F32 d;
    for (std::int64_t t = begin; t < end; ++t) {
      const TokenRows<T> rows = copies_of<T>(args, t);
      T* const out = args.out.as<T>() + t * args.columns;
      if (rows.count == 0) {
        std::fill_n(out, args.columns, T{});
        continue;
      }
      for_pairs<T>(static_cast<std::size_t>(args.columns), [&](std::size_t c, auto part) HWY_ATTR {
        Pair sum = times(part.load(rows.of[0] + c), hn::Set(d, rows.gates[0]));
        for (std::size_t j = 1; j < rows.count; ++j) {
          const Pair x = part.load(rows.of[j] + c);
          const VF32 gate = hn::Set(d, rows.gates[j]);
          sum = {hn::MulAdd(x.a, gate, sum.a), hn::MulAdd(x.b, gate, sum.b)};
        }
        part.store(sum, out + c);
      });
    }
  });
}

// Writes gate times d_out, and returns the product of d_out and y.
template <class T>
float weigh_row(const T* d_out, const T* y, float gate, std::size_t columns, T* dy) {
  const F32 d;
  const VF32 factor = hn::Set(d, gate);
  Pair sum = both(hn::Zero(d));
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    const Pair slope = part.load(d_out + c);
    const Pair x = part.load(y + c);
    sum = {hn::MulAdd(slope.a, x.a, sum.a), hn::MulAdd(slope.b, x.b, sum.b)};
    part.store(times(slope, factor), dy + c);
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum.a, sum.b)));
}

void unpermute_backward(const UnpermuteBackward& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.d_out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const slots = args.slots.as<std::int32_t>();
    for (std::int64_t t = begin; t < end; ++t) {
      const T* const d_out = args.d_out.as<T>() + t * args.columns;
      for (std::int64_t c = t * args.top_k; c < (t + 1) * args.top_k; ++c) {
        float& d_gate = args.d_gates.as<float>()[c];
        d_gate = 0;
        if (slots[c] < 0) continue;
        const std::int64_t at = slots[c] * args.columns;
        d_gate = weigh_row(d_out, args.y.as<T>() + at, args.gates.as<float>()[c],
                           static_cast<std::size_t>(args.columns), args.dy.as<T>() + at);
      }
    }
  });
}

void clear_rows(const UnpermuteBackward& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.d_out.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t r = begin; r < end; ++r) {
      if (args.copies.as<std::int32_t>()[r] >= 0) continue;
      std::fill_n(args.dy.as<T>() + r * args.columns, args.columns, T{});
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
HWY_EXPORT(permute);
HWY_EXPORT(unpermute);
HWY_EXPORT(unpermute_backward);
HWY_EXPORT(clear_rows);

template <class Args>
void check_rows(const Args& args) {
  check_sizes(args.name(), {{"tokens", args.tokens}, {"top_k", args.top_k}});
  check_at_most(args.name(), "top_k", args.top_k, 16);
  check_sizes(args.name(), {{"rows", args.rows}, {"columns", args.columns}});
}

}  // namespace

void AssignSlots::check_shape() const {
  check_sizes(name(), {{"tokens", tokens}, {"experts", experts}, {"top_k", top_k}});
  check_at_least(name(), "capacity", capacity, 0);
}

void Permute::check_shape() const {
  check_rows(*this);
}

void Unpermute::check_shape() const {
  check_rows(*this);
}

void UnpermuteBackward::check_shape() const {
  check_rows(*this);
}

Cost cost_of(const AssignSlots& args) {
  return cost_of_operands(0, args);
}

Cost cost_of(const Permute& args) {
  return cost_of_operands(0, args);
}

Cost cost_of(const Unpermute& args) {
  const auto k = static_cast<double>(args.top_k);
  const double an_element = (args.with_gates ? k : 0) + k - 1;
  return cost_of_operands(static_cast<double>(args.tokens * args.columns) * an_element, args);
}

Cost cost_of(const UnpermuteBackward& args) {
  return cost_of_operands(3.0 * static_cast<double>(args.tokens * args.top_k) * static_cast<double>(args.columns),
                          args);
}

// One pass counts and one assigns rows: these are integers, too few to be split among threads.
void run_cpu(const AssignSlots& args, ThreadPool& /*pool*/) {
  const auto* const choices = args.choices.as<std::int32_t>();
  auto* const counts = args.counts.as<std::int32_t>();
  std::fill_n(counts, args.experts, 0);
  for (std::int64_t c = 0; c < args.num_copies(); ++c) ++counts[choices[c]];
  std::vector<std::int64_t> next(static_cast<std::size_t>(args.experts));
  std::vector<std::int64_t> end(next.size());
  std::int64_t first = 0;
  for (std::size_t e = 0; e < next.size(); ++e) {
    next[e] = first;
    first += args.capacity == 0 ? counts[e] : args.capacity;
    end[e] = first;
  }
  auto* const copies = args.copies.as<std::int32_t>();
  std::fill_n(copies, args.rows(), -1);
  for (std::int64_t j = 0; j < args.top_k; ++j) {
    for (std::int64_t c = j; c < args.num_copies(); c += args.top_k) {
      const auto e = static_cast<std::size_t>(choices[c]);
      std::int32_t& slot = args.slots.as<std::int32_t>()[c];
      slot = -1;
      if (next[e] == end[e]) continue;
      slot = static_cast<std::int32_t>(next[e]++);
      copies[slot] = static_cast<std::int32_t>(c);
    }
  }
}

void run_cpu(const Permute& args, ThreadPool& pool) {
  pool.for_ranges(args.rows, 1, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(permute)(args, begin, end); });
}

void run_cpu(const Unpermute& args, ThreadPool& pool) {
  pool.for_ranges(args.tokens, 1, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(unpermute)(args, begin, end); });
}

void run_cpu(const UnpermuteBackward& args, ThreadPool& pool) {
  pool.for_ranges(args.tokens, 1, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(unpermute_backward)(args, begin, end);
  });
  pool.for_ranges(args.rows, 1, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(clear_rows)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
