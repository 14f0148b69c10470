// A stand-in for NCCL in dry runs: every call succeeds and moves nothing. Has the functions that
// collectives/libraries/nccl_opened.cpp looks up.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdlib>

namespace {

constexpr int kVersion = NCCL_VERSION(2, 30, 0);
// ci/gpu_check.sh reads the version in the file.
[[gnu::used]] constexpr char kVersionText[] = "NCCL version 2.30.0 (stand-in)";

template <class Handle>
ncclResult_t make(Handle* handle) {
  *handle = reinterpret_cast<Handle>(std::malloc(1));
  return ncclSuccess;
}
template <class Handle>
ncclResult_t destroy(Handle handle) {
  std::free(reinterpret_cast<void*>(handle));
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = kVersion;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t /*result*/) {
  return kVersionText;
}
const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int /*ranks*/, ncclUniqueId /*id*/, int /*rank*/,
                                    ncclConfig_t* /*config*/) {
  return make(comm);
}
ncclResult_t ncclCommSplit(ncclComm_t /*comm*/, int color, int /*key*/, ncclComm_t* joined, ncclConfig_t* /*config*/) {
  *joined = nullptr;
  return color == NCCL_SPLIT_NOCOLOR ? ncclSuccess : make(joined);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return destroy(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return destroy(comm);
}
ncclResult_t ncclMemAlloc(void** memory, std::size_t size_bytes) {
  return cudaMalloc(memory, size_bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(const ncclComm_t /*comm*/, void* /*memory*/, std::size_t /*size_bytes*/, void** handle) {
  return make(handle);
}
ncclResult_t ncclCommDeregister(const ncclComm_t /*comm*/, void* handle) {
  return destroy(handle);
}
ncclResult_t ncclCommWindowRegister(ncclComm_t /*comm*/, void* /*memory*/, std::size_t /*size_bytes*/,
                                    ncclWindow_t* window, int /*flags*/) {
  return make(window);
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t /*comm*/, ncclWindow_t window) {
  return destroy(window);
}
ncclResult_t ncclAllReduce(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                           ncclRedOp_t /*op*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                               ncclRedOp_t /*op*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                           ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                           int /*root*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclReduce(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                        ncclRedOp_t /*op*/, int /*root*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclAlltoAll(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                          ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclGather(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                        int /*root*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclScatter(const void* /*input*/, void* /*output*/, std::size_t /*count*/, ncclDataType_t /*dtype*/,
                         int /*root*/, ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* /*from*/, std::size_t /*count*/, ncclDataType_t /*dtype*/, int /*peer*/,
                      ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* /*to*/, std::size_t /*count*/, ncclDataType_t /*dtype*/, int /*peer*/, ncclComm_t /*comm*/,
                      cudaStream_t /*stream*/) {
  return ncclSuccess;
}
