#include "collectives/libraries/mpi_types.h"

#include <array>

#include "core/error.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::libraries {
namespace {

using core::DType;
using core::ReduceOp;

MPI_Op builtin(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::avg:
      break;
  }
  return MPI_OP_NULL;
}

bool is_known_to_mpi(DType dtype) {
  return !core::is_floating(dtype) || dtype == DType::f32 || dtype == DType::f64;
}

// MPI_User_function: inout[i] = in[i] (op) inout[i].
template <DType dtype, ReduceOp op>
void combine(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const std::array<void*, 1> destinations{inout};
  const std::array<const void*, 2> sources{in, inout};
  kernels::reduce({.dtype = dtype, .op = op, .destinations = destinations, .sources = sources, .count = *count});
}

template <DType dtype>
MPI_User_function* combiner(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return combine<dtype, ReduceOp::sum>;
    case ReduceOp::prod:
      return combine<dtype, ReduceOp::prod>;
    case ReduceOp::max:
      return combine<dtype, ReduceOp::max>;
    case ReduceOp::min:
      return combine<dtype, ReduceOp::min>;
    case ReduceOp::avg:
      break;
  }
  return nullptr;
}

MPI_User_function* combiner(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f16:
      return combiner<DType::f16>(op);
    case DType::bf16:
      return combiner<DType::bf16>(op);
    case DType::f8e4m3:
      return combiner<DType::f8e4m3>(op);
    case DType::f8e5m2:
      return combiner<DType::f8e5m2>(op);
    default:
      return nullptr;
  }
}

}  // namespace

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return MPI_INT8_T;
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return MPI_UINT8_T;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::u32:
      return MPI_UINT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::u64:
      return MPI_UINT64_T;
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

MpiOp::MpiOp(DType dtype, ReduceOp op) : op_(builtin(op)), ours_(!is_known_to_mpi(dtype)) {
  if (!ours_) return;
  MPI_User_function* function = combiner(dtype, op);
  LOCKSTEP_CHECK(function != nullptr, "no such operation");
  constexpr int kCommutes = 1;
  MPI_Op_create(function, kCommutes, &op_);
}

MpiOp::~MpiOp() {
  if (ours_) MPI_Op_free(&op_);
}

}  // namespace lockstep::libraries
