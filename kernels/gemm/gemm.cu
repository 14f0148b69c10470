#include "kernels/gemm/gemm.h"

#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/gemm/gemm_arguments.h"
#include "kernels/gemm/gemm_cublaslt.h"
#include "kernels/gemm/gemm_own.h"

namespace lockstep::kernels {
namespace {

// A product whose finish is a store or an addition.
void run_plain(const Product& product, void* cublaslt_workspace, CudaContext& cuda) {
  if (!cuda.kept<CublasltGemm>().run(product, cublaslt_workspace)) queue_plain_product(product, cuda);
}

// Runs the finish as a separate kernel on sums in f32, so that nothing is rounded twice.
void run_unfused(const Product& product, CudaContext& cuda) {
  const bool in_place = product.c.dtype == core::DType::f32;
  WorkspacePlan plan;
  const std::size_t for_cublaslt = plan.add(kCublasltWorkspaceBytes);
  const std::size_t for_sums = plan.add(in_place ? 0 : size_bytes(core::DType::f32, product.m * product.n));
  auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes()));
  Product sums = product;
  sums.c = {.data = in_place ? product.c.data : memory + for_sums, .dtype = core::DType::f32, .row_stride = product.n};
  run_plain(sums, memory + for_cublaslt, cuda);
  queue_finish(sums.c.as<float>(), product, cuda);
}

}  // namespace

void queue_product(const Product& product, CudaContext& cuda) {
  if (cuda.kept<CublasltGemm>().run(product, cuda.workspace(kCublasltWorkspaceBytes))) return;
  if (product.c.finish == Finish::store || product.c.finish == Finish::add) {
    queue_plain_product(product, cuda);
  } else {
    run_unfused(product, cuda);
  }
}

void run_cuda(const GemmForward& args, CudaContext& cuda) {
  queue_product(product_of(args), cuda);
}

void run_cuda(const GemmInputGradient& args, CudaContext& cuda) {
  queue_product(product_of(args), cuda);
}

void run_cuda(const GemmBatched& args, CudaContext& cuda) {
  queue_product(product_of(args), cuda);
}

// cuBLASLt can sum dy in the same pass (CUBLASLT_EPILOGUE_BGRADB), but cannot add to existing values, as dbias
// requires.
void run_cuda(const GemmWeightGradient& args, CudaContext& cuda) {
  const GemmShape& s = args.shape;
  WorkspacePlan plan;
  const std::size_t for_cublaslt = plan.add(kCublasltWorkspaceBytes);
  const std::size_t for_sums = plan.add(args.with_bias ? column_sums_bytes(s.rows, s.outputs, cuda) : 0);
  auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes()));
  run_plain(product_of(args), memory + for_cublaslt, cuda);
  if (!args.with_bias) return;
  queue_column_sums(rows_of(args.dy, s.outputs), s.rows, s.outputs, args.dbias.as<float>(), memory + for_sums, cuda);
}

}  // namespace lockstep::kernels
