// NCCL's own calls as a table, and its codes for dtypes and operations. NCCL's types stay out of headers: its enums are
// ints here, its handles pointers to incomplete types.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_member.h"
#include "core/device.h"
#include "core/open_library.h"

struct ncclComm;
struct CUstream_st;

namespace lockstep::libraries {

int nccl_code(core::DType dtype);  // ncclDataType_t
int nccl_code(core::ReduceOp op);  // ncclRedOp_t

// Arguments of any of NCCL's collectives; `count` is that of a block, as in NCCL.
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

// NCCL's call for a collective; nullptr if NCCL has none, so that grouped sends and receives take its place.
NcclCall nccl_call(collectives::Kind kind);

int nccl_version_code();     // version of the library that is loaded: 22809; 0 if unknown
std::string nccl_version();  // "2.28.9"

// Opens NCCL at run time, at first use: a program that was built with it also runs on machines without it, and says so
// in one line.

// Throws Error(nccl) with the reasons if NCCL cannot be opened or is older than 2.28; every call does.
const core::OpenedLibrary& nccl_opened();

// One operation of one rank by NCCL: the result of NcclGroup::prepare().

std::unique_ptr<collectives::Collective> make_nccl_collective(NcclMemberPtr member,
                                                              const collectives::Operation& operation,
                                                              core::Stream& stream);

}  // namespace lockstep::libraries
