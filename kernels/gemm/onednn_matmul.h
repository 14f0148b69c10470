// The only place that depends on the version of oneDNN's interface.
#pragma once

namespace lockstep::kernels {

// Makes the description from which a primitive of the class dnnl::matmul is made. Operands are memory descriptions: a,
// b, bias if there is one, c. oneDNN 2 wraps them in an operation's description first, which oneDNN 3 no longer has
// (see its "Transition from v2.x to v3.x").
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
