// A group of NCCL sends and receives.
#pragma once

#include <cstddef>
#include <span>

struct ncclComm;
struct CUstream_st;

namespace lockstep::libraries {

// Bytes to or from a peer, which may be the rank itself.
struct PeerBytes {
  int peer;
  std::byte* memory;
  std::size_t size_bytes;
};

// Enqueues all of them at once. Returns ncclResult_t: the first failure, if any.
int nccl_exchange(ncclComm* communicator, CUstream_st* stream, std::span<const PeerBytes> sends,
                  std::span<const PeerBytes> receives);

}  // namespace lockstep::libraries
