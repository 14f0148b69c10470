// Takes the place of nccl_calls_2_28.cpp with older versions of NCCL.
#include "collectives/libraries/nccl_calls.h"

namespace lockstep::libraries {

NcclCall nccl_exchange_call(collectives::Kind /*kind*/) {
  return nullptr;
}

}  // namespace lockstep::libraries
