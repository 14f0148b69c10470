// Takes the place of nccl_windows_2_27.cpp with older versions of NCCL; symmetric_refusal() (nccl_rules.h) tells users.
#include <nccl.h>

#include "collectives/libraries/nccl_api.h"

namespace lockstep::libraries {

int nccl_enroll_window(ncclComm* /*communicator*/, void* /*memory*/, std::size_t /*size_bytes*/, void** /*handle*/) {
  return ncclInvalidUsage;
}

int nccl_strike_off_window(ncclComm* /*communicator*/, void* /*handle*/) {
  return ncclInvalidUsage;
}

}  // namespace lockstep::libraries
