#include "workload/kernel_call.h"

#include <cmath>

namespace lockstep::workload {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

double product_flops(const kernels::GemmShape& shape) {
  return 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
}
double product_flops(const kernels::Fp8Product& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
}

}  // namespace

std::string signature_of(const KernelCall& call) {
  return std::visit(Overloaded{[](const OtherKernel&) { return std::string(); },
                               [](const auto& args) {
                                 std::string text(args.name());
                                 for (const kernels::Operand& operand : kernels::operands_of(args)) {
                                   text += " ";
                                   text += core::short_name_of(operand.dtype);
                                   text +=
                                       ":" + std::to_string(kernels::size_bytes(operand.dtype, operand.expected_elems));
                                 }
                                 text += " flops:" + std::to_string(std::llround(kernels::cost_of(args).flops));
                                 return text;
                               }},
                    call.arguments);
}

KernelClass class_of(const KernelCall& call) {
  return std::visit(Overloaded{[](const OtherKernel& other) { return other.of; },
                               [](const kernels::GemmForward&) { return KernelClass::product; },
                               [](const kernels::GemmInputGradient&) { return KernelClass::product; },
                               [](const kernels::GemmWeightGradient&) { return KernelClass::product; },
                               [](const kernels::GemmFp8&) { return KernelClass::product; },
                               [](const kernels::GemmFp8Add&) { return KernelClass::product; },
                               [](const kernels::AttentionForward&) { return KernelClass::attention; },
                               [](const kernels::AttentionBackward&) { return KernelClass::attention; },
                               [](const auto&) { return KernelClass::pass; }},
                    call.arguments);
}

core::DType dtype_of(const KernelCall& call) {
  return std::visit(Overloaded{[](const OtherKernel& other) { return other.dtype; },
                               [](const kernels::GemmForward& args) { return args.x.dtype; },
                               [](const kernels::GemmInputGradient& args) { return args.dy.dtype; },
                               [](const kernels::GemmWeightGradient& args) { return args.x.dtype; },
                               [](const kernels::GemmFp8& args) { return args.a.dtype; },
                               [](const kernels::GemmFp8Add& args) { return args.a.dtype; },
                               [](const kernels::AttentionForward& args) { return args.q.dtype; },
                               [](const kernels::AttentionBackward& args) { return args.q.dtype; },
                               [](const auto&) { return core::DType::f32; }},
                    call.arguments);
}

kernels::Cost cost_of(const KernelCall& call) {
  return std::visit(Overloaded{[](const OtherKernel& other) {
                                 return kernels::Cost{other.flops, other.bytes, ""};
                               },
                               [](const auto& args) { return kernels::cost_of(args); }},
                    call.arguments);
}

double matrix_flops_of(const KernelCall& call) {
  return std::visit(Overloaded{[](const OtherKernel& other) { return other.of == KernelClass::pass ? 0 : other.flops; },
                               [](const kernels::GemmForward& args) { return product_flops(args.shape); },
                               [](const kernels::GemmInputGradient& args) { return product_flops(args.shape); },
                               [](const kernels::GemmWeightGradient& args) { return product_flops(args.shape); },
                               [](const kernels::GemmFp8& args) { return product_flops(args.shape); },
                               [](const kernels::GemmFp8Add& args) { return product_flops(args.shape); },
                               [](const kernels::AttentionForward& args) { return kernels::cost_of(args).flops; },
                               [](const kernels::AttentionBackward& args) { return kernels::cost_of(args).flops; },
                               [](const auto&) { return 0.0; }},
                    call.arguments);
}

}  // namespace lockstep::workload
