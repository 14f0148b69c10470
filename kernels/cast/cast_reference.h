// Reference: a plain loop, for tests. It does not round to y's dtype: cast_test.cpp compares rounding bit for bit with
// core/narrow_float.h.
#pragma once

#include "kernels/base/reference_data.h"
#include "kernels/cast/cast.h"

namespace lockstep::kernels {

template <class S>
void reference(const Cast& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * S(args.scale);
}

}  // namespace lockstep::kernels
