#include "core/cuda_multicast.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lockstep::core {
namespace {

constexpr unsigned kCudaOfCalls = 12010;  // the first that has them: 12.1

// The driver is asked for its calls when they are needed: programs start where there is none.
template <class Function>
Function* driver_call(CudaPlace place, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, kCudaOfCalls, cudaEnableDefault, &answer), name, place);
  if (answer != cudaDriverEntryPointSuccess) throw Error(Failure::cuda, fmt::format("the CUDA driver has no {}", name));
  return reinterpret_cast<Function*>(found);
}

void check_driver(CudaPlace place, const char* name, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver_call<decltype(cuGetErrorString)>(place, "cuGetErrorString")(result, &text);
  throw Error(Failure::cuda, fmt::format("{}: rank {}, CUDA device {}: {}", name, place.rank, place.device,
                                         text == nullptr ? "unknown error" : text));
}

template <class Function, class... Arguments>
void call(CudaPlace place, const char* name, Arguments... arguments) {
  check_driver(place, name, driver_call<Function>(place, name)(arguments...));
}

// In destructors, where a device that has failed has said so before.
template <class Function, class... Arguments>
void call_at_the_end(CudaPlace place, const char* name, Arguments... arguments) noexcept {
  try {
    call<Function>(place, name, arguments...);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

void activate(CudaPlace place) {
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice", place);
}

CUdevice driver_device(CudaPlace place) {
  CUdevice device = 0;
  call<decltype(cuDeviceGet)>(place, "cuDeviceGet", &device, place.device);
  return device;
}

CUmemAllocationProp memory_on(int device) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  return wanted;
}

CUmulticastObjectProp team_of(std::size_t devices, std::size_t size_bytes) {
  CUmulticastObjectProp wanted{};
  wanted.numDevices = static_cast<unsigned>(devices);
  wanted.size = size_bytes;
  return wanted;
}

std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

// The granularity that both the multicast object and memory on every device of the team can be cut into.
std::size_t granularity(CudaPlace place, const std::vector<int>& devices, std::size_t size_bytes) {
  const CUmulticastObjectProp team = team_of(devices.size(), size_bytes);
  std::size_t largest = 0;
  call<decltype(cuMulticastGetGranularity)>(place, "cuMulticastGetGranularity", &largest, &team,
                                            CU_MULTICAST_GRANULARITY_RECOMMENDED);
  for (const int device : devices) {
    const CUmemAllocationProp memory = memory_on(device);
    std::size_t its = 0;
    call<decltype(cuMemGetAllocationGranularity)>(place, "cuMemGetAllocationGranularity", &its, &memory,
                                                  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    largest = std::max(largest, its);  // powers of two
  }
  return largest;
}

CUdeviceptr address_of(const std::byte* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

}  // namespace

bool cuda_has_multicast(int device) {
  const CudaPlace place{.rank = -1, .device = device};
  activate(place);
  int has = 0;
  call<decltype(cuDeviceGetAttribute)>(place, "cuDeviceGetAttribute", &has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
                                       driver_device(place));
  return has != 0;
}

MulticastTeam::MulticastTeam(CudaPlace place, std::vector<int> devices, std::size_t size_bytes)
    : place_(place), devices_(std::move(devices)) {
  activate(place);
  const std::size_t piece = granularity(place, devices_, rounded_up(size_bytes, std::size_t{2} << 20));
  size_bytes_ = rounded_up(std::max(size_bytes, std::size_t{1}), piece);
  const CUmulticastObjectProp wanted = team_of(devices_.size(), size_bytes_);
  CUmemGenericAllocationHandle made = 0;
  call<decltype(cuMulticastCreate)>(place, "cuMulticastCreate", &made, &wanted);
  handle_ = made;
}

MulticastTeam::~MulticastTeam() {
  call_at_the_end<decltype(cuMemRelease)>(place_, "cuMemRelease", handle_);
}

MulticastReplica::MulticastReplica(CudaPlace place, std::shared_ptr<const MulticastTeam> team)
    : place_(place), team_(std::move(team)) {
  activate(place);
  driver_device_ = driver_device(place);
  call<decltype(cuMulticastAddDevice)>(place, "cuMulticastAddDevice", team_->handle(), driver_device_);
}

void MulticastReplica::bind() {
  const std::size_t size_bytes = team_->size_bytes();
  const CUmemAllocationProp wanted = memory_on(place_.device);
  activate(place_);
  CUmemGenericAllocationHandle made = 0;
  call<decltype(cuMemCreate)>(place_, "cuMemCreate", &made, size_bytes, &wanted, 0ULL);
  handle_ = made;
  call<decltype(cuMulticastBindMem)>(place_, "cuMulticastBindMem", team_->handle(), std::size_t{0}, handle_,
                                     std::size_t{0}, size_bytes, 0ULL);
  bound_ = true;
  map(memory_, handle_, team_->devices());
  map(multicast_, team_->handle(), {place_.device});
}

MulticastReplica::~MulticastReplica() {
  unmap(multicast_);
  unmap(memory_);
  if (bound_) {
    call_at_the_end<decltype(cuMulticastUnbind)>(place_, "cuMulticastUnbind", team_->handle(), driver_device_,
                                                 std::size_t{0}, team_->size_bytes());
  }
  if (handle_ != 0) call_at_the_end<decltype(cuMemRelease)>(place_, "cuMemRelease", handle_);
}

void MulticastReplica::map(Mapping& mapping, std::uint64_t handle, const std::vector<int>& devices) {
  const std::size_t size_bytes = team_->size_bytes();
  CUdeviceptr begin = 0;
  call<decltype(cuMemAddressReserve)>(place_, "cuMemAddressReserve", &begin, size_bytes, std::size_t{0}, CUdeviceptr{0},
                                      0ULL);
  mapping.begin = reinterpret_cast<std::byte*>(begin);  // NOLINT(performance-no-int-to-ptr)
  call<decltype(cuMemMap)>(place_, "cuMemMap", begin, size_bytes, std::size_t{0}, handle, 0ULL);
  mapping.mapped = true;
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    CUmemAccessDesc of_one{};
    of_one.location = memory_on(device).location;
    of_one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(of_one);
  }
  call<decltype(cuMemSetAccess)>(place_, "cuMemSetAccess", begin, size_bytes, access.data(), access.size());
}

void MulticastReplica::unmap(Mapping& mapping) {
  if (mapping.begin == nullptr) return;
  const CUdeviceptr begin = address_of(mapping.begin);
  if (mapping.mapped) call_at_the_end<decltype(cuMemUnmap)>(place_, "cuMemUnmap", begin, team_->size_bytes());
  call_at_the_end<decltype(cuMemAddressFree)>(place_, "cuMemAddressFree", begin, team_->size_bytes());
}

}  // namespace lockstep::core
