// Memory that NCCL allocates and knows: registered with every communicator of a rank, those that are made later too.
// Without NCCL: over the seam of nccl_api.h.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "collectives/libraries/nccl_member.h"

namespace lockstep::libraries {

// Goes before the communicators. All ranks together do the same with theirs.
class NcclBuffers {
 public:
  NcclBuffers(const NcclApi& api, NcclPlace place, NcclRegistration how);
  ~NcclBuffers();
  NcclBuffers(const NcclBuffers&) = delete;
  NcclBuffers& operator=(const NcclBuffers&) = delete;

  // NCCL maps whole pages of this size: what an allocation takes of a GPU is rounded up to it.
  static constexpr std::size_t kPageBytes = std::size_t{2} << 20;

  void add(const NcclMemberPtr& member);   // a communicator; all buffers are registered with it
  void* allocate(std::size_t size_bytes);  // registered with all communicators
  void release(void* memory);              // no work uses it any more

 private:
  struct Enrolment {
    NcclMemberPtr member;
    void* handle;
  };
  struct Buffer {
    std::size_t size_bytes;
    std::vector<Enrolment> enrolments;
  };
  void enroll(const NcclMemberPtr& member, void* memory, Buffer& buffer);
  void strike_off(Buffer& buffer);

  const NcclApi& api_;
  const NcclPlace place_;
  const NcclRegistration how_;
  std::vector<NcclMemberPtr> members_;
  std::map<void*, Buffer> buffers_;
};

}  // namespace lockstep::libraries
