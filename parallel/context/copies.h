// Copies of rows between the arrays of context-parallel attention.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "kernels/copy/copy.h"

namespace lockstep::parallel {

// Part of a view, from element `first` on.
inline kernels::In from(kernels::In view, std::int64_t first, std::int64_t elems) {
  const auto* const at = view.as<std::byte>() + static_cast<std::int64_t>(core::size_of(view.dtype)) * first;
  return {at, view.dtype, elems};
}
inline kernels::Out from(kernels::Out view, std::int64_t first, std::int64_t elems) {
  auto* const at = view.as<std::byte>() + static_cast<std::int64_t>(core::size_of(view.dtype)) * first;
  return {at, view.dtype, elems};
}

// A matrix within a larger one: its first element and its row stride.
struct MatrixPlace {
  std::int64_t first = 0;
  std::int64_t stride = 0;  // 0: packed
};

// Copies a matrix of `rows` x `columns` elements.
inline void copy_matrix(const kernels::Context& where, std::int64_t rows, std::int64_t columns, kernels::In source,
                        const MatrixPlace& source_place, kernels::Out target, const MatrixPlace& target_place) {
  kernels::CopyRows copy{
      .rows = rows, .columns = columns, .from_stride = source_place.stride, .to_stride = target_place.stride};
  copy.from = from(source, source_place.first, (rows - 1) * copy.from_row() + columns);
  copy.to = from(target, target_place.first, (rows - 1) * copy.to_row() + columns);
  kernels::run(copy, where);
}

}  // namespace lockstep::parallel
