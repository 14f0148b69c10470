// Matrix products of linear layers and attention. Arrays are row-major; sums are in f32.
//   forward          y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T (+ bias) (then GELU)
//   input gradient   dx[rows, inputs] = dy[rows, outputs] w[outputs, inputs] (times gelu'(pre))
//   weight gradient  dw[outputs, inputs] += dy^T x;  dbias[outputs] += sum over rows of dy
//   batched          c[batch] = alpha op(a[batch]) op(b[batch]), or sum[batch] += op(a[batch]) op(b[batch]) in f32
// On the CPU there are two implementations: oneDNN for f32 and bf16, and our own packed kernel for any dtype and
// processor. Programs that train use one for a whole run, chosen by a short probe; otherwise the fastest for each shape
// is measured (gemm_choice.h). On CUDA it is cuBLASLt with the best of the algorithms that its heuristic proposes.
// Products of f32 are as exact as f32 arithmetic, never TF32. Results repeat from run to run for the same number of
// threads and implementation; with other numbers of threads they may differ in the last bits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class Context;
class CudaContext;

struct GemmShape {
  std::int64_t rows;     // N tokens
  std::int64_t inputs;   // C
  std::int64_t outputs;  // O
  void check(std::string_view kernel) const;
};

enum class Epilogue : std::uint8_t { none, bias, bias_gelu };

struct GemmForward {
  GemmShape shape;
  Epilogue epilogue = Epilogue::none;
  In x = {};     // [rows, inputs]
  In w = {};     // [outputs, inputs]
  In bias = {};  // [outputs], with an epilogue
  Out pre = {};  // [rows, outputs], with bias_gelu: before the GELU, for the backward
  Out y = {};    // [rows, outputs]

  std::string_view name() const {
    if (epilogue == Epilogue::none) return "gemm_fwd";
    return epilogue == Epilogue::bias ? "gemm_bias_fwd" : "gemm_bias_gelu_fwd";
  }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const GemmShape& s = self.shape;
    visit("x", self.x, s.rows * s.inputs, kActivations);
    const DTypes same(self.x.dtype);
    visit("w", self.w, s.outputs * s.inputs, same);
    if (self.epilogue != Epilogue::none) visit("bias", self.bias, s.outputs, same);
    if (self.epilogue == Epilogue::bias_gelu) visit("pre", self.pre, s.rows * s.outputs, same);
    visit("y", self.y, s.rows * s.outputs, same);
  }
};

struct GemmInputGradient {
  GemmShape shape;
  bool through_gelu = false;  // x is the output of a GELU: dx becomes the gradient of the GELU's input
  In dy = {};                 // [rows, outputs]
  In w = {};                  // [outputs, inputs]
  In pre = {};                // [rows, inputs], if through_gelu
  Out dx = {};                // [rows, inputs]

  std::string_view name() const { return through_gelu ? "gemm_dgelu_dgrad" : "gemm_dgrad"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const GemmShape& s = self.shape;
    visit("dy", self.dy, s.rows * s.outputs, kActivations);
    const DTypes same(self.dy.dtype);
    visit("w", self.w, s.outputs * s.inputs, same);
    if (self.through_gelu) visit("pre", self.pre, s.rows * s.inputs, same);
    visit("dx", self.dx, s.rows * s.inputs, same);
  }
};

struct GemmWeightGradient {
  GemmShape shape;
  bool with_bias = false;
  In x = {};         // [rows, inputs]
  In dy = {};        // [rows, outputs]
  InOut dw = {};     // [outputs, inputs] f32
  InOut dbias = {};  // [outputs] f32, if with_bias

  std::string_view name() const { return with_bias ? "gemm_bias_wgrad" : "gemm_wgrad"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const GemmShape& s = self.shape;
    visit("x", self.x, s.rows * s.inputs, kActivations);
    visit("dy", self.dy, s.rows * s.outputs, DTypes(self.x.dtype));
    visit("dw", self.dw, s.outputs * s.inputs, kF32);
    if (self.with_bias) visit("dbias", self.dbias, s.outputs, kF32);
  }
};

struct GemmBatched {
  std::int64_t batch;
  std::int64_t m, n, k;
  bool transpose_a = false;  // a is [k, m]
  bool transpose_b = false;  // b is [n, k]
  float alpha = 1;
  bool adds = false;  // adds to `sum` instead of writing c; alpha must be 1
  In a = {};          // [batch, m, k]
  In b = {};          // [batch, k, n]
  Out c = {};         // [batch, m, n], unless `adds`
  InOut sum = {};     // [batch, m, n] f32, if `adds`

  std::string_view name() const { return adds ? "gemm_batched_add" : "gemm_batched"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("a", self.a, self.batch * self.m * self.k, kActivations);
    const DTypes same(self.a.dtype);
    visit("b", self.b, self.batch * self.k * self.n, same);
    const std::int64_t results = self.batch * self.m * self.n;
    if (self.adds) {
      visit("sum", self.sum, results, kF32);
    } else {
      visit("c", self.c, results, same);
    }
  }
};

Cost cost_of(const GemmForward& args);
Cost cost_of(const GemmInputGradient& args);
Cost cost_of(const GemmWeightGradient& args);
Cost cost_of(const GemmBatched& args);

// The implementation that computes the product, known after it has run there: "packed by rows". Empty on CUDA.
std::string implementation_of(const GemmForward& args, const Context& where);
std::string implementation_of(const GemmInputGradient& args, const Context& where);
std::string implementation_of(const GemmWeightGradient& args, const Context& where);
std::string implementation_of(const GemmBatched& args, const Context& where);

// On the CPU: from now on the implementation depends on the shape alone, so that the bits of products repeat from
// process to process. It is the one called `first` ("packed", "onednn"); if that cannot compute a product, or `first`
// is empty, it is the first in this order that can. Without this call, the fastest is measured when a shape first
// occurs. Throws a usage Error if `first` is not available. Does nothing on CUDA.
void choose_gemms_by_rule(const Context& where, std::string_view first = "");

void run_cpu(const GemmForward& args, ThreadPool& pool);
void run_cpu(const GemmInputGradient& args, ThreadPool& pool);
void run_cpu(const GemmWeightGradient& args, ThreadPool& pool);
void run_cpu(const GemmBatched& args, ThreadPool& pool);
void run_cuda(const GemmForward& args, CudaContext& cuda);
void run_cuda(const GemmInputGradient& args, CudaContext& cuda);
void run_cuda(const GemmWeightGradient& args, CudaContext& cuda);
void run_cuda(const GemmBatched& args, CudaContext& cuda);

}  // namespace lockstep::kernels
