// The work of K-FAC on the matrices of a transformer layer (Martens, Grosse 2015, arXiv:1503.05671), as kernels that a
// machine prices: what PipeFisher puts into bubbles (Osawa et al. 2023, arXiv:2211.14133). It is no part of any step
// that the trainer runs.
#pragma once

#include <vector>

#include "workload/kernel_call.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::workload {

// Of one matrix [outputs, inputs], as much of it as a rank has.
struct SecondOrderWork {
  OperationKind product = OperationKind::none;
  KernelCall input_curvature;   // of a microbatch: x' x, [inputs, inputs] in f32 of x in the compute dtype
  KernelCall output_curvature;  // of a microbatch: dy' dy, [outputs, outputs]
  KernelCall input_inversion;   // once a refresh: Cholesky and the inverse from it, n^3 FLOPs in f32
  KernelCall output_inversion;
  KernelCall precondition;  // in every step: inverse x gradient x inverse, f32
};

// Of each product of a layer with weights, in the forward's order. Curvature counts as whole products, though one half
// of a symmetric matrix gives the other.
std::vector<SecondOrderWork> second_order_work(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
