// The calls that came with NCCL 2.28. The library that is opened may be older than the header.
#include <nccl.h>

#include "collectives/libraries/nccl_calls.h"
#include "collectives/libraries/nccl_opened.h"

using lockstep::libraries::nccl_opened;

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

namespace lockstep::libraries {
namespace {

using collectives::Kind;

ncclDataType_t dtype_of(const NcclArguments& a) {
  return static_cast<ncclDataType_t>(a.dtype);
}

int all_to_all(const NcclArguments& a) {
  return ncclAlltoAll(a.input, a.output, a.count, dtype_of(a), a.communicator, a.stream);
}
int gather(const NcclArguments& a) {
  return ncclGather(a.input, a.output, a.count, dtype_of(a), a.root, a.communicator, a.stream);
}
int scatter(const NcclArguments& a) {
  return ncclScatter(a.input, a.output, a.count, dtype_of(a), a.root, a.communicator, a.stream);
}

}  // namespace

NcclCall nccl_exchange_call(Kind kind) {
  constexpr int kFirstVersion = 22800;
  if (nccl_version_code() < kFirstVersion) return nullptr;
  switch (kind) {
    case Kind::all_to_all:
      return all_to_all;
    case Kind::gather:
      return gather;
    case Kind::scatter:
      return scatter;
    default:
      return nullptr;
  }
}

}  // namespace lockstep::libraries
