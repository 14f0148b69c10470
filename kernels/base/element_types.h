// From a run-time dtype to the C++ type of an element.
#pragma once

#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/narrow_float.h"

namespace lockstep::kernels {

// Calls visit(T{}) with the type of an activation's element: float, BFloat16 or Float16. Other dtypes are a bug of
// ours, because arguments have been checked before.
template <class Visit>
void with_activation_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::f32:
      return visit(float{});
    case core::DType::bf16:
      return visit(core::BFloat16{});
    case core::DType::f16:
      return visit(core::Float16{});
    default:
      LOCKSTEP_CHECK(false, "not an activation's dtype");
  }
}

// The same for all floats up to f32.
template <class Visit>
void with_float_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::f8e4m3:
      return visit(core::Float8E4M3{});
    case core::DType::f8e5m2:
      return visit(core::Float8E5M2{});
    default:
      return with_activation_type(dtype, std::forward<Visit>(visit));
  }
}

}  // namespace lockstep::kernels
