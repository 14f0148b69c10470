// A fake of NCCL's calls for tests: results follow a script, and every call is logged.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/libraries/nccl_api.h"

namespace lockstep::libraries {

class FakeNccl : public NcclApi {
 public:
  static constexpr int kSystemError = 2;      // ncclSystemError
  static constexpr int kInvalidArgument = 4;  // ncclInvalidArgument

  // Results of calls; then the states that are reported, in order. The last state repeats.
  int call_result = kNcclSuccess;
  int enroll_result = kNcclSuccess;
  int version = 22809;
  mutable std::deque<int> states{kNcclSuccess};
  std::string words = "socket 3 was closed";  // NCCL's last error

  // "join 1", "abort 1", "enroll 2 symmetric 64", ... with the communicator's number.
  std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  int count(const std::string& call) const {
    int found = 0;
    for (const std::string& text : calls()) found += text == call ? 1 : 0;
    return found;
  }

  // The configurations that ranks have joined with, in any order.
  struct Joined {
    int num_ranks;
    int rank;
    std::array<char, 128> identifier;
    NcclConfig config;
  };
  std::vector<Joined> joined() const {
    const std::lock_guard lock(mutex_);
    return joined_;
  }

  int version_code() const override { return version; }
  int make_identifier(NcclIdentifier& made) const override {
    made.bytes.fill(7);
    return call_result;
  }
  int join(ncclComm** made, int num_ranks, const NcclIdentifier& identifier, int rank,
           const NcclConfig& config) const override {
    *made = next();
    {
      const std::lock_guard lock(mutex_);
      joined_.push_back({num_ranks, rank, identifier.bytes, config});
    }
    return note(with_blocks("join", config), *made, call_result);
  }
  // Behaves like NCCL's on a non-blocking parent: the child exists once the parent's state is success.
  int split(ncclComm* parent, int color, int /*key*/, ncclComm** made, const NcclConfig& config) const override {
    if (color >= 0) to_fill_ = made;
    return note(with_blocks("split", config), parent, call_result);
  }
  int state(ncclComm* communicator, int& state) const override {
    const std::lock_guard lock(mutex_);
    if (communicator == nullptr) return kInvalidArgument;
    state = states.front();
    if (states.size() > 1) states.pop_front();
    if (state == kNcclSuccess && to_fill_ != nullptr) *std::exchange(to_fill_, nullptr) = next();
    return kNcclSuccess;
  }
  int abort(ncclComm* communicator) const override { return note("abort", communicator, kNcclSuccess); }
  int destroy(ncclComm* communicator) const override { return note("destroy", communicator, kNcclSuccess); }
  std::string text_of(int result) const override { return "result " + std::to_string(result); }
  std::string last_error(ncclComm* /*communicator*/) const override { return words; }

  int allocate(void** made, std::size_t size_bytes) const override {
    memory_.push_back(std::make_unique<std::byte[]>(size_bytes));  // kept, as a failing test does not release it
    *made = memory_.back().get();
    return note("allocate", nullptr, call_result);
  }
  int release(void* /*memory*/) const override { return note("release", nullptr, kNcclSuccess); }
  int enroll(ncclComm* communicator, NcclRegistration how, void* memory, std::size_t size_bytes,
             void** handle) const override {
    *handle = memory;
    const char* const name = how == NcclRegistration::symmetric ? "enroll symmetric" : "enroll local";
    return note(name + (" " + std::to_string(size_bytes)), communicator, enroll_result);
  }
  int strike_off(ncclComm* communicator, NcclRegistration /*how*/, void* /*handle*/) const override {
    return note("strike off", communicator, kNcclSuccess);
  }

 private:
  static std::string with_blocks(const std::string& call, const NcclConfig& config) {
    return config.max_ctas ? call + " with " + std::to_string(*config.max_ctas) + " blocks" : call;
  }

  mutable std::vector<std::unique_ptr<std::byte[]>> memory_;
  ncclComm* next() const { return reinterpret_cast<ncclComm*>(&handles_.at(static_cast<std::size_t>(++made_))); }
  int note(const std::string& call, ncclComm* communicator, int result) const {
    const std::lock_guard lock(mutex_);
    const auto* const handle = reinterpret_cast<const std::byte*>(communicator);
    calls_.push_back(handle == nullptr ? call : call + " " + std::to_string(handle - handles_.data()));
    return result;
  }

  mutable ncclComm** to_fill_ = nullptr;  // a split's child
  mutable std::atomic<int> made_{0};
  mutable std::array<std::byte, 64> handles_{};  // communicators are their addresses, numbered from 1
  mutable std::mutex mutex_;
  mutable std::vector<std::string> calls_;
  mutable std::vector<Joined> joined_;
};

}  // namespace lockstep::libraries
