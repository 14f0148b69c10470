// The calls that came with NCCL 2.28.
#include <nccl.h>

#include "collectives/libraries/nccl_calls.h"

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
