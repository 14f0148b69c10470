// Calls that we make on NCCL's communicators, as an interface that tests replace by a fake. Builds without NCCL have no
// implementation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

struct ncclComm;

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
  symmetric,  // ncclCommWindowRegister: collective over all ranks; calls use equal offsets in it on all of them
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
  virtual int make_identifier(NcclIdentifier& made) const = 0;

  // join() and split() return at once, with success or in progress; the state of the communicator (or its parent) says
  // when they are done, and only then is `made` valid. Calls on a communicator of join() run in threads of NCCL's, one
  // per call (ncclGroupEndInternal in its src/group.cc, 2.22 and later), so they cannot be timed; a communicator of
  // split() blocks, as in nccl-tests. The configuration must outlive the communicator.
  virtual int join(ncclComm** made, int num_ranks, const NcclIdentifier& identifier, int rank,
                   const NcclConfig& config) const = 0;
  // Color -1: not a member.
  virtual int split(ncclComm* parent, int color, int key, ncclComm** made, const NcclConfig& config) const = 0;

  virtual int state(ncclComm* communicator, int& state) const = 0;  // ncclCommGetAsyncError
  virtual int abort(ncclComm* communicator) const = 0;
  virtual int destroy(ncclComm* communicator) const = 0;
  virtual std::string text_of(int result) const = 0;
  virtual std::string last_error(ncclComm* communicator) const = 0;  // NCCL's own text

  // Memory that can be registered.
  virtual int allocate(void** made, std::size_t size_bytes) const = 0;
  virtual int release(void* memory) const = 0;
  virtual int enroll(ncclComm* communicator, NcclRegistration how, void* memory, std::size_t size_bytes,
                     void** handle) const = 0;
  virtual int strike_off(ncclComm* communicator, NcclRegistration how, void* handle) const = 0;
};

// The library's functions. Only in builds with NCCL.
const NcclApi& nccl_api();

}  // namespace lockstep::libraries
