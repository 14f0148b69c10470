#include "collectives/libraries/nccl_api.h"

#include <nccl.h>

#include <cstring>

namespace lockstep::libraries {
namespace {

static_assert(kNcclSuccess == ncclSuccess);
static_assert(kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInProgress == ncclInProgress);
static_assert(sizeof(NcclIdentifier) == sizeof(ncclUniqueId));

ncclConfig_t config_of(int most_blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (most_blocks > 0) config.maxCTAs = most_blocks;
  return config;
}

class Nccl final : public NcclApi {
 public:
  int make_identifier(NcclIdentifier& made) const override {
    ncclUniqueId id{};
    const ncclResult_t result = ncclGetUniqueId(&id);
    std::memcpy(&made, &id, sizeof id);
    return result;
  }
  int join(ncclComm** made, int num_ranks, const NcclIdentifier& identifier, int rank, int most_blocks) const override {
    ncclUniqueId id{};
    std::memcpy(&id, &identifier, sizeof id);
    ncclConfig_t config = config_of(most_blocks);
    config.blocking = 0;
    return ncclCommInitRankConfig(made, num_ranks, id, rank, &config);
  }
  int split(ncclComm* parent, int color, int key, ncclComm** made, int most_blocks) const override {
    ncclConfig_t config = config_of(most_blocks);
    config.blocking = 1;
    return ncclCommSplit(parent, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, made, &config);
  }
  int state(ncclComm* communicator, int& state) const override {
    ncclResult_t asynchronous = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(communicator, &asynchronous);
    state = asynchronous;
    return result;
  }
  int abort(ncclComm* communicator) const override { return ncclCommAbort(communicator); }
  int destroy(ncclComm* communicator) const override { return ncclCommDestroy(communicator); }
  std::string text_of(int result) const override { return ncclGetErrorString(static_cast<ncclResult_t>(result)); }
  std::string last_error(ncclComm* communicator) const override { return ncclGetLastError(communicator); }

  int allocate(void** made, std::size_t size_bytes) const override { return ncclMemAlloc(made, size_bytes); }
  int release(void* memory) const override { return ncclMemFree(memory); }
  int enroll(ncclComm* communicator, NcclRegistration how, void* memory, std::size_t size_bytes,
             void** handle) const override {
    if (how != NcclRegistration::symmetric) return ncclCommRegister(communicator, memory, size_bytes, handle);
    ncclWindow_t window = nullptr;
    const ncclResult_t result =
        ncclCommWindowRegister(communicator, memory, size_bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
    *handle = window;
    return result;
  }
  int strike_off(ncclComm* communicator, NcclRegistration how, void* handle) const override {
    if (how != NcclRegistration::symmetric) return ncclCommDeregister(communicator, handle);
    return ncclCommWindowDeregister(communicator, static_cast<ncclWindow_t>(handle));
  }
};

}  // namespace

const NcclApi& nccl_api() {
  static const Nccl nccl;
  return nccl;
}

}  // namespace lockstep::libraries
