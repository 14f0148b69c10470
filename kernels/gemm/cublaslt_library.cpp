// cuBLASLt is opened at run time, by the first product on a GPU. It takes 50 to 80 ms to load (25,000 pages of
// relocations), which would delay every start of every program, even without a GPU; and programs that were built with
// CUDA can run where it is not installed.
#include <cublasLt.h>

#include <array>

#include "core/open_library.h"

namespace lockstep::kernels {
namespace {

// The name that the loader knows, and the file's path at build time. These are pointers, so that ci/gpu_build.sh finds
// the complete strings in a program.
constexpr std::array<const char*, 2> kPlaces{LOCKSTEP_CUBLASLT_NAME, LOCKSTEP_CUBLASLT_FILE};

// The functions that we call.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
};

Functions functions_of(const core::OpenedLibrary& library) {
  return {
      .create = library.find<decltype(cublasLtCreate)>("cublasLtCreate"),
      .destroy = library.find<decltype(cublasLtDestroy)>("cublasLtDestroy"),
      .status_string = library.find<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString"),
      .matmul = library.find<decltype(cublasLtMatmul)>("cublasLtMatmul"),
      .heuristic = library.find<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic"),
      .desc_create = library.find<decltype(cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate"),
      .desc_destroy = library.find<decltype(cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy"),
      .desc_set = library.find<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute"),
      .preference_create = library.find<decltype(cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate"),
      .preference_destroy = library.find<decltype(cublasLtMatmulPreferenceDestroy)>("cublasLtMatmulPreferenceDestroy"),
      .preference_set =
          library.find<decltype(cublasLtMatmulPreferenceSetAttribute)>("cublasLtMatmulPreferenceSetAttribute"),
      .layout_create = library.find<decltype(cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate"),
      .layout_destroy = library.find<decltype(cublasLtMatrixLayoutDestroy)>("cublasLtMatrixLayoutDestroy"),
      .layout_set = library.find<decltype(cublasLtMatrixLayoutSetAttribute)>("cublasLtMatrixLayoutSetAttribute"),
  };
}

const Functions& functions() {
  static const Functions opened = functions_of(core::OpenedLibrary("cuBLASLt", core::Failure::cuda, kPlaces));
  return opened;
}

}  // namespace
}  // namespace lockstep::kernels

// Defined with the library's own names and types, so that callers need not know.
using lockstep::kernels::functions;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return functions().create(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return functions().destroy(handle);
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return functions().status_string(status);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  return functions().matmul(handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                            workspace, workspace_bytes, stream);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return functions().heuristic(handle, desc, a, b, c, d, preference, wanted, results, found);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return functions().desc_create(desc, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return functions().desc_destroy(desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t size_bytes) {
  return functions().desc_set(desc, attribute, value, size_bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return functions().preference_create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return functions().preference_destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t size_bytes) {
  return functions().preference_set(preference, attribute, value, size_bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  return functions().layout_create(layout, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return functions().layout_destroy(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t size_bytes) {
  return functions().layout_set(layout, attribute, value, size_bytes);
}
