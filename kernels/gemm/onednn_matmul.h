// The one place where oneDNN's interface changed between the versions that we build with.
#pragma once

namespace lockstep::kernels {

// The description that a primitive of the class dnnl::matmul is made from. Operands are memory descriptions: a, b, bias
// if there is one, c. oneDNN 2 puts them into an operation's description first, which oneDNN 3 has no more (its
// "Transition from v2.x to v3.x").
template <class Matmul, class Engine, class Attributes, class... Operands>
typename Matmul::primitive_desc matmul_description(const Engine& engine, const Attributes& attributes,
                                                   const Operands&... operands) {
  if constexpr (requires { typename Matmul::desc; }) {
    return typename Matmul::primitive_desc(typename Matmul::desc(operands...), attributes, engine);
  } else {
    return typename Matmul::primitive_desc(engine, operands..., attributes);
  }
}

}  // namespace lockstep::kernels
