// Copies rows of a matrix: columns out of a wider matrix, or into one. to[r][c] = from[r][c]. Bits are kept, also those
// of NaN.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct CopyRows {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t from_stride = 0;  // elements from one row to the next; 0: columns
  std::int64_t to_stride = 0;    // likewise; elements between rows are not touched
  In from = {};                  // [rows, columns], strided
  Out to = {};                   // [rows, columns], strided

  std::int64_t from_row() const { return from_stride == 0 ? columns : from_stride; }
  std::int64_t to_row() const { return to_stride == 0 ? columns : to_stride; }

  std::string_view name() const { return "copy_rows"; }
  void check_shape() const;
  Rows rows_of(std::string_view operand) const {
    return {.elems = columns, .stride = operand == "from" ? from_row() : to_row()};
  }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("from", self.from, (self.rows - 1) * self.from_row() + self.columns, kActivations);
    visit("to", self.to, (self.rows - 1) * self.to_row() + self.columns, DTypes(self.from.dtype));
  }
};

Cost cost_of(const CopyRows& args);

void run_cpu(const CopyRows& args, ThreadPool& pool);
void run_cuda(const CopyRows& args, CudaContext& cuda);

}  // namespace lockstep::kernels
