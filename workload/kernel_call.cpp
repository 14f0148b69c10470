#include "workload/operations.h"

#include <cmath>

namespace lockstep::workload {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

Product product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)};
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

std::optional<Product> product_of(const KernelCall& call) {
  using Found = std::optional<Product>;
  return std::visit(
      Overloaded{
          [](const kernels::GemmForward& args) -> Found {
            return product(args.shape.rows, args.shape.outputs, args.shape.inputs);
          },
          [](const kernels::GemmInputGradient& args) -> Found {
            return product(args.shape.rows, args.shape.inputs, args.shape.outputs);
          },
          [](const kernels::GemmWeightGradient& args) -> Found {
            return product(args.shape.outputs, args.shape.inputs, args.shape.rows);
          },
          [](const kernels::GemmFp8& args) -> Found { return product(args.shape.m, args.shape.n, args.shape.k); },
          [](const kernels::GemmFp8Add& args) -> Found { return product(args.shape.m, args.shape.n, args.shape.k); },
          [](const auto&) -> Found { return std::nullopt; }},
      call.arguments);
}

double matrix_flops_of(const KernelCall& call) {
  if (const std::optional<Product> product = product_of(call)) return product->flops();
  const KernelClass of = class_of(call);
  const bool is_matrix = of == KernelClass::attention || of == KernelClass::product;
  return is_matrix ? cost_of(call).flops : 0;
}

}  // namespace lockstep::workload
