// Reference: plain loops, for tests.
#pragma once

#include <string>

#include "kernels/base/reference_data.h"
#include "kernels/bucket/bucket.h"

namespace lockstep::kernels {

template <class S>
void reference(const PackBucket& args, ReferenceData<S>& data) {
  const auto bucket = data["bucket"];
  std::size_t next = 0;
  for (std::size_t k = 0; k < args.counts.size(); ++k) {
    for (const S& x : data["piece" + std::to_string(k)]) bucket[next++] = x * S(args.scale);
  }
}

template <class S>
void reference(const UnpackBucket& args, ReferenceData<S>& data) {
  const auto bucket = data["bucket"];
  std::size_t next = 0;
  for (std::size_t k = 0; k < args.counts.size(); ++k) {
    for (S& y : data["piece" + std::to_string(k)]) y = bucket[next++] * S(args.scale);
  }
}

}  // namespace lockstep::kernels
