#include "kernels/gemm/gemm_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/cuda_call.h"
#include "core/error.h"

namespace lockstep::kernels {
namespace {

constexpr int kMostCandidates = 8;
constexpr int kTimedRuns = 10;  // queued together, so that GPU time is measured and not CPU time

// Checks results of calls and names the rank in errors.
class Calls {
 public:
  explicit Calls(core::CudaCaller place) : place_(place) {}
  void operator()(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw core::Error(core::Failure::cuda, fmt::format("{} failed on rank {}, CUDA device {}: {}", call, place_.rank,
                                                       place_.device, cublasLtGetStatusString(status)));
  }
  void operator()(cudaError_t status, const char* call) const { core::check_cuda(status, call, place_); }

 private:
  core::CudaCaller place_;
};

// Owns one of cuBLASLt's descriptors, which are pointers that must be destroyed.
template <auto kDestroy>
struct Destroy {
  template <class T>
  void operator()(T* description) const {
    kDestroy(description);
  }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using MatmulDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

cudaDataType_t cuda_type(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32:
      return CUDA_R_32F;
    case core::DType::bf16:
      return CUDA_R_16BF;
    case core::DType::f16:
      return CUDA_R_16F;
    case core::DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case core::DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      LOCKSTEP_CHECK(false, "a factor's dtype");
  }
}

Layout make_layout(const Calls& check, core::DType dtype, const ColumnMatrix& m, std::int64_t batch) {
  cublasLtMatrixLayout_t layout_of_matrix = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout_of_matrix, cuda_type(dtype), static_cast<std::uint64_t>(m.rows),
                                   static_cast<std::uint64_t>(m.columns), m.leading),
        "cublasLtMatrixLayoutCreate");
  Layout layout(layout_of_matrix);
  if (batch == 1) return layout;
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(layout_of_matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "cublasLtMatrixLayoutSetAttribute(batch count)");
  check(cublasLtMatrixLayoutSetAttribute(layout_of_matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride,
                                         sizeof m.batch_stride),
        "cublasLtMatrixLayoutSetAttribute(batch offset)");
  return layout;
}

cublasLtEpilogue_t epilogue_of(Finish finish) {
  switch (finish) {
    case Finish::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Finish::bias_gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Finish::times_gelu_slope:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

template <class T>
void set(const Calls& check, const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

struct ScaleAttributes {
  cublasLtMatmulDescAttributes_t pointer;
  cublasLtMatmulDescAttributes_t mode;
};
void set_scales(const Calls& check, const MatmulDesc& desc, const ScaledBy& by, const ScaleAttributes& attributes) {
  if (by.scales == nullptr) return;
  set(check, desc, attributes.pointer, by.scales);
  set(check, desc, attributes.mode,
      by.for_each ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
}

MatmulDesc make_desc(const Calls& check, const Product& product, const ColumnProduct& columns) {
  cublasLtMatmulDesc_t descriptor = nullptr;
  check(cublasLtMatmulDescCreate(&descriptor, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  MatmulDesc desc(descriptor);
  const auto operation = [](const ColumnMatrix& m) { return m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(check, desc, CUBLASLT_MATMUL_DESC_TRANSA, operation(columns.first));
  set(check, desc, CUBLASLT_MATMUL_DESC_TRANSB, operation(columns.second));
  set_scales(check, desc, product.b.scaled_by,
             {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_A_SCALE_MODE});
  set_scales(check, desc, product.a.scaled_by,
             {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_MODE});
  const Sums& c = product.c;
  set(check, desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(c.finish));
  if (c.finish == Finish::bias || c.finish == Finish::bias_gelu) {
    set(check, desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.bias);
  }
  if (c.finish == Finish::bias_gelu || c.finish == Finish::times_gelu_slope) {
    const void* const pre = c.finish == Finish::bias_gelu ? c.pre_written : c.pre_read;
    set(check, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
    set(check, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, columns.result.leading);
  }
  return desc;
}

// A product as cuBLASLt's descriptors.
struct Described {
  Described(const Calls& check, const Product& product) : Described(check, product, in_columns(product)) {}
  Described(const Calls& check, const Product& product, const ColumnProduct& columns)
      : desc(make_desc(check, product, columns)),
        first(make_layout(check, product.b.dtype, columns.first, product.batch)),
        second(make_layout(check, product.a.dtype, columns.second, product.batch)),
        result(make_layout(check, product.c.dtype, columns.result, product.batch)) {}
  MatmulDesc desc;
  Layout first;
  Layout second;
  Layout result;
};

Preference make_preference(const Calls& check, const Product& product) {
  cublasLtMatmulPreference_t limits = nullptr;
  check(cublasLtMatmulPreferenceCreate(&limits), "cublasLtMatmulPreferenceCreate");
  Preference preference(limits);
  const auto put = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(limits, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  put(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kCublasltWorkspaceBytes});
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_bytes(product.b.data));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_bytes(product.a.data));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_bytes(product.c.data));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_bytes(product.c.data));
  return preference;
}

// Returns false for finishes that are left to our own kernels: GELU in f32, because cuBLASLt's accuracy is not
// documented (it is the tanh form, as PyTorch relies on in _addmm_activation); a pre-activation whose rows are not a
// multiple of 8 elements, which cuBLASLt refuses (cublasLt.h, EPILOGUE_AUX_LD); operands of an epilogue that are not
// 16-byte aligned, which the heuristic cannot take into account and which chosen kernels have been seen to load 16
// bytes at a time (pytorch/pytorch issue 194497); batches.
bool takes(const Product& product) {
  constexpr std::int64_t kMostBatch = std::numeric_limits<std::int32_t>::max();
  const Sums& c = product.c;
  const bool gelu = c.finish == Finish::bias_gelu || c.finish == Finish::times_gelu_slope;
  if (gelu && (c.dtype == core::DType::f32 || product.n % 8 != 0)) return false;
  constexpr std::uint32_t kVector = 16;
  for (const void* operand : {static_cast<const void*>(c.bias), static_cast<const void*>(c.pre_written),
                              static_cast<const void*>(c.pre_read)}) {
    if (operand != nullptr && alignment_bytes(operand) < kVector) return false;
  }
  const bool plain = c.finish == Finish::store || c.finish == Finish::add;
  return product.batch <= kMostBatch && (plain || product.batch == 1);
}

std::size_t result_bytes(const Product& product) {
  return core::size_of(product.c.dtype) * static_cast<std::size_t>(product.batch * product.m * product.n);
}

// Everything that affects an algorithm's speed or applicability.
using Key = std::pair<Product::Key, std::array<std::uint32_t, 6>>;
Key key_of(const Product& product) {
  const Sums& c = product.c;
  return {product.key(),
          {alignment_bytes(product.a.data), alignment_bytes(product.b.data), alignment_bytes(c.data),
           alignment_bytes(c.bias), alignment_bytes(c.pre_written), alignment_bytes(c.pre_read)}};
}

}  // namespace

struct CublasltGemm::State {
  explicit State(CudaContext& context) : cuda(context), check(context.place()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Destroying a handle may wait for the device and thus, in a rank that fails, for peers that wait for this rank.
  ~State() {
    if (handle_ != nullptr && std::uncaught_exceptions() == 0) cublasLtDestroy(handle_);
  }

  cublasLtHandle_t handle();
  std::vector<cublasLtMatmulAlgo_t> candidates(const Product& product, const Described& described);
  bool is_captured() const;
  cublasStatus_t queue(const Product& product, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                       void* workspace, void* result);
  double time_us(const Product& product, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                 void* workspace, void* result);
  std::optional<cublasLtMatmulAlgo_t> fastest(const Product& product, const Described& described,
                                              const std::vector<cublasLtMatmulAlgo_t>& algorithms, void* workspace);
  std::optional<cublasLtMatmulAlgo_t> algorithm_for(const Product& product, const Described& described,
                                                    void* workspace);

  CudaContext& cuda;
  Calls check;
  // nullopt: cuBLASLt cannot compute it.
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> kept;

 private:
  cublasLtHandle_t handle_ = nullptr;
};

cublasLtHandle_t CublasltGemm::State::handle() {
  if (handle_ == nullptr) check(cublasLtCreate(&handle_), "cublasLtCreate");
  return handle_;
}

std::vector<cublasLtMatmulAlgo_t> CublasltGemm::State::candidates(const Product& product, const Described& described) {
  const Preference preference = make_preference(check, product);
  std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(), described.desc.get(), described.first.get(), described.second.get(), described.result.get(),
      described.result.get(), preference.get(), kMostCandidates, found.data(), &count);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  // The manual leaves open which of the two is returned for a product that is not supported.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return algorithms;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i) {
    const auto& result = found.at(static_cast<std::size_t>(i));
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

bool CublasltGemm::State::is_captured() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(cuda.stream()), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

// Adding reads c and writes `result`, which is c except while algorithms are timed.
cublasStatus_t CublasltGemm::State::queue(const Product& product, const Described& described,
                                          const cublasLtMatmulAlgo_t& algorithm, void* workspace, void* result) {
  const float alpha = product.c.finish == Finish::store ? product.c.alpha : 1.0F;
  const float beta = product.c.finish == Finish::add ? 1.0F : 0.0F;
  return cublasLtMatmul(handle(), described.desc.get(), &alpha, product.b.data, described.first.get(), product.a.data,
                        described.second.get(), &beta, product.c.data, described.result.get(), result,
                        described.result.get(), &algorithm, workspace, kCublasltWorkspaceBytes,
                        static_cast<cudaStream_t>(cuda.stream()));
}

double CublasltGemm::State::time_us(const Product& product, const Described& described,
                                    const cublasLtMatmulAlgo_t& algorithm, void* workspace, void* result) {
  // The heuristic may propose an algorithm that then refuses; the first run is also the warm-up.
  const cublasStatus_t first = queue(product, described, algorithm, workspace, result);
  if (first != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<double>::infinity();
  const auto start = cuda.device().make_event();
  const auto end = cuda.device().make_event();
  start->record(cuda.queue());
  for (int i = 0; i < kTimedRuns; ++i) {
    check(queue(product, described, algorithm, workspace, result), "cublasLtMatmul");
  }
  end->record(cuda.queue());
  end->synchronize();
  return end->us_since(*start) / kTimedRuns;
}

std::optional<cublasLtMatmulAlgo_t> CublasltGemm::State::fastest(const Product& product, const Described& described,
                                                                 const std::vector<cublasLtMatmulAlgo_t>& algorithms,
                                                                 void* workspace) {
  // Timed runs that add must not add to c repeatedly.
  const bool aside = product.c.finish == Finish::add;
  core::Device& device = cuda.device();
  void* const result = aside ? device.allocate(result_bytes(product)) : product.c.data;
  std::vector<double> times_us;
  for (const auto& algorithm : algorithms) {
    times_us.push_back(time_us(product, described, algorithm, workspace, result));
  }
  if (aside) device.release(result);
  const int chosen = choose_algorithm(times_us);
  if (chosen < 0) return std::nullopt;
  return algorithms.at(static_cast<std::size_t>(chosen));
}

std::optional<cublasLtMatmulAlgo_t> CublasltGemm::State::algorithm_for(const Product& product,
                                                                       const Described& described, void* workspace) {
  const Key key = key_of(product);
  if (const auto known = kept.find(key); known != kept.end()) return known->second;
  const auto algorithms = candidates(product, described);
  if (!algorithms.empty() && (product.varies || is_captured())) return algorithms.front();
  return kept.emplace(key, fastest(product, described, algorithms, workspace)).first->second;
}

CublasltGemm::CublasltGemm(CudaContext& cuda) : state_(std::make_unique<State>(cuda)) {}
CublasltGemm::~CublasltGemm() = default;

bool CublasltGemm::run(const Product& product, void* workspace) {
  if (!takes(product)) return false;
  const Described described(state_->check, product);
  const auto algorithm = state_->algorithm_for(product, described, workspace);
  if (!algorithm) return false;
  state_->check(state_->queue(product, described, *algorithm, workspace, product.c.data), "cublasLtMatmul");
  core::check_launch(cudaSuccess, "cublasLtMatmul", state_->cuda.place(), state_->cuda.queue());
  return true;
}

}  // namespace lockstep::kernels
