// NCCL's own calls as a table, and its codes for dtypes and operations. NCCL's types stay out of headers: its enums are
// ints here, its handles pointers to types that are only named.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/collective.h"

struct ncclComm;
struct CUstream_st;

namespace lockstep::libraries {

int nccl_code(core::DType dtype);  // ncclDataType_t
int nccl_code(core::ReduceOp op);  // ncclRedOp_t

// The arguments of any of NCCL's collectives; `count` is that of a block, which is what NCCL counts too.
struct NcclArguments {
  const void* input;
  void* output;
  std::size_t count;
  int dtype;
  int op;
  int root;
  ncclComm* communicator;
  CUstream_st* stream;
};

using NcclCall = int (*)(const NcclArguments&);  // returns ncclResult_t

// NCCL's call for a collective; nullptr if NCCL has none, and grouped sends and receives must do.
NcclCall nccl_call(collectives::Kind kind);

int nccl_version_code();     // of the library that is loaded: 22809; 0 if it does not say
std::string nccl_version();  // "2.28.9"

}  // namespace lockstep::libraries
