#include "collectives/libraries/nccl_buffers.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep::libraries {
namespace {

const char* enrolling(NcclRegistration how) {
  return how == NcclRegistration::symmetric ? "ncclCommWindowRegister" : "ncclCommRegister";
}
const char* striking_off(NcclRegistration how) {
  return how == NcclRegistration::symmetric ? "ncclCommWindowDeregister" : "ncclCommDeregister";
}

}  // namespace

NcclBuffers::NcclBuffers(const NcclApi& api, NcclPlace place, NcclRegistration how)
    : api_(api), place_(std::move(place)), how_(how) {}

// If a rank fails, its communicators are aborted, which ends all registrations; the memory ends with the process.
NcclBuffers::~NcclBuffers() = default;

void NcclBuffers::add(const NcclMemberPtr& member) {
  members_.push_back(member);
  for (auto& [memory, buffer] : buffers_) enroll(member, memory, buffer);
}

void* NcclBuffers::allocate(std::size_t size_bytes) {
  void* memory = nullptr;
  place_.set_device();
  const int result = api_.allocate(&memory, size_bytes);
  if (result != kNcclSuccess) {
    throw nccl_error(api_, place_, result, "ncclMemAlloc of " + std::to_string(size_bytes) + " bytes", nullptr);
  }
  Buffer& buffer = buffers_[memory] = {.size_bytes = size_bytes, .enrolments = {}};
  for (const NcclMemberPtr& member : members_) enroll(member, memory, buffer);
  return memory;
}

void NcclBuffers::release(void* memory) {
  const auto found = buffers_.find(memory);
  LOCKSTEP_CHECK(found != buffers_.end(), "only what was allocated here is released");
  strike_off(found->second);
  buffers_.erase(found);
  place_.set_device();
  const int result = api_.release(memory);
  if (result != kNcclSuccess) throw nccl_error(api_, place_, result, "ncclMemFree", nullptr);
}

void NcclBuffers::enroll(const NcclMemberPtr& member, void* memory, Buffer& buffer) {
  if (how_ == NcclRegistration::none) return;
  struct Done {
    int result = kNcclSuccess;
    void* handle = nullptr;
  };
  auto done = std::make_shared<Done>();
  call_in_time(member, enrolling(how_), [member, done, memory, how = how_, size_bytes = buffer.size_bytes] {
    done->result = member->api.enroll(member->communicator, how, memory, size_bytes, &done->handle);
  });
  settle(*member, enrolling(how_), done->result);
  buffer.enrolments.push_back({member, done->handle});
}

// A broken communicator must not be called.
void NcclBuffers::strike_off(Buffer& buffer) {
  for (const auto& [member, handle] : buffer.enrolments) {
    if (member->broken) continue;
    auto result = std::make_shared<int>(kNcclSuccess);
    call_in_time(member, striking_off(how_), [member = member, handle = handle, result, how = how_] {
      *result = member->api.strike_off(member->communicator, how, handle);
    });
    settle(*member, striking_off(how_), *result);
  }
  buffer.enrolments.clear();
}

}  // namespace lockstep::libraries
