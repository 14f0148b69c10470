// NCCL's calls: those on communicators as an interface that tests replace by a fake, its collectives as a table. Builds
// without NCCL have the types, but no implementation of the calls. NCCL's own types stay out of headers: its enums are
// ints here, its handles pointers to incomplete types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/collective.h"
#include "core/dtype.h"
#include "core/open_library.h"

struct ncclComm;
struct CUstream_st;

namespace lockstep::libraries {

// Calls return ncclResult_t; these are the values that we distinguish (nccl_calls.cpp checks them against nccl.h).
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclRemoteError = 6;
inline constexpr int kNcclInProgress = 7;

// ncclUniqueId
struct NcclIdentifier {
  std::array<char, 128> bytes;
};

// How memory is registered with NCCL, with nccl-tests' numbers for it (-R).
enum class NcclRegistration : std::uint8_t {
  none,
  local,      // ncclCommRegister
  symmetric,  // ncclCommWindowRegister: collective over all ranks; calls use equal offsets in it on every rank
};

// Configuration of a communicator: fields of ncclConfig_t. NCCL chooses the value of a field that is empty, and its
// environment variables (NCCL_MIN_CTAS, NCCL_NET, ...) override all fields.
struct NcclConfig {
  std::optional<int> min_ctas = std::nullopt;  // fewest and most thread blocks of a call's kernel
  std::optional<int> max_ctas = std::nullopt;
  std::optional<int> cga_cluster_size = std::nullopt;  // thread blocks per cluster
  std::optional<int> cta_policy = std::nullopt;        // NCCL_CTA_POLICY_DEFAULT 0, _EFFICIENCY 1, _ZERO 2
  std::optional<int> split_share = std::nullopt;       // 1: communicators share their parent's resources
  std::string net_name = {};                           // "Socket", "IB" or a plugin's name; empty: NCCL chooses
  friend bool operator==(const NcclConfig&, const NcclConfig&) = default;
};

// A thread's calls go to its current device.
class NcclApi {
 public:
  virtual ~NcclApi() = default;
  virtual int version_code() const = 0;  // 22809 for 2.28.9
  virtual int make_identifier(NcclIdentifier& identifier) const = 0;

  // join() and split() return at once, with success or in progress; the state of the communicator (or its parent)
  // reveals when they are done, and only then is `joined` valid. Calls on a communicator of join() run in threads of
  // NCCL's, one per call (ncclGroupEndInternal in its src/group.cc, 2.22 and later), so they cannot be timed; a
  // communicator of split() blocks, as in nccl-tests. The configuration must outlive the communicator.
  virtual int join(ncclComm** joined, int num_ranks, const NcclIdentifier& identifier, int rank,
                   const NcclConfig& config) const = 0;
  // Color -1: not a member.
  virtual int split(ncclComm* parent, int color, int key, ncclComm** joined, const NcclConfig& config) const = 0;

  virtual int state(ncclComm* communicator, int& state) const = 0;  // ncclCommGetAsyncError
  virtual int abort(ncclComm* communicator) const = 0;
  virtual int destroy(ncclComm* communicator) const = 0;
  virtual std::string text_of(int result) const = 0;
  virtual std::string last_error(ncclComm* communicator) const = 0;  // NCCL's own text

  // Memory that can be registered.
  virtual int allocate(void** memory, std::size_t size_bytes) const = 0;
  virtual int release(void* memory) const = 0;
  virtual int enroll(ncclComm* communicator, NcclRegistration how, void* memory, std::size_t size_bytes,
                     void** handle) const = 0;
  virtual int strike_off(ncclComm* communicator, NcclRegistration how, void* handle) const = 0;
};

// The library's functions. Only in builds with NCCL.
const NcclApi& nccl_api();

// NCCL's collectives as a table, and its codes for dtypes and operations.

int nccl_code(core::DType dtype);  // ncclDataType_t
int nccl_code(core::ReduceOp op);  // ncclRedOp_t

// Arguments of any of NCCL's collectives; `count` is a block's, as in NCCL.
struct NcclArguments {
  const void* input;
  void* output;
  std::size_t count;
  int dtype;
  int op;
  int root;
  ncclComm* communicator;
  CUstream_st* stream;
};

using NcclCall = int (*)(const NcclArguments&);  // returns ncclResult_t

// NCCL's call for a collective; nullptr if NCCL has none, so that grouped sends and receives take its place.
NcclCall nccl_call(collectives::Kind kind);

// Version of the library that is loaded, also in builds without NCCL.
int nccl_version_code();     // 22809, as ncclGetVersion has it; 0 if unknown or not built in
std::string nccl_version();  // "2.28.9"; empty if not built in

// Opens NCCL at run time, at first use: a program that was built with it also runs on machines without it, and reports
// so in one line.

// Throws Error(nccl) with the reasons if NCCL cannot be opened or is older than 2.24; every call does.
const core::OpenedLibrary& nccl_opened();

}  // namespace lockstep::libraries
