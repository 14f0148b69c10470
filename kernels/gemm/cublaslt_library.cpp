#include "kernels/gemm/cublaslt_library.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "core/error.h"

namespace lockstep::kernels {
namespace {

// By the name that the loader knows, and where it was when this was built. As pointers, so that ci/gpu_build.sh finds
// the texts whole in a program.
constexpr std::array<const char*, 2> kPlaces{LOCKSTEP_CUBLASLT_NAME, LOCKSTEP_CUBLASLT_FILE};

// Those that we call.
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

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw core::Error(core::Failure::cuda, fmt::format("cuBLASLt has no {}", name));
}

Functions functions_of(void* library) {
  Functions found{};
  look_up(library, "cublasLtCreate", found.create);
  look_up(library, "cublasLtDestroy", found.destroy);
  look_up(library, "cublasLtGetStatusString", found.status_string);
  look_up(library, "cublasLtMatmul", found.matmul);
  look_up(library, "cublasLtMatmulAlgoGetHeuristic", found.heuristic);
  look_up(library, "cublasLtMatmulDescCreate", found.desc_create);
  look_up(library, "cublasLtMatmulDescDestroy", found.desc_destroy);
  look_up(library, "cublasLtMatmulDescSetAttribute", found.desc_set);
  look_up(library, "cublasLtMatmulPreferenceCreate", found.preference_create);
  look_up(library, "cublasLtMatmulPreferenceDestroy", found.preference_destroy);
  look_up(library, "cublasLtMatmulPreferenceSetAttribute", found.preference_set);
  look_up(library, "cublasLtMatrixLayoutCreate", found.layout_create);
  look_up(library, "cublasLtMatrixLayoutDestroy", found.layout_destroy);
  look_up(library, "cublasLtMatrixLayoutSetAttribute", found.layout_set);
  return found;
}

const Functions& functions() {
  static const Functions opened = functions_of(open_cublaslt(kPlaces));
  return opened;
}

}  // namespace

void* open_cublaslt(std::span<const char* const> places) {
  std::string reasons;
  for (const char* const place : places) {
    void* const library = dlopen(place, RTLD_LAZY | RTLD_LOCAL);
    if (library != nullptr) return library;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", dlerror());
  }
  throw core::Error(core::Failure::cuda,
                    fmt::format("cuBLASLt cannot be opened (its folder belongs into LD_LIBRARY_PATH): {}", reasons));
}

}  // namespace lockstep::kernels

// By the library's own names and types, so that who calls them cannot tell.
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
