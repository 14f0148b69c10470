// Windows came with NCCL 2.27.
#include <nccl.h>

#include "collectives/libraries/nccl_api.h"

namespace lockstep::libraries {

int nccl_enroll_window(ncclComm* communicator, void* memory, std::size_t size_bytes, void** handle) {
  ncclWindow_t window = nullptr;
  const ncclResult_t result =
      ncclCommWindowRegister(communicator, memory, size_bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
  *handle = window;
  return result;
}

int nccl_strike_off_window(ncclComm* communicator, void* handle) {
  return ncclCommWindowDeregister(communicator, static_cast<ncclWindow_t>(handle));
}

}  // namespace lockstep::libraries
