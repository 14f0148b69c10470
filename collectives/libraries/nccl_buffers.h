// Memory that NCCL allocates and registers with every communicator of a rank, later ones included. No NCCL header: it
// uses the interface of nccl_api.h.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "collectives/libraries/nccl_member.h"

namespace lockstep::libraries {

// Must be destroyed before the communicators. Collective: all ranks do the same with theirs.
class NcclBuffers {
 public:
  NcclBuffers(const NcclApi& api, NcclPlace place, NcclRegistration how);
  ~NcclBuffers();
  NcclBuffers(const NcclBuffers&) = delete;
  NcclBuffers& operator=(const NcclBuffers&) = delete;

  // NCCL maps whole pages of this size: an allocation is rounded up to it.
  static constexpr std::size_t kPageBytes = std::size_t{2} << 20;

  void add(const NcclMemberPtr& member);   // a communicator; all buffers are registered with it
  void* allocate(std::size_t size_bytes);  // registered with all communicators
  void release(void* memory);              // no work may use it any more

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
