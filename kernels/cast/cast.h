// Conversions between floating dtypes. x * scale is computed in f32 and then rounded to the dtype of y, to nearest,
// ties to even; with a scale that is a power of two there is only one rounding. Overflow follows core/dtype.h:
// infinity, or NaN in e4m3, which has no infinity. NaN stays NaN; infinity stays infinity, and becomes NaN in e4m3.
// Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

inline constexpr DTypes kFloats{core::DType::f32, core::DType::bf16, core::DType::f16, core::DType::f8e4m3,
                                core::DType::f8e5m2};

// fp8 tensors come with a scale; for other dtypes it is 1.
struct Cast {
  std::int64_t count;
  core::DType from;
  core::DType to;
  float scale = 1;
  In x = {};   // [count] of dtype from
  Out y = {};  // [count] of dtype to

  std::string_view name() const { return "cast"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.count, DTypes(self.from));
    visit("y", self.y, self.count, DTypes(self.to));
  }
};

// One FLOP per element.
Cost cost_of(const Cast& args);

void run_cpu(const Cast& args, ThreadPool& pool);
void run_cuda(const Cast& args, CudaContext& cuda);

}  // namespace lockstep::kernels
