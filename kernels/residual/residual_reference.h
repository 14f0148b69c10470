// Reference: a plain loop, for tests.
#pragma once

#include "kernels/base/reference_data.h"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {

template <class S>
void reference(const ResidualAdd& /*args*/, ReferenceData<S>& data) {
  const auto a = data["a"];
  const auto b = data["b"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
}

}  // namespace lockstep::kernels
