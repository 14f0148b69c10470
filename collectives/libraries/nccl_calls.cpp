#include "collectives/libraries/nccl_calls.h"

#include <fmt/format.h>
#include <nccl.h>

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using core::DType;
using core::ReduceOp;

ncclDataType_t dtype_of(const NcclArguments& a) {
  return static_cast<ncclDataType_t>(a.dtype);
}
ncclRedOp_t op_of(const NcclArguments& a) {
  return static_cast<ncclRedOp_t>(a.op);
}

int all_reduce(const NcclArguments& a) {
  return ncclAllReduce(a.input, a.output, a.count, dtype_of(a), op_of(a), a.communicator, a.stream);
}
int reduce_scatter(const NcclArguments& a) {
  return ncclReduceScatter(a.input, a.output, a.count, dtype_of(a), op_of(a), a.communicator, a.stream);
}
int all_gather(const NcclArguments& a) {
  return ncclAllGather(a.input, a.output, a.count, dtype_of(a), a.communicator, a.stream);
}
int broadcast(const NcclArguments& a) {
  return ncclBroadcast(a.input, a.output, a.count, dtype_of(a), a.root, a.communicator, a.stream);
}
int reduce(const NcclArguments& a) {
  return ncclReduce(a.input, a.output, a.count, dtype_of(a), op_of(a), a.root, a.communicator, a.stream);
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

int nccl_code(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return ncclInt8;
    case DType::u8:
      return ncclUint8;
    case DType::i32:
      return ncclInt32;
    case DType::u32:
      return ncclUint32;
    case DType::i64:
      return ncclInt64;
    case DType::u64:
      return ncclUint64;
    case DType::f16:
      return ncclFloat16;
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f8e4m3:
      return ncclFloat8e4m3;
    case DType::f8e5m2:
      return ncclFloat8e5m2;
  }
  LOCKSTEP_CHECK(false, "dtype out of range");
  return -1;
}

int nccl_code(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::prod:
      return ncclProd;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::avg:
      return ncclAvg;
  }
  LOCKSTEP_CHECK(false, "operation out of range");
  return -1;
}

NcclCall nccl_call(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return all_reduce;
    case Kind::reduce_scatter:
      return reduce_scatter;
    case Kind::all_gather:
      return all_gather;
    case Kind::broadcast:
      return broadcast;
    case Kind::reduce:
      return reduce;
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

int nccl_version_code() {
  int code = 0;
  return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

std::string nccl_version() {
  const int code = nccl_version_code();
  if (code == 0) return "unknown";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace lockstep::libraries
