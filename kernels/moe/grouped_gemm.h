// Linear layers of several experts at once: rows are grouped by expert, one group after the other, and group g goes
// through layer g. Groups may differ in length (ragged: dropless experts) or not (a fixed capacity), and may be empty.
// Lengths are on the host, as in the libraries that frameworks use (github.com/tgale96/grouped_gemm). The products are
// gemm.h's: on the CPU, threads split all groups by their work; on CUDA, the groups follow each other in the stream,
// unless one kernel for all groups is chosen (experts_hopper.cuh).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

class Context;
class CudaContext;

struct GroupedShape {
  std::vector<std::int64_t> rows;  // rows of each group
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool rows_vary = false;  // from call to call (Product::varies)

  std::size_t groups() const { return rows.size(); }
  std::int64_t all_rows() const;
  void check(std::string_view kernel) const;
};

// Visits operands "w0", "w1", ..., one per group, with `elems` elements each. Arguments that may be changed get the
// views that they lack.
template <class Views, class Visit>
void visit_groups(Views& views, const char* name, std::size_t groups, std::int64_t elems, const DTypes& allowed,
                  Visit&& visit) {
  if constexpr (!std::is_const_v<Views>) views.resize(groups);
  const typename std::remove_cv_t<Views>::value_type missing{};
  for (std::size_t g = 0; g < groups; ++g) {
    const std::string named = std::string(name).append(std::to_string(g));
    if constexpr (std::is_const_v<Views>) {
      visit(named, g < views.size() ? views[g] : missing, elems, allowed);
    } else {
      visit(named, views[g], elems, allowed);
    }
  }
}

struct GroupedGemmForward {
  GroupedShape shape;
  Epilogue epilogue = Epilogue::none;
  In x = {};                  // [all rows, inputs]
  std::vector<In> w = {};     // [group][outputs, inputs]
  std::vector<In> bias = {};  // [group][outputs], with an epilogue
  Out pre = {};               // [all rows, outputs], with bias_gelu
  Out y = {};                 // [all rows, outputs]

  std::string_view name() const {
    if (epilogue == Epilogue::none) return "grouped_gemm_fwd";
    return epilogue == Epilogue::bias ? "grouped_gemm_bias_fwd" : "grouped_gemm_bias_gelu_fwd";
  }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const GroupedShape& s = self.shape;
    visit("x", self.x, s.all_rows() * s.inputs, kActivations);
    const DTypes same(self.x.dtype);
    visit_groups(self.w, "w", s.groups(), s.outputs * s.inputs, same, visit);
    if (self.epilogue != Epilogue::none) visit_groups(self.bias, "bias", s.groups(), s.outputs, same, visit);
    if (self.epilogue == Epilogue::bias_gelu) visit("pre", self.pre, s.all_rows() * s.outputs, same);
    visit("y", self.y, s.all_rows() * s.outputs, same);
  }
};

struct GroupedGemmInputGradient {
  GroupedShape shape;
  bool through_gelu = false;  // x is the output of a GELU: dx becomes the gradient of the GELU's input
  In dy = {};                 // [all rows, outputs]
  std::vector<In> w = {};     // [group][outputs, inputs]
  In pre = {};                // [all rows, inputs], if through_gelu
  Out dx = {};                // [all rows, inputs]

  std::string_view name() const { return through_gelu ? "grouped_gemm_dgelu_dgrad" : "grouped_gemm_dgrad"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const GroupedShape& s = self.shape;
    visit("dy", self.dy, s.all_rows() * s.outputs, kActivations);
    const DTypes same(self.dy.dtype);
    visit_groups(self.w, "w", s.groups(), s.outputs * s.inputs, same, visit);
    if (self.through_gelu) visit("pre", self.pre, s.all_rows() * s.inputs, same);
    visit("dx", self.dx, s.all_rows() * s.inputs, same);
  }
};

// A group without rows adds nothing to its gradients.
struct GroupedGemmWeightGradient {
  GroupedShape shape;
  bool with_bias = false;
  In x = {};                      // [all rows, inputs]
  In dy = {};                     // [all rows, outputs]
  std::vector<InOut> dw = {};     // [group][outputs, inputs] f32
  std::vector<InOut> dbias = {};  // [group][outputs] f32, if with_bias

  std::string_view name() const { return with_bias ? "grouped_gemm_bias_wgrad" : "grouped_gemm_wgrad"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const GroupedShape& s = self.shape;
    visit("x", self.x, s.all_rows() * s.inputs, kActivations);
    visit("dy", self.dy, s.all_rows() * s.outputs, DTypes(self.x.dtype));
    visit_groups(self.dw, "dw", s.groups(), s.outputs * s.inputs, kF32, visit);
    if (self.with_bias) visit_groups(self.dbias, "dbias", s.groups(), s.outputs, kF32, visit);
  }
};

// The products of the groups that have rows, one by one.
std::vector<GemmForward> groups_of(const GroupedGemmForward& args);
std::vector<GemmInputGradient> groups_of(const GroupedGemmInputGradient& args);
std::vector<GemmWeightGradient> groups_of(const GroupedGemmWeightGradient& args);

Cost cost_of(const GroupedGemmForward& args);
Cost cost_of(const GroupedGemmInputGradient& args);
Cost cost_of(const GroupedGemmWeightGradient& args);

void run_cpu(const GroupedGemmForward& args, ThreadPool& pool);
void run_cpu(const GroupedGemmInputGradient& args, ThreadPool& pool);
void run_cpu(const GroupedGemmWeightGradient& args, ThreadPool& pool);
void run_cuda(const GroupedGemmForward& args, CudaContext& cuda);
void run_cuda(const GroupedGemmInputGradient& args, CudaContext& cuda);
void run_cuda(const GroupedGemmWeightGradient& args, CudaContext& cuda);

// The kernels that compute products of groups on a CUDA device:
//   "cublaslt"  one product per group, in the stream's order; the default
//   "wgmma"     one kernel for all groups, on compute capability 9.0: bf16 and f16, inputs and outputs multiples of 8,
//               operands at multiples of 16 bytes. Rows of groups are read on the device
inline constexpr std::array kExpertsChoices{"cublaslt", "wgmma"};  // the default first

// Chooses one of kExpertsChoices for the context from now on; "wgmma" is used for all arguments that it supports.
// Throws a usage Error if the device has no wgmma.
void choose_experts(CudaContext& cuda, const std::string& name);

// Returns whether wgmma computes checked arguments of this shape and dtype there, which run_hopper_experts() does,
// without the gradient of a bias. `aligned`: all operands begin at multiples of 16 bytes.
bool takes_wgmma(const GroupedShape& shape, core::DType dtype, bool aligned, CudaContext& cuda);
void run_hopper_experts(const GroupedGemmForward& args, CudaContext& cuda);
void run_hopper_experts(const GroupedGemmInputGradient& args, CudaContext& cuda);
void run_hopper_experts(const GroupedGemmWeightGradient& args, CudaContext& cuda);

// On CUDA, the choice that computes it. Empty on the CPU.
std::string implementation_of(const GroupedGemmForward& args, const Context& where);
std::string implementation_of(const GroupedGemmInputGradient& args, const Context& where);
std::string implementation_of(const GroupedGemmWeightGradient& args, const Context& where);

}  // namespace lockstep::kernels
