// Reference: plain loops, for tests.
#pragma once

#include <limits>

#include "kernels/base/reference_data.h"
#include "kernels/copy/copy.h"

namespace lockstep::kernels {

// The elements between rows keep the value with which tests fill outputs: NaN.
template <class S>
void reference(const CopyRows& args, ReferenceData<S>& data) {
  const auto from = data["from"];
  const auto to = data["to"];
  for (S& value : to) value = S(std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t c = 0; c < args.columns; ++c) {
      to[static_cast<std::size_t>(r * args.to_row() + c)] = from[static_cast<std::size_t>(r * args.from_row() + c)];
    }
  }
}

}  // namespace lockstep::kernels
