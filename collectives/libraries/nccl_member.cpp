#include "collectives/libraries/nccl_member.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/wait.h"

namespace lockstep::libraries {
namespace {

using core::Error;
using core::Failure;

constexpr std::chrono::microseconds kBetweenLooks{50};

std::string caller_text(const NcclCaller& caller) {
  return fmt::format("rank {} (device {}){}{}", caller.rank, caller.device, caller.group.empty() ? "" : ", ",
                     caller.group);
}

std::string last_error_text(const NcclApi& api, ncclComm* communicator) {
  const std::string text = api.last_error(communicator);
  return text.empty() ? "" : ": " + text;
}

Error late(const NcclMember& member, const std::string& call) {
  const double seconds = std::chrono::duration<double>(member.caller.timeout).count();
  return {Failure::timeout, fmt::format("{}: {} of {} ranks took more than {} s{}", caller_text(member.caller), call,
                                        member.num_ranks, seconds, last_error_text(member.api, member.communicator))};
}

// For calls that end a communicator, whose result is ignored: the reason for ending it is reported elsewhere.
void quietly(const NcclMember& member, int (NcclApi::*call)(ncclComm*) const) {
  try {
    core::returns_in_time(
        [&api = member.api, communicator = member.communicator, set_device = member.caller.set_device, call] {
          set_device();
          (api.*call)(communicator);
        },
        member.caller.timeout);
  } catch (const Error&) {
    return;  // the device is gone
  }
}

// Happens once: ends NCCL's kernels, so that the device's memory can be freed.
void abort_member(NcclMember& member) {
  if (std::exchange(member.broken, true) || member.communicator == nullptr) return;
  quietly(member, &NcclApi::abort);
}

// Reads NCCL's error text from the communicator before aborting it.
[[noreturn]] void fail(NcclMember& member, const Error& error) {
  abort_member(member);
  throw error;
}

void check_peers(NcclMember& member) {
  try {
    member.caller.check_peers();
  } catch (const Error& error) {
    fail(member, error);
  }
}

int state_of(NcclMember& member) {
  int state = kNcclSuccess;
  const int asked = member.api.state(member.communicator, state);
  return asked == kNcclSuccess ? state : asked;
}

}  // namespace

Error nccl_error(const NcclApi& api, const NcclCaller& caller, int result, const std::string& call,
                 ncclComm* communicator) {
  return {result == kNcclRemoteError ? Failure::rank_lost : Failure::nccl,
          fmt::format("{}: {} failed: {}{}", caller_text(caller), call, api.text_of(result),
                      last_error_text(api, communicator))};
}

void settle(NcclMember& member, const std::string& call, int result) {
  const core::Deadline deadline = core::Deadline::after(member.caller.timeout);
  while (result == kNcclInProgress) {
    if (deadline.passed()) fail(member, late(member, call));
    check_peers(member);
    std::this_thread::sleep_for(kBetweenLooks);
    result = state_of(member);
  }
  if (result != kNcclSuccess) {
    fail(member, nccl_error(member.api, member.caller, result, call, member.communicator));
  }
}

void call_in_time(const NcclMemberPtr& member, const std::string& call, const std::function<void()>& body) {
  const bool returned = core::returns_in_time(
      [member, body] {
        member->caller.set_device();
        body();
      },
      member->caller.timeout);
  if (returned) return;
  member->broken = true;
  throw late(*member, call);
}

namespace {

// The same for a call that returns ncclResult_t; returns when the call is done.
void settle_in_time(const NcclMemberPtr& member, const std::string& call, const std::function<int()>& body) {
  const auto result = std::make_shared<int>(kNcclSuccess);
  call_in_time(member, call, [body, result] { *result = body(); });
  settle(*member, call, *result);
}

}  // namespace

NcclMemberPtr join_members(const NcclApi& api, const NcclCaller& caller, int num_ranks, int rank,
                           const NcclIdentifier& identifier) {
  auto member =
      std::make_shared<NcclMember>(NcclMember{.api = api, .caller = caller, .num_ranks = num_ranks, .rank = rank});
  settle_in_time(member, "ncclCommInitRankConfig", [member, identifier] {
    return member->api.join(&member->communicator, member->num_ranks, identifier, member->rank, member->caller.config);
  });
  return member;
}

namespace {

// Names the group in an error of its own world, which does not know that it is one among several.
template <class Meet>
auto in_group(const NcclCaller& caller, const Meet& meet) {
  try {
    return meet();
  } catch (const Error& error) {
    if (caller.group.empty() || error.failure() != Failure::timeout) throw;
    throw Error(Failure::timeout,
                fmt::format("{}, to exchange NCCL's identifier: {}", caller_text(caller), error.what()));
  }
}

}  // namespace

NcclIdentifier share_identifier(const NcclApi& api, const NcclCaller& caller, transports::World& world) {
  struct SharedIdentifier {
    NcclIdentifier identifier;
    int result;
  };
  SharedIdentifier mine{.identifier = {}, .result = kNcclSuccess};
  if (world.rank() == 0) mine.result = api.make_identifier(mine.identifier);
  const SharedIdentifier given = in_group(caller, [&] { return transports::all_gather_value(world, mine).front(); });
  if (given.result == kNcclSuccess) return given.identifier;
  throw nccl_error(api, caller, given.result, fmt::format("ncclGetUniqueId of rank {}", world.number_of(0)), nullptr);
}

NcclMemberPtr join_world(const NcclApi& api, NcclCaller& caller, transports::World& world, const NcclGpu& gpu) {
  if (const auto why = settings_refusal(caller.config, caller.registration, api.version_code())) {
    throw core::usage_error(*why);
  }
  const std::vector<GpuUuid> gpus = in_group(caller, [&] { return transports::all_gather_value(world, gpu.uuid); });
  if (const auto why = shared_gpu_refusal(gpus, gpu.sharing)) throw core::usage_error(*why);
  caller.config = config_within(caller.config, most_blocks(gpus, world.rank(), gpu.num_multiprocessors));
  const NcclIdentifier identifier = share_identifier(api, caller, world);
  return join_members(api, caller, world.num_ranks(), world.rank(), identifier);
}

// The child is filled in when the parent has settled, and has a state of its own.
NcclMemberPtr split_members(const NcclMemberPtr& parent, int color, int num_ranks, int rank) {
  constexpr const char* kCall = "ncclCommSplit";
  auto child = std::make_shared<NcclMember>(
      NcclMember{.api = parent->api, .caller = parent->caller, .num_ranks = num_ranks, .rank = rank});
  auto result = std::make_shared<int>(kNcclSuccess);
  call_in_time(parent, kCall, [parent, child, color, result] {
    *result = parent->api.split(parent->communicator, color, child->rank, &child->communicator, child->caller.config);
  });
  // A non-blocking parent reports "success" at once, while the split continues in a thread of NCCL's that fills the
  // child in (NVIDIA/nccl issue 1472): only the parent's state is reliable.
  if (*result == kNcclSuccess) *result = state_of(*parent);
  settle(*parent, kCall, *result);
  if (color < 0) return nullptr;
  settle(*child, kCall, state_of(*child));
  return child;
}

NcclMembers::~NcclMembers() {
  const auto is_broken = [](const NcclMemberPtr& member) { return member->broken; };
  const bool failed = std::uncaught_exceptions() > 0 || std::any_of(members_.begin(), members_.end(), is_broken);
  if (failed) abort();
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    if (!(*member)->broken) quietly(**member, &NcclApi::destroy);
  }
}

void NcclMembers::check(const core::Deadline& deadline) {
  try {
    for (const NcclMemberPtr& member : members_) {
      const int state = state_of(*member);
      if (state != kNcclSuccess && state != kNcclInProgress) {
        fail(*member, nccl_error(member->api, member->caller, state, "NCCL's work", member->communicator));
      }
      check_peers(*member);
      if (deadline.passed()) fail(*member, late(*member, "NCCL's work"));
    }
  } catch (const Error&) {
    abort();
    throw;
  }
}

void NcclMembers::abort() {
  for (const NcclMemberPtr& member : members_) abort_member(*member);
}

namespace {

const char* enrolling(NcclRegistration how) {
  return how == NcclRegistration::symmetric ? "ncclCommWindowRegister" : "ncclCommRegister";
}
const char* striking_off(NcclRegistration how) {
  return how == NcclRegistration::symmetric ? "ncclCommWindowDeregister" : "ncclCommDeregister";
}

}  // namespace

NcclBuffers::NcclBuffers(const NcclApi& api, NcclCaller caller) : api_(api), caller_(std::move(caller)) {}

// If a rank fails, its communicators are aborted, which ends all registrations; the memory ends with the process.
NcclBuffers::~NcclBuffers() = default;

void NcclBuffers::add(const NcclMemberPtr& member) {
  members_.push_back(member);
  for (auto& [memory, buffer] : buffers_) enroll(member, memory, buffer);
}

void* NcclBuffers::allocate(std::size_t size_bytes) {
  void* memory = nullptr;
  caller_.set_device();
  const int result = api_.allocate(&memory, size_bytes);
  if (result != kNcclSuccess) {
    throw nccl_error(api_, caller_, result, "ncclMemAlloc of " + std::to_string(size_bytes) + " bytes", nullptr);
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
  caller_.set_device();
  const int result = api_.release(memory);
  if (result != kNcclSuccess) throw nccl_error(api_, caller_, result, "ncclMemFree", nullptr);
}

void NcclBuffers::enroll(const NcclMemberPtr& member, void* memory, Buffer& buffer) {
  const NcclRegistration how = caller_.registration;
  if (how == NcclRegistration::none) return;
  const auto handle = std::make_shared<void*>(nullptr);
  settle_in_time(member, enrolling(how), [member, handle, memory, how, size_bytes = buffer.size_bytes] {
    return member->api.enroll(member->communicator, how, memory, size_bytes, handle.get());
  });
  buffer.enrolments.push_back({member, *handle});
}

// A broken communicator must not be called.
void NcclBuffers::strike_off(Buffer& buffer) {
  const NcclRegistration how = caller_.registration;
  for (const auto& [member, handle] : buffer.enrolments) {
    if (member->broken) continue;
    settle_in_time(member, striking_off(how), [member = member, handle = handle, how] {
      return member->api.strike_off(member->communicator, how, handle);
    });
  }
  buffer.enrolments.clear();
}

}  // namespace lockstep::libraries
