// MPI's names of our dtypes and operations. Included by sources only, as it shows mpi.h.
#pragma once

#include <mpi.h>

#include "core/dtype.h"

namespace lockstep::libraries {

// f16, bf16 and fp8 travel as unsigned integers of their size.
MPI_Datatype mpi_type(core::DType dtype);

// An operation of MPI's, or one of ours where MPI does not know the dtype.
class MpiOp {
 public:
  MpiOp(core::DType dtype, core::ReduceOp op);
  ~MpiOp();
  MpiOp(const MpiOp&) = delete;
  MpiOp& operator=(const MpiOp&) = delete;
  MPI_Op get() const { return op_; }

 private:
  MPI_Op op_ = MPI_OP_NULL;
  bool ours_ = false;
};

}  // namespace lockstep::libraries
