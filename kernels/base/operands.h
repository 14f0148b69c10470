// Enumerates a kernel's operands from its arguments, for checks, costs and test cases alike; and the data on which its
// reference runs.
//
// A kernel is a struct of arguments, such as GeluForward: integers, flags and views. It has
//   std::string_view name() const       "gelu_fwd"
//   void check_shape() const            throws a usage Error that names the integer that is wrong
//   template <class Self, class Visit> static void visit_operands(Self& self, Visit&& visit)
//                                       calls visit(name, view, elems, dtypes) for each operand that is used, in a
//                                       fixed order, with the elements that it must have and the dtypes that it may
//                                       have
//   static constexpr std::array kInPlace{InPlace{"y", "x"}};   if operands may be the same memory
//   Rows rows_of(std::string_view operand) const               if operands are strided, so that others may lie between
//   rows
// and the free functions
//   Cost cost_of(const GeluForward&)                 declared work
//   void run_cpu(const GeluForward&, ThreadPool&)    takes checked arguments
//   void run_cuda(const GeluForward&, CudaContext&)  likewise
//   template <class S> void reference(const GeluForward&, ReferenceData<S>&)   plain loops, in x_reference.h
#pragma once

#include <array>
#include <cmath>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

// Rows of `elems` elements, one every `stride` elements; stride 0: the operand is dense.
struct Rows {
  std::int64_t elems = 0;
  std::int64_t stride = 0;
};

// An operand as visited.
struct Operand {
  std::string name;
  Access access;
  const void* data;
  core::DType dtype;
  std::int64_t elems;           // actual number of elements
  std::int64_t expected_elems;  // number of elements required by the shape
  DTypes allowed;
  Rows rows = {};
};

template <class Args>
std::vector<Operand> operands_of(const Args& args) {
  std::vector<Operand> operands;
  Args::visit_operands(args, [&](std::string_view name, const auto& view, std::int64_t elems, const DTypes& allowed) {
    operands.push_back({std::string(name), access_of(view), view.data, view.dtype, view.elems, elems, allowed});
    if constexpr (requires { args.rows_of(name); }) operands.back().rows = args.rows_of(name);
  });
  return operands;
}

// Returns whether each operand begins at a multiple of this many bytes.
template <class Args>
bool begin_at_multiples_of(std::uintptr_t bytes, const Args& args) {
  bool all = true;
  Args::visit_operands(args, [&](std::string_view, const auto& view, std::int64_t, const DTypes&) {
    all = all && reinterpret_cast<std::uintptr_t>(view.data) % bytes == 0;
  });
  return all;
}

// Returns the arguments with every view's length and dtype filled in, but no memory yet. A dtype is the only one that
// the operand may have, or `dtype` if there is a choice.
template <class Args>
Args shaped(Args args, core::DType dtype) {
  Args::visit_operands(args, [&](std::string_view, auto& view, std::int64_t elems, const DTypes& allowed) {
    view.elems = elems;
    view.dtype = allowed.only_one().value_or(dtype);
  });
  return args;
}

// Returns the arguments with their operands' memory, in the order of visit_operands().
template <class Args>
Args with_memory(Args args, std::span<void* const> memory) {
  std::size_t next = 0;
  Args::visit_operands(args,
                       [&](std::string_view, auto& view, std::int64_t, const DTypes&) { view.data = memory[next++]; });
  return args;
}

// Throws a usage Error "KERNEL: OPERAND ..." if an operand is missing, has the wrong length or dtype, is not aligned to
// its elements, or if one that is written overlaps another. A pair that `in_place` names may be the same memory; rows
// of one operand between rows of another with the same stride do not overlap.
struct InPlace {
  std::string_view written;
  std::string_view read;
};
void check_operands(std::string_view kernel, const std::vector<Operand>& operands,
                    std::span<const InPlace> in_place = {});

// Throws a usage Error "KERNEL: NAME is VALUE; allowed: at least LEAST".
void check_at_least(std::string_view kernel, std::string_view name, std::int64_t value, std::int64_t least);
// `what`, if given, follows the largest value allowed: "at most 2, the experts".
void check_at_most(std::string_view kernel, std::string_view name, std::int64_t value, std::int64_t most,
                   std::string_view what = "");
// "KERNEL: NAME is VALUE; allowed: divisors of WHOLE, 12".
void check_divides(std::string_view kernel, std::string_view name, std::int64_t value, std::string_view whole_name,
                   std::int64_t whole);
// Checks that numbers are at least 1.
void check_sizes(std::string_view kernel, std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes);

// For a kernel with in-place operands: static constexpr std::array<InPlace, n> kInPlace.
template <class Args>
void check(const Args& args) {
  args.check_shape();
  if constexpr (requires { Args::kInPlace; }) {
    check_operands(args.name(), operands_of(args), Args::kInPlace);
  } else {
    check_operands(args.name(), operands_of(args));
  }
}

// The declared cost of a kernel on any machine: the minimum work of any implementation.

// FLOPs: additions, subtractions, multiplications and divisions of floating point numbers, and one for each exp, log,
// tanh and square root, as the reference computes them (a fused multiply-add counts as two). Comparisons, conversions
// and integer operations do not count.
struct Cost {
  double flops = 0;
  double bytes = 0;          // between memory and caches if all caches are cold: each operand read or written once
  std::string bytes_reason;  // why bytes differ from the operands' sizes; empty if they do not
};

// Returns the cost of a kernel that reads or writes every operand once. Of a strided operand only the rows count.
template <class Args>
Cost cost_of_operands(double flops, const Args& args) {
  Cost cost{flops, 0, ""};
  for (const Operand& operand : operands_of(args)) {
    const Rows& rows = operand.rows;
    std::int64_t elems = operand.expected_elems;
    if (rows.stride > rows.elems) {
      elems = (elems + rows.stride - rows.elems) / rows.stride * rows.elems;
      cost.bytes_reason = "only the rows count, not the elements between them";
    }
    const double once = static_cast<double>(size_bytes(operand.dtype, elems));
    cost.bytes += operand.access == Access::update ? 2 * once : once;
  }
  return cost;
}

// Checks of floating point numbers among a kernel's arguments; check_at_least() checks integers. Each throws a usage
// Error "KERNEL: NAME is VALUE; allowed: ...". NaN is never allowed.
void check_finite(std::string_view kernel, std::string_view name, float value);
void check_positive(std::string_view kernel, std::string_view name, float value);      // above 0 and finite
void check_not_negative(std::string_view kernel, std::string_view name, float value);  // at least 0 and finite
void check_fraction(std::string_view kernel, std::string_view name, float value);      // at least 0 and below 1

// A number that counts the floating point operations that made it. References run on it to show that the declared FLOPs
// are correct; see Cost for what counts.
class Counted {
 public:
  Counted(double value = 0, std::int64_t* counter = nullptr)  // NOLINT(google-explicit-constructor): a constant
      : value_(value), counter_(counter) {}
  double value() const { return value_; }

  friend Counted operator+(Counted a, Counted b) { return made(a.value_ + b.value_, a, b); }
  friend Counted operator-(Counted a, Counted b) { return made(a.value_ - b.value_, a, b); }
  friend Counted operator*(Counted a, Counted b) { return made(a.value_ * b.value_, a, b); }
  friend Counted operator/(Counted a, Counted b) { return made(a.value_ / b.value_, a, b); }
  Counted operator-() const { return {-value_, counter_}; }
  Counted& operator+=(Counted other) { return *this = *this + other; }
  Counted& operator-=(Counted other) { return *this = *this - other; }
  Counted& operator*=(Counted other) { return *this = *this * other; }
  Counted& operator/=(Counted other) { return *this = *this / other; }
  friend std::partial_ordering operator<=>(Counted a, Counted b) { return a.value_ <=> b.value_; }
  friend bool operator==(Counted a, Counted b) { return a.value_ == b.value_; }

  // Found by argument-dependent lookup where a reference has `using std::exp; exp(x)`.
  friend Counted exp(Counted x) { return made(std::exp(x.value_), x, x); }
  friend Counted log(Counted x) { return made(std::log(x.value_), x, x); }
  friend Counted tanh(Counted x) { return made(std::tanh(x.value_), x, x); }
  friend Counted sqrt(Counted x) { return made(std::sqrt(x.value_), x, x); }
  friend Counted abs(Counted x) { return {std::fabs(x.value_), x.counter_}; }
  friend Counted round(Counted x) { return {std::nearbyint(x.value_), x.counter_}; }

 private:
  // An operation on constants alone belongs to no counter and is free, because a compiler computes it once.
  static Counted made(double value, const Counted& a, const Counted& b) {
    std::int64_t* const counter = a.counter_ != nullptr ? a.counter_ : b.counter_;
    if (counter != nullptr) ++*counter;
    return {value, counter};
  }

  double value_;
  std::int64_t* counter_;
};

// The number in a reference's element, without counting, and the integer that it stands for, such as a token id.
inline double value_of(double x) {
  return x;
}
inline double value_of(const Counted& x) {
  return x.value();
}
template <class S>
std::int64_t integer_of(const S& x) {
  return static_cast<std::int64_t>(value_of(x));
}

// Operands of a reference: arrays of one scalar type S (double or Counted), looked up by the operand's name. Integers
// (token ids, int8 codes) are stored as S too.
template <class S>
class ReferenceData {
 public:
  void add(std::string name, std::vector<S> values) { arrays_.emplace_back(std::move(name), std::move(values)); }

  // An operand that is not used is empty.
  std::span<S> operator[](std::string_view name) {
    for (auto& [known, values] : arrays_) {
      if (known == name) return values;
    }
    return {};
  }
  std::vector<std::pair<std::string, std::vector<S>>>& arrays() { return arrays_; }
  const std::vector<std::pair<std::string, std::vector<S>>>& arrays() const { return arrays_; }

 private:
  std::vector<std::pair<std::string, std::vector<S>>> arrays_;
};

}  // namespace lockstep::kernels
