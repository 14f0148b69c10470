// The work of K-FAC on the matrices of a transformer layer (Martens, Grosse 2015, arXiv:1503.05671), as kernels that a
// machine prices: PipeFisher runs it in bubbles (Osawa et al. 2023, arXiv:2211.14133). The trainer does not run it.
#pragma once

#include <vector>

#include "workload/kernel_call.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::workload {

// Work for one matrix [outputs, inputs], for a rank's part of it.
struct SecondOrderWork {
  OperationKind product = OperationKind::none;
  KernelCall input_curvature;   // per microbatch: x' x, [inputs, inputs] in f32 of x in the compute dtype
  KernelCall output_curvature;  // per microbatch: dy' dy, [outputs, outputs]
  KernelCall input_inversion;   // once per refresh: Cholesky and the inverse from it, n^3 FLOPs in f32
  KernelCall output_inversion;
  KernelCall precondition;  // in every step: inverse x gradient x inverse, f32
};

// For each product with weights of a layer, in forward order. Curvature counts as whole products, although one half of
// a symmetric matrix determines the other.
std::vector<SecondOrderWork> second_order_work(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
