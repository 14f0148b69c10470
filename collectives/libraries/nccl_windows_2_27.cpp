// Windows came with NCCL 2.27.
#include <nccl.h>

#include "collectives/libraries/nccl_api.h"
#include "collectives/libraries/nccl_opened.h"

using lockstep::libraries::nccl_opened;

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t size_bytes, ncclWindow_t* window,
                                    int flags) {
  static const auto call = nccl_opened().find<decltype(ncclCommWindowRegister)>("ncclCommWindowRegister");
  return call(comm, memory, size_bytes, window, flags);
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  static const auto call = nccl_opened().find<decltype(ncclCommWindowDeregister)>("ncclCommWindowDeregister");
  return call(comm, window);
}

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
