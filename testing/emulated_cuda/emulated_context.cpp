// The parts of CUDA's libraries that our kernels need on an emulated grid: CudaContext, whose memory is the host's,
// check_cuda, check_launch, a cuBLASLt that leaves all products to our own kernels, and no wgmma, which
// emulated_hopper.h has.
#include <algorithm>
#include <map>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/cuda_call.h"
#include "core/error.h"
#include "kernels/attention_decode/decode_tiles.h"
#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/moe/grouped_gemm.h"
#include "testing/emulated_cuda/emulated_grid.h"

namespace lockstep::core {

void check_cuda(int status, const char* call, CudaCaller /*place*/) {
  if (status != 0) throw Error(Failure::cuda, std::string(call) + " failed on the emulated device");
}

void check_launch(int status, const char* kernel, CudaCaller place, Stream& /*stream*/) {
  check_cuda(status, kernel, place);
}

bool launches_early() {
  return true;
}

}  // namespace lockstep::core

namespace lockstep::kernels {

struct CudaContext::State {
  core::Device& device;
  core::Stream& stream;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  std::map<std::type_index, std::shared_ptr<void>> kept = {};
};

CudaContext::CudaContext(core::Device& device, core::Stream& stream, int /*rank*/)
    : state_(std::make_unique<State>(State{.device = device, .stream = stream})) {}

CudaContext::~CudaContext() {
  if (state_->workspace != nullptr) state_->device.release(state_->workspace);
}

core::Device& CudaContext::device() const {
  return state_->device;
}

core::CudaCaller CudaContext::place() const {
  return {.rank = -1, .device = 0};
}

core::Stream& CudaContext::queue() const {
  return state_->stream;
}

void* CudaContext::stream() const {
  return nullptr;
}

// Few, so that threads and blocks take several rounds each.
int CudaContext::num_multiprocessors() const {
  return 1;
}

int CudaContext::compute_capability() const {
  return 80;
}

int CudaContext::most_cluster_blocks() const {
  return emulated::most_cluster_blocks();
}

// The content differs at each call, so that code that relies on it fails.
void* CudaContext::workspace(std::size_t size_bytes) {
  if (size_bytes > state_->workspace_bytes) {
    if (state_->workspace != nullptr) state_->device.release(state_->workspace);
    state_->workspace = state_->device.allocate(size_bytes);
    state_->workspace_bytes = size_bytes;
  }
  auto* const bytes = static_cast<std::byte*>(state_->workspace);
  std::fill(bytes, bytes + size_bytes, std::byte{0xff});
  return bytes;
}

std::shared_ptr<void>& CudaContext::kept_slot(std::type_index type) {
  return state_->kept[type];
}

struct CublasltGemm::State {};

CublasltGemm::CublasltGemm(CudaContext& /*cuda*/) {}
CublasltGemm::~CublasltGemm() = default;

bool CublasltGemm::run(const Product& /*product*/, void* /*workspace*/) {
  return false;
}

// attention_decode_emulated_test has the kernels on tensor cores.
bool takes_decode_tiles(const AttentionDecode& /*args*/, CudaContext& /*cuda*/) {
  return false;
}
template <class T>
void queue_decode_tiles(const DecodeOperands<T>& /*operands*/, std::int64_t /*blocks*/, std::int64_t /*table_entries*/,
                        CudaContext& /*cuda*/) {}
template void queue_decode_tiles(const DecodeOperands<__half>&, std::int64_t, std::int64_t, CudaContext&);
template void queue_decode_tiles(const DecodeOperands<__nv_bfloat16>&, std::int64_t, std::int64_t, CudaContext&);

// takes_wgmma() is false, as nobody chooses it.
void run_hopper_experts(const GroupedGemmForward& /*args*/, CudaContext& /*cuda*/) {}
void run_hopper_experts(const GroupedGemmInputGradient& /*args*/, CudaContext& /*cuda*/) {}
void run_hopper_experts(const GroupedGemmWeightGradient& /*args*/, CudaContext& /*cuda*/) {}

}  // namespace lockstep::kernels
