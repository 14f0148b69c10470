#include "collectives/libraries/nccl_api.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <nccl.h>

#include "collectives/libraries/nccl_library.h"
#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using core::DType;
using core::ReduceOp;

ncclDataType_t dtype_of(const NcclArguments& a) {
  return static_cast<ncclDataType_t>(a.dtype);
}
ncclRedOp_t op_of(const NcclArguments& a) {
  return static_cast<ncclRedOp_t>(a.op);
}

int all_reduce(const NcclArguments& a) {
  return ncclAllReduce(a.input, a.output, a.count, dtype_of(a), op_of(a), a.communicator, a.stream);
}
int reduce_scatter(const NcclArguments& a) {
  return ncclReduceScatter(a.input, a.output, a.count, dtype_of(a), op_of(a), a.communicator, a.stream);
}
int all_gather(const NcclArguments& a) {
  return ncclAllGather(a.input, a.output, a.count, dtype_of(a), a.communicator, a.stream);
}
int broadcast(const NcclArguments& a) {
  return ncclBroadcast(a.input, a.output, a.count, dtype_of(a), a.root, a.communicator, a.stream);
}
int reduce(const NcclArguments& a) {
  return ncclReduce(a.input, a.output, a.count, dtype_of(a), op_of(a), a.root, a.communicator, a.stream);
}
int all_to_all(const NcclArguments& a) {
  return ncclAlltoAll(a.input, a.output, a.count, dtype_of(a), a.communicator, a.stream);
}
int gather(const NcclArguments& a) {
  return ncclGather(a.input, a.output, a.count, dtype_of(a), a.root, a.communicator, a.stream);
}
int scatter(const NcclArguments& a) {
  return ncclScatter(a.input, a.output, a.count, dtype_of(a), a.root, a.communicator, a.stream);
}

struct NcclFunction {
  Kind kind;
  NcclCall call;
};
constexpr std::array kCalls{
    NcclFunction{Kind::all_reduce, all_reduce}, NcclFunction{Kind::reduce_scatter, reduce_scatter},
    NcclFunction{Kind::all_gather, all_gather}, NcclFunction{Kind::broadcast, broadcast},
    NcclFunction{Kind::reduce, reduce},         NcclFunction{Kind::all_to_all, all_to_all},
    NcclFunction{Kind::gather, gather},         NcclFunction{Kind::scatter, scatter},
};

}  // namespace

int nccl_code(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return ncclInt8;
    case DType::u8:
      return ncclUint8;
    case DType::i32:
      return ncclInt32;
    case DType::u32:
      return ncclUint32;
    case DType::i64:
      return ncclInt64;
    case DType::u64:
      return ncclUint64;
    case DType::f16:
      return ncclFloat16;
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f8e4m3:
      return ncclFloat8e4m3;
    case DType::f8e5m2:
      return ncclFloat8e5m2;
  }
  LOCKSTEP_CHECK(false, "dtype out of range");
  return -1;
}

int nccl_code(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::prod:
      return ncclProd;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::avg:
      return ncclAvg;
  }
  LOCKSTEP_CHECK(false, "operation out of range");
  return -1;
}

NcclCall nccl_call(Kind kind) {
  const auto* const row =
      std::find_if(kCalls.begin(), kCalls.end(), [&](const NcclFunction& r) { return r.kind == kind; });
  return row == kCalls.end() ? nullptr : row->call;
}

int nccl_version_code() {
  int code = 0;
  return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

std::string nccl_version() {
  const int code = nccl_version_code();
  if (code == 0) return "unknown";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

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

class LinkedNccl final : public NcclApi {
 public:
  int version_code() const override { return nccl_version_code(); }
  int make_identifier(NcclIdentifier& identifier) const override {
    ncclUniqueId id{};
    const ncclResult_t result = ncclGetUniqueId(&id);
    std::memcpy(&identifier, &id, sizeof id);
    return result;
  }
  int join(ncclComm** joined, int num_ranks, const NcclIdentifier& identifier, int rank,
           const NcclConfig& wanted) const override {
    ncclUniqueId id{};
    std::memcpy(&id, &identifier, sizeof id);
    ncclConfig_t config = config_of(wanted, false);
    return ncclCommInitRankConfig(joined, num_ranks, id, rank, &config);
  }
  int split(ncclComm* parent, int color, int key, ncclComm** joined, const NcclConfig& wanted) const override {
    ncclConfig_t config = config_of(wanted, true);
    return ncclCommSplit(parent, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, joined, &config);
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

  int allocate(void** memory, std::size_t size_bytes) const override { return ncclMemAlloc(memory, size_bytes); }
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
  static const LinkedNccl nccl;
  return nccl;
}

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
