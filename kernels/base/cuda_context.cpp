#include "kernels/base/cuda_context.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/device.h"
#include "core/error.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kLeastWorkspaceBytes = std::size_t{8} << 20;
constexpr int kPortableClusterBlocks = 8;  // CUDA C++ Programming Guide, Thread Block Clusters

int attribute_of(core::CudaCaller place, cudaDeviceAttr attribute) {
  int value = 0;
  core::check_cuda(cudaDeviceGetAttribute(&value, attribute, place.device), "cudaDeviceGetAttribute", place);
  return value;
}

}  // namespace

struct CudaContext::State {
  core::Device& device;
  core::Stream& stream;
  core::CudaCaller place;
  int num_multiprocessors;
  int compute_capability;
  int most_cluster_blocks;
  std::vector<void*> workspaces = {};  // the last one is in use
  std::size_t workspace_bytes = 0;     // size of the last one
  std::map<std::type_index, std::shared_ptr<void>> kept = {};

  cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }
  void grow(std::size_t size_bytes);
};

void CudaContext::State::grow(std::size_t size_bytes) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  core::check_cuda(cudaStreamIsCapturing(native(), &capture), "cudaStreamIsCapturing", place);
  if (capture != cudaStreamCaptureStatusNone) {
    throw core::Error(
        core::Failure::cuda,
        fmt::format("rank {}, CUDA device {}: a kernel that is captured needs a workspace of {} bytes, and "
                    "it has {}: run it once before the capture",
                    place.rank, place.device, size_bytes, workspace_bytes));
  }
  const std::size_t grown_bytes = std::max({size_bytes, 2 * workspace_bytes, kLeastWorkspaceBytes});
  workspaces.push_back(device.allocate(grown_bytes));
  workspace_bytes = grown_bytes;
}

CudaContext::CudaContext(core::Device& device, core::Stream& stream, int rank) {
  const core::CudaCaller place{.rank = rank, .device = device.index()};
  const bool clusters = attribute_of(place, cudaDevAttrClusterLaunch) != 0;
  state_ =
      std::make_unique<State>(State{.device = device,
                                    .stream = stream,
                                    .place = place,
                                    .num_multiprocessors = attribute_of(place, cudaDevAttrMultiProcessorCount),
                                    .compute_capability = 10 * attribute_of(place, cudaDevAttrComputeCapabilityMajor) +
                                                          attribute_of(place, cudaDevAttrComputeCapabilityMinor),
                                    .most_cluster_blocks = clusters ? kPortableClusterBlocks : 1});
}

CudaContext::~CudaContext() {
  state_->kept.clear();
  try {
    for (void* memory : state_->workspaces) state_->device.release(memory);
  } catch (const core::Error&) {
    // The device failed before; its memory is freed with the process.
  }
}

core::Device& CudaContext::device() const {
  return state_->device;
}

core::CudaCaller CudaContext::place() const {
  return state_->place;
}

core::Stream& CudaContext::queue() const {
  return state_->stream;
}

void* CudaContext::stream() const {
  return state_->stream.native();
}

int CudaContext::num_multiprocessors() const {
  return state_->num_multiprocessors;
}

int CudaContext::compute_capability() const {
  return state_->compute_capability;
}

int CudaContext::most_cluster_blocks() const {
  return state_->most_cluster_blocks;
}

void* CudaContext::workspace(std::size_t size_bytes) {
  if (size_bytes > state_->workspace_bytes) state_->grow(size_bytes);
  return state_->workspaces.empty() ? nullptr : state_->workspaces.back();
}

std::shared_ptr<void>& CudaContext::kept_slot(std::type_index type) {
  return state_->kept[type];
}

void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes) {
  cuda.device().copy_on(cuda.queue(), to, from, size_bytes);
}

}  // namespace lockstep::kernels
