// Operands of a reference: arrays of one scalar type S (double or Counted), looked up by the operand's name. Integers
// (token ids, int8 codes) are stored as S too.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::kernels {

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
