// Encoding and decoding of blocks of f32 elements (workload/compression.h).
#pragma once

#include <cstddef>
#include <string_view>

#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "workload/compression.h"

namespace lockstep::parallel {

struct CodeFormat {
  std::string_view name;
  double most_error;  // per element, relative to the block's largest magnitude
  // x, y: [count] f32; codes and scales have the sizes of CodeShape.
  void (*encode)(const kernels::In& x, std::byte* codes, std::byte* scales, const kernels::Context& where);
  void (*decode)(const std::byte* codes, const std::byte* scales, const kernels::Out& y, const kernels::Context& where);
};

// Returns the format of a compression that sends codes.
const CodeFormat& format_of(workload::CompressionWay way);

}  // namespace lockstep::parallel
