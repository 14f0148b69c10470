// Data on which references run: numbers that count operations, and operands in f64.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::kernels {

// A number that counts the floating point operations that made it. References run on it to show that the declared FLOPs
// are correct; Cost in operands.h says what counts.

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

  // Found by argument-dependent lookup where a reference says `using std::exp; exp(x)`.
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
