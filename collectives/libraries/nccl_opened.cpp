#include "collectives/libraries/nccl_api.h"

#include <nccl.h>

#include <array>

#include "collectives/libraries/nccl_rules.h"

namespace lockstep::libraries {
namespace {

// Tried in this order: the name that the loader knows, then the path at build time. They are pointers, so that
// ci/gpu_build.sh finds the texts unbroken in a program.
constexpr std::array<const char*, 2> kPlaces{LOCKSTEP_NCCL_NAME, LOCKSTEP_NCCL_FILE};

core::OpenedLibrary open_nccl() {
  core::OpenedLibrary opened("NCCL", core::Failure::nccl, kPlaces);
  int version_code = 0;
  opened.find<decltype(ncclGetVersion)>("ncclGetVersion")(&version_code);
  if (const auto why = version_refusal(version_code)) throw core::Error(core::Failure::nccl, *why);
  return opened;
}

}  // namespace

const core::OpenedLibrary& nccl_opened() {
  static const core::OpenedLibrary opened = open_nccl();
  return opened;
}

}  // namespace lockstep::libraries

using lockstep::libraries::nccl_opened;

// Defined with the library's own names and types, so that callers see no difference.
ncclResult_t ncclGetVersion(int* version) {
  static const auto call = nccl_opened().find<decltype(ncclGetVersion)>("ncclGetVersion");
  return call(version);
}
const char* ncclGetErrorString(ncclResult_t result) {
  static const auto call = nccl_opened().find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  return call(result);
}
const char* ncclGetLastError(ncclComm_t comm) {
  static const auto call = nccl_opened().find<decltype(ncclGetLastError)>("ncclGetLastError");
  return call(comm);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static const auto call = nccl_opened().find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  return call(id);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  static const auto call = nccl_opened().find<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  return call(comm, ranks, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  static const auto call = nccl_opened().find<decltype(ncclCommSplit)>("ncclCommSplit");
  return call(comm, color, key, made, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  static const auto call = nccl_opened().find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  return call(comm, state);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static const auto call = nccl_opened().find<decltype(ncclCommAbort)>("ncclCommAbort");
  return call(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static const auto call = nccl_opened().find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  return call(comm);
}

ncclResult_t ncclMemAlloc(void** made, std::size_t size_bytes) {
  static const auto call = nccl_opened().find<decltype(ncclMemAlloc)>("ncclMemAlloc");
  return call(made, size_bytes);
}
ncclResult_t ncclMemFree(void* memory) {
  static const auto call = nccl_opened().find<decltype(ncclMemFree)>("ncclMemFree");
  return call(memory);
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, std::size_t size_bytes, void** handle) {
  static const auto call = nccl_opened().find<decltype(ncclCommRegister)>("ncclCommRegister");
  return call(comm, memory, size_bytes, handle);
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  static const auto call = nccl_opened().find<decltype(ncclCommDeregister)>("ncclCommDeregister");
  return call(comm, handle);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t size_bytes, ncclWindow_t* window,
                                    int flags) {
  static const auto call = nccl_opened().find<decltype(ncclCommWindowRegister)>("ncclCommWindowRegister");
  return call(comm, memory, size_bytes, window, flags);
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  static const auto call = nccl_opened().find<decltype(ncclCommWindowDeregister)>("ncclCommWindowDeregister");
  return call(comm, window);
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclAllReduce)>("ncclAllReduce");
  return call(input, output, count, dtype, op, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclReduceScatter)>("ncclReduceScatter");
  return call(input, output, count, dtype, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclComm_t comm,
                           cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclAllGather)>("ncclAllGather");
  return call(input, output, count, dtype, comm, stream);
}
ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclBroadcast)>("ncclBroadcast");
  return call(input, output, count, dtype, root, comm, stream);
}
ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclReduce)>("ncclReduce");
  return call(input, output, count, dtype, op, root, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclComm_t comm,
                          cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclAlltoAll)>("ncclAlltoAll");
  return call(input, output, count, dtype, comm, stream);
}
ncclResult_t ncclGather(const void* input, void* output, std::size_t count, ncclDataType_t dtype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclGather)>("ncclGather");
  return call(input, output, count, dtype, root, comm, stream);
}
ncclResult_t ncclScatter(const void* input, void* output, std::size_t count, ncclDataType_t dtype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclScatter)>("ncclScatter");
  return call(input, output, count, dtype, root, comm, stream);
}

ncclResult_t ncclGroupStart() {
  static const auto call = nccl_opened().find<decltype(ncclGroupStart)>("ncclGroupStart");
  return call();
}
ncclResult_t ncclGroupEnd() {
  static const auto call = nccl_opened().find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  return call();
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclSend)>("ncclSend");
  return call(from, count, dtype, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  static const auto call = nccl_opened().find<decltype(ncclRecv)>("ncclRecv");
  return call(to, count, dtype, peer, comm, stream);
}
