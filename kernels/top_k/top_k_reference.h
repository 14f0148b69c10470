// Reference: plain loops, for tests.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/base/counted.h"
#include "kernels/base/reference_data.h"
#include "kernels/top_k/top_k.h"

namespace lockstep::kernels {

template <class S>
void reference(const TopK& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto size_of = [&](std::size_t i) {
    if constexpr (std::is_same_v<S, double>) {
      return std::fabs(x[i]);
    } else {
      return std::fabs(x[i].value());
    }
  };
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size_of(a) > size_of(b); });
  order.resize(static_cast<std::size_t>(args.k));
  std::erase_if(order, [&](std::size_t i) { return size_of(i) < static_cast<double>(args.at); });
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < data["values"].size(); ++i) {
    data["values"][i] = i < order.size() ? x[order[i]] : S(0.0);
    data["indices"][i] = S(i < order.size() ? static_cast<double>(order[i]) : -1.0);
  }
}

template <class S>
void reference(const ScatterAdd& /*args*/, ReferenceData<S>& data) {
  for (std::size_t i = 0; i < data["values"].size(); ++i) {
    int to = 0;
    if constexpr (std::is_same_v<S, double>) {
      to = static_cast<int>(data["indices"][i]);
    } else {
      to = static_cast<int>(data["indices"][i].value());
    }
    if (to >= 0) data["y"][static_cast<std::size_t>(to)] += data["values"][i];
  }
}

}  // namespace lockstep::kernels
