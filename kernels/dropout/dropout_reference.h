// Reference: a plain loop, for tests.
#pragma once

#include "kernels/base/reference_data.h"
#include "kernels/dropout/dropout.h"

namespace lockstep::kernels {

template <class S>
void reference(const Dropout& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto y = data["y"];
  const S keep_share(1 - static_cast<double>(args.rate));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t element = args.first_element + i;
    const std::uint32_t word = philox_block(args.seed, args.step, element / 4)[element % 4];
    const S scaled = x[i] / keep_share;
    y[i] = word >= dropout_threshold(args.rate) ? scaled : S(0);
  }
}

}  // namespace lockstep::kernels
