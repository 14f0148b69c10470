#include "collectives/libraries/nccl_api.h"

#include <nccl.h>

#include <array>
#include <type_traits>

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

namespace {

// Calls the function of this name in the opened library, which is looked for once.
template <auto* kFunction, class... Args>
auto call(const char* name, Args... args) {
  static const auto found = lockstep::libraries::nccl_opened().find<std::remove_pointer_t<decltype(kFunction)>>(name);
  return found(args...);
}

}  // namespace

// Defined with the library's own names and types, so that callers see no difference.
ncclResult_t ncclGetVersion(int* version) {
  return call<ncclGetVersion>("ncclGetVersion", version);
}
const char* ncclGetErrorString(ncclResult_t result) {
  return call<ncclGetErrorString>("ncclGetErrorString", result);
}
const char* ncclGetLastError(ncclComm_t comm) {
  return call<ncclGetLastError>("ncclGetLastError", comm);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call<ncclGetUniqueId>("ncclGetUniqueId", id);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return call<ncclCommInitRankConfig>("ncclCommInitRankConfig", comm, ranks, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* joined, ncclConfig_t* config) {
  return call<ncclCommSplit>("ncclCommSplit", comm, color, key, joined, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return call<ncclCommGetAsyncError>("ncclCommGetAsyncError", comm, state);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return call<ncclCommAbort>("ncclCommAbort", comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return call<ncclCommDestroy>("ncclCommDestroy", comm);
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t size_bytes) {
  return call<ncclMemAlloc>("ncclMemAlloc", memory, size_bytes);
}
ncclResult_t ncclMemFree(void* memory) {
  return call<ncclMemFree>("ncclMemFree", memory);
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, std::size_t size_bytes, void** handle) {
  return call<ncclCommRegister>("ncclCommRegister", comm, memory, size_bytes, handle);
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return call<ncclCommDeregister>("ncclCommDeregister", comm, handle);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t size_bytes, ncclWindow_t* window,
                                    int flags) {
  return call<ncclCommWindowRegister>("ncclCommWindowRegister", comm, memory, size_bytes, window, flags);
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return call<ncclCommWindowDeregister>("ncclCommWindowDeregister", comm, window);
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call<ncclAllReduce>("ncclAllReduce", input, output, count, dtype, op, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call<ncclReduceScatter>("ncclReduceScatter", input, output, count, dtype, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclComm_t comm,
                           cudaStream_t stream) {
  return call<ncclAllGather>("ncclAllGather", input, output, count, dtype, comm, stream);
}
ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call<ncclBroadcast>("ncclBroadcast", input, output, count, dtype, root, comm, stream);
}
ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return call<ncclReduce>("ncclReduce", input, output, count, dtype, op, root, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* input, void* output, std::size_t count, ncclDataType_t dtype, ncclComm_t comm,
                          cudaStream_t stream) {
  return call<ncclAlltoAll>("ncclAlltoAll", input, output, count, dtype, comm, stream);
}
ncclResult_t ncclGather(const void* input, void* output, std::size_t count, ncclDataType_t dtype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call<ncclGather>("ncclGather", input, output, count, dtype, root, comm, stream);
}
ncclResult_t ncclScatter(const void* input, void* output, std::size_t count, ncclDataType_t dtype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return call<ncclScatter>("ncclScatter", input, output, count, dtype, root, comm, stream);
}

ncclResult_t ncclGroupStart() {
  return call<ncclGroupStart>("ncclGroupStart");
}
ncclResult_t ncclGroupEnd() {
  return call<ncclGroupEnd>("ncclGroupEnd");
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call<ncclSend>("ncclSend", from, count, dtype, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call<ncclRecv>("ncclRecv", to, count, dtype, peer, comm, stream);
}
