// A group of sends and receives by NCCL.
#pragma once

#include <cstddef>
#include <span>

struct ncclComm;
struct CUstream_st;

namespace lockstep::libraries {

// To or from a peer, which may be the rank itself.
struct PeerBytes {
  int peer;
  std::byte* memory;
  std::size_t size_bytes;
};

// Queues all of them at once. Returns ncclResult_t: the first failure, if any.
int nccl_exchange(ncclComm* communicator, CUstream_st* stream, std::span<const PeerBytes> sends,
                  std::span<const PeerBytes> receives);

}  // namespace lockstep::libraries
