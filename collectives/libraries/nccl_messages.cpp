#include "collectives/libraries/nccl_messages.h"

#include <nccl.h>

namespace lockstep::libraries {

// Every group that was opened is closed, also after a failure.
int nccl_exchange(ncclComm* communicator, CUstream_st* stream, std::span<const PeerBytes> sends,
                  std::span<const PeerBytes> receives) {
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  for (const PeerBytes& m : sends) {
    if (result != ncclSuccess) break;
    result = ncclSend(m.memory, m.size_bytes, ncclInt8, m.peer, communicator, stream);
  }
  for (const PeerBytes& m : receives) {
    if (result != ncclSuccess) break;
    result = ncclRecv(m.memory, m.size_bytes, ncclInt8, m.peer, communicator, stream);
  }
  const ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

}  // namespace lockstep::libraries
