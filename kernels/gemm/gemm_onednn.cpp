// Products by oneDNN's matmul. Strides and transposed orders are described, not copied. Debian's oneDNN is built on
// OpenMP: each of the pool's threads has its own engine, stream and primitives, and sets OpenMP to start no other
// threads.
#include <dnnl.hpp>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "kernels/gemm/gemm_product.h"
#include "kernels/gemm/onednn_matmul.h"

extern "C" void omp_set_num_threads(int threads);  // OpenMP 5.0, section 3.2.1; affects the calling thread

namespace lockstep::kernels {
namespace {

using Dims = dnnl::memory::dims;

dnnl::memory::data_type type_of(core::DType dtype) {
  return dtype == core::DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc description(std::int64_t rows, std::int64_t columns, const Factor& x) {
  return {Dims{rows, columns}, type_of(x.dtype), Dims{x.row_stride, x.column_stride}};
}

// Finishes that oneDNN lacks are a pass of ours: oneDNN then writes f32 to our memory.
bool finishes_itself(const Sums& c) {
  return (c.finish == Finish::store && c.alpha == 1) || c.finish == Finish::bias || c.finish == Finish::add;
}

dnnl::primitive_attr attributes_of(const Product& product) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (product.c.finish == Finish::add) {
    dnnl::post_ops post;
    post.append_sum(1.0F);
    attributes.set_post_ops(post);
  }
  return attributes;
}

// A primitive for one shape, and the memory objects that hold its arguments.
class Matmul {
 public:
  Matmul(const Product& product, bool finish, const dnnl::engine& engine)
      : a_(description(product.m, product.k, product.a), engine, nullptr),
        b_(description(product.k, product.n, product.b), engine, nullptr),
        c_(result(product, finish), engine, nullptr),
        bias_({{1, product.n}, type_of(product.c.dtype), Dims{product.n, 1}}, engine, nullptr),
        with_bias_(product.c.finish == Finish::bias) {
    const auto attributes = attributes_of(product);
    const auto described_with = [&](const auto&... operands) {
      return matmul_description<dnnl::matmul>(engine, attributes, operands.get_desc()...);
    };
    const auto described = with_bias_ ? described_with(a_, b_, bias_, c_) : described_with(a_, b_, c_);
    scratchpad_ = dnnl::memory(described.scratchpad_desc(), engine);
    primitive_ = dnnl::matmul(described);
  }

  void run(const Product& product, void* result, const dnnl::stream& stream) {
    a_.set_data_handle(const_cast<void*>(product.a.data));
    b_.set_data_handle(const_cast<void*>(product.b.data));
    c_.set_data_handle(result);
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (with_bias_) {
      bias_.set_data_handle(const_cast<void*>(product.c.bias));
      arguments.emplace(DNNL_ARG_BIAS, bias_);
    }
    primitive_.execute(stream, arguments);
  }

 private:
  static dnnl::memory::desc result(const Product& product, bool finish) {
    const Dims shape{product.m, product.n};
    if (finish) return {shape, type_of(product.c.dtype), Dims{product.c.row_stride, 1}};
    return {shape, dnnl::memory::data_type::f32, Dims{product.n, 1}};
  }

  dnnl::memory a_, b_, c_, bias_, scratchpad_;
  bool with_bias_;
  dnnl::primitive primitive_;
};

// State of one thread of the pool.
class Worker {
 public:
  Worker() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) { omp_set_num_threads(1); }

  void run(const Product& product, ThreadPool& pool, int thread) {
    const bool finish = finishes_itself(product.c);
    const auto elems = static_cast<std::size_t>(product.m * product.n);
    void* const result = finish ? product.c.data : pool.scratch_of<float>(thread, elems).data();
    matmul_of(product, finish).run(product, result, stream_);
    if (!finish) finish_sums(product.c, static_cast<const float*>(result), product.n, product.m, product.n);
  }

 private:
  // Parts of a product have its strides but not its columns, so strides are in the key. The key also has who finishes:
  // this decides the result's type, and it depends on alpha, which Product::Key does not contain.
  using Key = std::tuple<Product::Key, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

  Matmul& matmul_of(const Product& product, bool finish) {
    const Key key{product.key(),        finish,
                  product.a.row_stride, product.a.column_stride,
                  product.b.row_stride, product.b.column_stride,
                  product.c.row_stride};
    const auto known = matmuls_.find(key);
    if (known != matmuls_.end()) return *known->second;
    return *matmuls_.emplace(key, std::make_unique<Matmul>(product, finish, engine_)).first->second;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, std::unique_ptr<Matmul>> matmuls_;
};

// oneDNN multiplies bf16 only if the CPU has the instructions it requires: AVX-512 or AVX-NE-CONVERT.
bool multiplies_bf16() {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc matrix{Dims{32, 32}, dnnl::memory::data_type::bf16, Dims{32, 1}};
  try {
    matmul_description<dnnl::matmul>(engine, dnnl::primitive_attr(), matrix, matrix, matrix);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

class OneDnnGemm : public GemmImplementation {
 public:
  explicit OneDnnGemm(int num_threads) : workers_(static_cast<std::size_t>(num_threads)) {}
  std::string_view name() const override { return "onednn"; }
  bool can(core::DType dtype) const override {
    return dtype == core::DType::f32 || (dtype == core::DType::bf16 && bf16_);
  }

  void run(const Product& product, ThreadPool& pool, int thread) override {
    auto& worker = workers_.at(static_cast<std::size_t>(thread));
    try {
      if (!worker) worker = std::make_unique<Worker>();
      worker->run(product, pool, thread);
    } catch (const dnnl::error& error) {
      throw core::Error(core::Failure::internal, "oneDNN's matmul: " + std::string(error.what()));
    }
  }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;  // [thread], made by that thread
  bool bf16_ = multiplies_bf16();
};

}  // namespace

std::unique_ptr<GemmImplementation> make_onednn_gemm(int num_threads) {
  return std::make_unique<OneDnnGemm>(num_threads);
}

}  // namespace lockstep::kernels
