// The calls that we make on NCCL's communicators, as a seam: tests put a fake in its place. Builds without NCCL have
// none behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

struct ncclComm;

namespace lockstep::libraries {

// Calls return ncclResult_t; these are the values that we tell apart (nccl_api.cpp holds them against nccl.h).
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclRemoteError = 6;
inline constexpr int kNcclInProgress = 7;

// ncclUniqueId
struct NcclIdentifier {
  std::array<char, 128> bytes;
};

// How memory is made known to NCCL, with nccl-tests' numbers for it (-R).
enum class NcclRegistration : std::uint8_t {
  none,
  local,      // ncclCommRegister
  symmetric,  // ncclCommWindowRegister: all ranks together; calls use equal offsets in it on all of them
};

// A thread's calls go to the device that it has set.
class NcclApi {
 public:
  virtual ~NcclApi() = default;
  virtual int make_identifier(NcclIdentifier& made) const = 0;

  // Both return at once, with success or in progress; the communicator's (or its parent's) state says when they are
  // done, and only then is `made` there. Calls on what join() makes go on in threads of NCCL's, one a call
  // (ncclGroupEndInternal in its src/group.cc, 2.22 and later), which is no way to time them; what split() makes
  // blocks, as in nccl-tests. `most_blocks` is of a call's kernel; 0: as NCCL likes.
  virtual int join(ncclComm** made, int num_ranks, const NcclIdentifier& identifier, int rank,
                   int most_blocks) const = 0;
  // Color -1: no member.
  virtual int split(ncclComm* parent, int color, int key, ncclComm** made, int most_blocks) const = 0;

  virtual int state(ncclComm* communicator, int& state) const = 0;  // ncclCommGetAsyncError
  virtual int abort(ncclComm* communicator) const = 0;
  virtual int destroy(ncclComm* communicator) const = 0;
  virtual std::string text_of(int result) const = 0;
  virtual std::string last_error(ncclComm* communicator) const = 0;  // NCCL's own words

  // Memory as registration needs it.
  virtual int allocate(void** made, std::size_t size_bytes) const = 0;
  virtual int release(void* memory) const = 0;
  virtual int enroll(ncclComm* communicator, NcclRegistration how, void* memory, std::size_t size_bytes,
                     void** handle) const = 0;
  virtual int strike_off(ncclComm* communicator, NcclRegistration how, void* handle) const = 0;
};

// The library's functions. In builds with NCCL only.
const NcclApi& nccl_api();

}  // namespace lockstep::libraries
