#include "workload/second_order.h"

#include <variant>

#include "core/dtype.h"

namespace lockstep::workload {
namespace {

KernelCall product(core::DType dtype, double flops, double bytes) {
  return {OtherKernel{.of = KernelClass::product, .dtype = dtype, .flops = flops, .bytes = bytes}};
}

// The product of n rows of `columns` with themselves.
KernelCall curvature(core::DType dtype, double rows, double columns) {
  const double bytes = rows * columns * static_cast<double>(core::size_of(dtype)) + columns * columns * sizeof(float);
  return product(dtype, 2 * rows * columns * columns, bytes);
}

KernelCall inversion(double n) {
  return product(core::DType::f32, n * n * n, 2 * n * n * sizeof(float));
}

SecondOrderWork work_of(const Operation& operation, const kernels::GemmShape& shape, const Layout& layout) {
  const auto rows = static_cast<double>(shape.rows);
  const auto inputs = static_cast<double>(shape.inputs);
  const auto outputs = static_cast<double>(shape.outputs);
  const double elems = inputs * inputs + outputs * outputs + 2 * inputs * outputs;
  return {.product = operation.kind,
          .input_curvature = curvature(layout.compute, rows, inputs),
          .output_curvature = curvature(layout.compute, rows, outputs),
          .input_inversion = inversion(inputs),
          .output_inversion = inversion(outputs),
          .precondition = product(core::DType::f32, 2 * inputs * outputs * (inputs + outputs), elems * sizeof(float))};
}

}  // namespace

std::vector<SecondOrderWork> second_order_work(const Model& model, const Layout& layout) {
  std::vector<SecondOrderWork> all;
  for (const Operation& operation : layer_operations(model, layout)) {
    for (const KernelCall& call : operation.weight_gradient) {
      const auto* const gradient = std::get_if<kernels::GemmWeightGradient>(&call.arguments);
      if (gradient != nullptr) all.push_back(work_of(operation, gradient->shape, layout));
    }
  }
  return all;
}

}  // namespace lockstep::workload
