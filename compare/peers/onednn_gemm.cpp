// Products of oneDNN's matmul primitive in f32 and bf16 on plain row-major operands.
#include <dnnl.hpp>

#include "compare/peers/peers.h"
#include "kernels/gemm/onednn_matmul.h"

using namespace lockstep;
using namespace lockstep::peers;

namespace {

using dnnl::memory;

memory::desc matrix(std::size_t rows, std::size_t columns, bool transposed, bool bf16) {
  const auto r = static_cast<memory::dim>(rows);
  const auto c = static_cast<memory::dim>(columns);
  return {{r, c},
          bf16 ? memory::data_type::bf16 : memory::data_type::f32,
          transposed ? memory::dims{1, r} : memory::dims{c, 1}};
}

// True only if the CPU has the instructions that oneDNN needs for bf16.
bool multiplies_bf16(const dnnl::engine& engine) {
  const memory::desc square = matrix(32, 32, false, true);
  try {
    kernels::matmul_description<dnnl::matmul>(engine, dnnl::primitive_attr(), square, square, square);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  return gemm_peer(argc, argv, "onednn", [&](const Product& p) -> Multiply {
    if (p.bf16 && !multiplies_bf16(engine)) return {};
    const memory::desc a = matrix(p.m, p.k, p.transpose_a, p.bf16);
    const memory::desc b = matrix(p.k, p.n, p.transpose_b, p.bf16);
    const memory::desc c = matrix(p.m, p.n, false, p.bf16 && !p.accumulate);
    dnnl::post_ops sum;
    if (p.accumulate) sum.append_sum(1.0F);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(sum);
    const dnnl::matmul matmul(kernels::matmul_description<dnnl::matmul>(engine, attributes, a, b, c));
    return [=, &engine, &stream](const Operands& o) {
      matmul.execute(stream, {{DNNL_ARG_SRC, memory(a, engine, o.a)},
                              {DNNL_ARG_WEIGHTS, memory(b, engine, o.b)},
                              {DNNL_ARG_DST, memory(c, engine, o.c)}});
      stream.wait();
    };
  });
}
