#include "collectives/libraries/nccl_api.h"

#include <nccl.h>

#include <cstring>

namespace lockstep::libraries {
namespace {

static_assert(kNcclSuccess == ncclSuccess);
static_assert(kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInProgress == ncclInProgress);
static_assert(sizeof(NcclIdentifier) == sizeof(ncclUniqueId));
static_assert(NCCL_CTA_POLICY_DEFAULT == 0 && NCCL_CTA_POLICY_EFFICIENCY == 1 && NCCL_CTA_POLICY_ZERO == 2);

ncclConfig_t config_of(const NcclConfig& wanted, bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  config.minCTAs = wanted.min_ctas.value_or(config.minCTAs);
  config.maxCTAs = wanted.max_ctas.value_or(config.maxCTAs);
  config.cgaClusterSize = wanted.cga_cluster_size.value_or(config.cgaClusterSize);
  config.CTAPolicy = wanted.cta_policy.value_or(config.CTAPolicy);
  config.splitShare = wanted.split_share.value_or(config.splitShare);
  if (!wanted.net_name.empty()) config.netName = wanted.net_name.c_str();
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
  int join(ncclComm** made, int num_ranks, const NcclIdentifier& identifier, int rank,
           const NcclConfig& wanted) const override {
    ncclUniqueId id{};
    std::memcpy(&id, &identifier, sizeof id);
    ncclConfig_t config = config_of(wanted, false);
    return ncclCommInitRankConfig(made, num_ranks, id, rank, &config);
  }
  int split(ncclComm* parent, int color, int key, ncclComm** made, const NcclConfig& wanted) const override {
    ncclConfig_t config = config_of(wanted, true);
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
