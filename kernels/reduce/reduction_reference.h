// Reference: plain loops, for tests. reduce_test.cpp compares rounding and wrapping bit by bit.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/counted.h"
#include "kernels/base/reference_data.h"
#include "kernels/reduce/reduction.h"

namespace lockstep::kernels {

// A number whose operations are not counted: integer operations are not FLOPs.
inline double uncounted(double x) {
  return x;
}
inline double uncounted(Counted x) {
  return x.value();
}

template <class S>
S combined_reference(core::ReduceOp op, S a, S b) {
  switch (op) {
    case core::ReduceOp::sum:
    case core::ReduceOp::avg:
      return a + b;
    case core::ReduceOp::prod:
      return a * b;
    case core::ReduceOp::max:
      return a < b ? b : a;
    case core::ReduceOp::min:
      return b < a ? b : a;
  }
  return a;
}

template <class S>
void reference(const Reduction& args, ReferenceData<S>& data) {
  const bool floats = core::is_floating(args.dtype);
  const auto destination = data["destination"];
  std::vector<std::span<S>> sources;
  for (std::int64_t k = 0; k < args.num_sources; ++k) sources.push_back(data["source" + std::to_string(k)]);
  for (std::size_t i = 0; i < destination.size(); ++i) {
    S value = sources[0][i];
    for (std::size_t k = 1; k < sources.size(); ++k) {
      const S next = sources[k][i];
      value = floats ? combined_reference(args.op, value, next)
                     : S(combined_reference(args.op, uncounted(value), uncounted(next)));
    }
    const auto divisor = static_cast<double>(args.average_over);
    if (args.average_over > 0) value = floats ? value / S(divisor) : S(std::trunc(uncounted(value) / divisor));
    destination[i] = value;
  }
}

}  // namespace lockstep::kernels
