#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_reference.h"

namespace lockstep::kernels {
namespace {

// Shapes around the sizes of tiles and vectors; the last has more depth than one pass takes.
constexpr std::array kOddShapes{GemmShape{1, 1, 1},     GemmShape{3, 17, 5},   GemmShape{17, 3, 127},
                                GemmShape{127, 64, 33}, GemmShape{33, 127, 3}, GemmShape{64, 96, 64},
                                GemmShape{5, 2500, 37}};

// The linear layers of a model: a block's four and the vocabulary's, as N x inputs x outputs.
constexpr std::array kTrainerLayers{GemmShape{1024, 256, 768}, GemmShape{1024, 256, 256}, GemmShape{1024, 256, 1024},
                                    GemmShape{1024, 1024, 256}, GemmShape{1024, 256, 512}};
constexpr std::array kGpt2Layers{GemmShape{256, 768, 2304}, GemmShape{256, 768, 768}, GemmShape{256, 768, 3072},
                                 GemmShape{256, 3072, 768}, GemmShape{256, 768, 50304}};

constexpr std::int64_t kGeluTerms = 16;  // gelu' has its own f32 error, as large as that of a sum of this length

std::string name_of(const GemmShape& shape) {
  return fmt::format("N{}_C{}_O{}", shape.rows, shape.inputs, shape.outputs);
}

// The implementation is chosen by measurement, so bits may differ from pool to pool.
CaseFacts facts(std::string shape, core::DType dtype, std::map<std::string, std::int64_t> terms) {
  return {.shape = std::move(shape), .dtype = dtype, .terms = std::move(terms), .deterministic = false};
}

KernelCase forward(const GemmShape& shape, Epilogue epilogue, core::DType dtype) {
  return case_of(shaped(GemmForward{.shape = shape, .epilogue = epilogue}, dtype));
}

KernelCase input_gradient(const GemmShape& shape, bool through_gelu, core::DType dtype) {
  return case_of(shaped(GemmInputGradient{.shape = shape, .through_gelu = through_gelu}, dtype));
}

KernelCase weight_gradient(const GemmShape& shape, bool with_bias, core::DType dtype) {
  return case_of(shaped(GemmWeightGradient{.shape = shape, .with_bias = with_bias}, dtype));
}

KernelCase batched(GemmBatched args, core::DType dtype) {
  std::string shape = fmt::format("E{}_M{}_N{}_K{}", args.batch, args.m, args.n, args.k);
  if (args.transpose_a) shape += "_At";
  if (args.transpose_b) shape += "_Bt";
  return make_case(args, facts(std::move(shape), dtype, {{args.adds ? "sum" : "c", args.k}}));
}

void add_all_orders(std::vector<KernelCase>& cases, GemmBatched args, core::DType dtype) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      args.transpose_a = transpose_a;
      args.transpose_b = transpose_b;
      cases.push_back(batched(args, dtype));
    }
  }
}

void add_layer(std::vector<KernelCase>& cases, const GemmShape& shape, core::DType dtype) {
  for (Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
    cases.push_back(forward(shape, epilogue, dtype));
  }
  for (const bool flag : {false, true}) {
    cases.push_back(input_gradient(shape, flag, dtype));
    cases.push_back(weight_gradient(shape, flag, dtype));
  }
}

}  // namespace

KernelCase case_of(const GemmForward& args) {
  const std::int64_t terms = args.shape.inputs;
  return make_shaped_case(args, facts(name_of(args.shape), args.x.dtype, {{"y", terms}, {"pre", terms}}));
}

KernelCase case_of(const GemmInputGradient& args) {
  const std::int64_t terms = args.shape.outputs + (args.through_gelu ? kGeluTerms : 0);
  return make_shaped_case(args, facts(name_of(args.shape), args.dy.dtype, {{"dx", terms}}));
}

KernelCase case_of(const GemmWeightGradient& args) {
  const std::int64_t terms = args.shape.rows;
  return make_shaped_case(args, facts(name_of(args.shape), args.x.dtype, {{"dw", terms}, {"dbias", terms}}));
}

std::vector<KernelCase> gemm_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (const GemmShape& shape : kOddShapes) add_layer(cases, shape, dtype);
    add_all_orders(cases, {.batch = 1, .m = 2, .n = 3, .k = 1}, dtype);
    add_all_orders(cases, {.batch = 5, .m = 17, .n = 9, .k = 33, .alpha = 0.125F}, dtype);
    add_all_orders(cases, {.batch = 2, .m = 70, .n = 67, .k = 64, .alpha = -2}, dtype);
    add_all_orders(cases, {.batch = 2, .m = 37, .n = 70, .k = 65, .adds = true}, dtype);
    // One shape with and without a factor: an implementation that caches its code by shape must distinguish them.
    add_all_orders(cases, {.batch = 2, .m = 48, .n = 8, .k = 48}, dtype);
    add_all_orders(cases, {.batch = 3, .m = 48, .n = 8, .k = 48, .alpha = 0.5F}, dtype);
  }
  return cases;
}

std::vector<KernelCase> gemm_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const auto& layers : {kTrainerLayers, kGpt2Layers}) {
      for (const GemmShape& shape : layers) {
        cases.push_back(forward(shape, Epilogue::none, dtype));
        cases.push_back(input_gradient(shape, false, dtype));
        cases.push_back(weight_gradient(shape, false, dtype));
      }
      // The layers of a block that have an epilogue: up and down.
      cases.push_back(forward(layers[2], Epilogue::bias_gelu, dtype));
      cases.push_back(input_gradient(layers[3], true, dtype));
      cases.push_back(weight_gradient(layers[2], true, dtype));
    }
    cases.push_back(batched({.batch = 32, .m = 128, .n = 128, .k = 64, .transpose_b = true, .alpha = 0.125F}, dtype));
  }
  return cases;
}

}  // namespace lockstep::kernels
