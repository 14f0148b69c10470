// A stand-in for cuBLASLt in dry runs: every product succeeds and computes nothing. With STAND_IN_PRODUCTS=ours it
// finds no algorithm for any product, so that our own kernels compute them. Has the functions that
// kernels/gemm/cublaslt_library.cpp looks up.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

// Handles and descriptions are never looked into.
template <class Handle>
cublasStatus_t make(Handle* handle) {
  *handle = reinterpret_cast<Handle>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Handle>
cublasStatus_t destroy(Handle handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return make(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle);
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "a status of the stand-in";
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*desc*/, const void* /*alpha*/,
                              const void* /*a*/, cublasLtMatrixLayout_t /*a_layout*/, const void* /*b*/,
                              cublasLtMatrixLayout_t /*b_layout*/, const void* /*beta*/, const void* /*c*/,
                              cublasLtMatrixLayout_t /*c_layout*/, void* d, cublasLtMatrixLayout_t /*d_layout*/,
                              const cublasLtMatmulAlgo_t* /*algorithm*/, void* /*workspace*/,
                              std::size_t /*workspace_bytes*/, cudaStream_t stream) {
  // Some work: graphs of products take time, however little.
  return cudaMemsetAsync(d, 0, 1, stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*desc*/,
                                              cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                              cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                              cublasLtMatmulPreference_t /*preference*/, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  const char* const products = std::getenv("STAND_IN_PRODUCTS");
  *found = wanted > 0 && (products == nullptr || std::string_view(products) != "ours") ? 1 : 0;
  if (*found > 0) results[0] = {};  // state: success; no workspace
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t /*compute*/,
                                        cudaDataType_t /*scale*/) {
  return make(desc);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy(desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t /*desc*/,
                                              cublasLtMatmulDescAttributes_t /*attribute*/, const void* /*value*/,
                                              std::size_t /*size_bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return make(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t /*attribute*/,
                                                    const void* /*value*/, std::size_t /*size_bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType /*type*/, std::uint64_t /*rows*/,
                                          std::uint64_t /*columns*/, std::int64_t /*leading*/) {
  return make(layout);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t /*layout*/,
                                                cublasLtMatrixLayoutAttribute_t /*attribute*/, const void* /*value*/,
                                                std::size_t /*size_bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}
