#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm_cuda.h"

namespace lockstep::kernels {
namespace {

// Memory for decoded factors, separate because products use the context's workspace. It grows, but is never moved while
// graphs may refer to it: smaller buffers are kept to the end.
class DecodedFactors {
 public:
  explicit DecodedFactors(CudaContext& cuda) : device_(cuda.device()) {}
  ~DecodedFactors() {
    for (void* const memory : all_) device_.release(memory);
  }
  DecodedFactors(const DecodedFactors&) = delete;
  DecodedFactors& operator=(const DecodedFactors&) = delete;

  std::byte* memory(std::size_t size_bytes) {
    if (size_bytes > size_bytes_) {
      size_bytes_ = std::max(size_bytes, 2 * size_bytes_);
      all_.push_back(device_.allocate(size_bytes_));
    }
    return static_cast<std::byte*>(all_.back());
  }

 private:
  core::Device& device_;
  std::vector<void*> all_;
  std::size_t size_bytes_ = 0;
};

ScaledBy scaled_by(ScalePer per, const In& scales) {
  return {.scales = scales.as<float>(), .for_each = per == ScalePer::row};
}

In decoded(Fp8Decode codes, core::DType dtype, std::byte* memory, CudaContext& cuda) {
  codes.y = {memory, dtype, codes.codes.elems};
  run_cuda(codes, cuda);
  return {memory, dtype, codes.y.elems};
}

// Multiplies codes if cuBLASLt can; otherwise the numbers that they decode to, in `dtype`.
template <class Args>
void run_product(const Args& args, core::DType dtype, CudaContext& cuda) {
  const Fp8Product& s = args.shape;
  const bool has_scales = s.a_per <= ScalePer::row && s.b_per <= ScalePer::row;
  if (has_scales) {
    Product codes = product_of(args, args.a, args.b);
    codes.a.scaled_by = scaled_by(s.a_per, args.a_scales);
    codes.b.scaled_by = scaled_by(s.b_per, args.b_scales);
    if (cuda.kept<CublasltGemm>().run(codes, cuda.workspace(kCublasltWorkspaceBytes))) return;
  }
  WorkspacePlan plan;
  const std::size_t for_a = plan.add(size_bytes(dtype, args.a.elems));
  const std::size_t for_b = plan.add(size_bytes(dtype, args.b.elems));
  std::byte* const memory = cuda.kept<DecodedFactors>().memory(plan.total_bytes());
  const In a = decoded(decode_of_a(args), dtype, memory + for_a, cuda);
  const In b = decoded(decode_of_b(args), dtype, memory + for_b, cuda);
  queue_product(product_of(args, a, b), cuda);
}

}  // namespace

void run_cuda(const GemmFp8& args, CudaContext& cuda) {
  run_product(args, args.y.dtype, cuda);
}

void run_cuda(const GemmFp8Add& args, CudaContext& cuda) {
  run_product(args, core::DType::bf16, cuda);
  if (!args.with_bias) return;
  const Fp8Product& s = args.shape;
  void* const partial_sums = cuda.workspace(column_sums_bytes(s.k, s.m, cuda));
  queue_column_sums(rows_of(args.dy, s.m), s.k, s.m, args.dbias.as<float>(), partial_sums, cuda);
}

}  // namespace lockstep::kernels
