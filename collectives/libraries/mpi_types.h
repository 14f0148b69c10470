// MPI's counterparts of our dtypes and operations. Included by sources only, as it includes mpi.h.
#pragma once

#include <mpi.h>

#include "core/dtype.h"

namespace lockstep::libraries {

// f16, bf16 and fp8 are sent as unsigned integers of their size.
MPI_Datatype mpi_type(core::DType dtype);

// MPI's operation, or one of ours if MPI does not know the dtype.
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
