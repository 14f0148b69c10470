#include "parallel/layers/linear.h"

namespace lockstep::parallel {
namespace {

enum class Remembered : std::uint8_t { x, w, dy };

// A view of f32 numbers; empty if there are none.
template <class View>
View part_of(View view, std::int64_t begin, std::int64_t count) {
  if (!view.given()) return view;
  view.data = view.template as<float>() + begin;
  view.elems = count;
  return view;
}

struct Encoded {
  Tensor codes;
  Tensor scales;
};

Encoded encoded(const Workspace& workspace, const Fp8Scaling& scaling, Remembered which, kernels::Fp8Encode args,
                kernels::In x) {
  const auto make = [&](core::DType dtype, std::int64_t elems) {
    return workspace.memory.make(MemoryKind::buffers, dtype, elems);
  };
  Encoded made{make(args.to, args.rows * args.columns), make(core::DType::f32, args.blocks())};
  Tensor largest;
  if (args.delayed) {
    args.previous = part_of(scaling.previous, static_cast<std::int64_t>(which), 1);
    args.raised = part_of(scaling.raised, static_cast<std::int64_t>(which), 1);
  } else {
    largest = make(core::DType::f32, args.blocks());
    args.largest = largest.out();
  }
  args.x = x;
  args.scales = made.scales.out();
  args.codes = made.codes.out();
  kernels::run(args, workspace.where);
  return made;
}

template <class Product>
Product with_factors(Product product, const Encoded& a, const Encoded& b) {
  product.a = a.codes.in();
  product.a_scales = a.scales.in();
  product.b = b.codes.in();
  product.b_scales = b.scales.in();
  return product;
}

}  // namespace

Fp8Scaling Fp8Scaling::of_linear(std::int64_t index) const {
  return {recipe, part_of(previous, index * kFp8Tensors, kFp8Tensors),
          part_of(raised, index * kFp8Tensors, kFp8Tensors)};
}

void Fp8Products::forward(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x,
                          kernels::Out y) const {
  const Encoded a = encoded(workspace, scaling, Remembered::x, linear.x(), x);
  const Encoded b = encoded(workspace, scaling, Remembered::w, linear.w(), weight);
  kernels::GemmFp8 product = with_factors(linear.forward(bias.given()), a, b);
  product.bias = bias;
  product.y = y;
  kernels::run(product, workspace.where);
}

void Fp8Products::input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy,
                                 kernels::Out dx) const {
  const Encoded a = encoded(workspace, scaling, Remembered::dy, linear.dy(), dy);
  const Encoded b = encoded(workspace, scaling, Remembered::w, linear.w_transposed(), weight);
  kernels::GemmFp8 product = with_factors(linear.input_gradient(), a, b);
  product.y = dx;
  kernels::run(product, workspace.where);
}

void Fp8Products::weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy, kernels::InOut dw,
                                  kernels::InOut dbias) const {
  const Encoded a = encoded(workspace, scaling, Remembered::dy, linear.dy_transposed(), dy);
  const Encoded b = encoded(workspace, scaling, Remembered::x, linear.x_transposed(), x);
  kernels::GemmFp8Add product = with_factors(linear.weight_gradient(dbias.given()), a, b);
  if (dbias.given()) product.dy = dy;
  product.dw = dw;
  product.dbias = dbias;
  kernels::run(product, workspace.where);
}

}  // namespace lockstep::parallel
