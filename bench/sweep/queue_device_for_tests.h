// Test device that behaves like a GPU, on the CPU: the host reaches its memory by copies only, and work that is queued
// on its stream runs when the host waits for it, not before.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/forwarding_device_for_tests.h"
#include "core/wait.h"

namespace lockstep::sweep {

class QueueStream final : public core::Stream {
 public:
  using Work = std::function<void()>;

  std::string owner;  // transport whose work is queued, if the test sets it

  void queue(Work work) { (capturing_ ? captured_ : queued_).push_back(std::move(work)); }
  void synchronize() override {
    LOCKSTEP_CHECK(!capturing_, "a stream that is captured is not waited for");
    for (const Work& work : std::exchange(queued_, {})) work();
    owner.clear();
  }
  bool done() override { return queued_.empty(); }
  void* native() const override { return nullptr; }
  void wait(const core::Event& /*event*/) override {}

  bool can_capture() const override { return true; }
  void begin_capture() override { capturing_ = true; }
  std::unique_ptr<core::Graph> end_capture() override;

 private:
  std::vector<Work> queued_;
  std::vector<Work> captured_;
  bool capturing_ = false;
};

class QueueGraph final : public core::Graph {
 public:
  explicit QueueGraph(std::vector<QueueStream::Work> works) : works_(std::move(works)) {}
  void launch(core::Stream& stream) override {
    for (const QueueStream::Work& work : works_) dynamic_cast<QueueStream&>(stream).queue(work);
  }

 private:
  std::vector<QueueStream::Work> works_;
};

inline std::unique_ptr<core::Graph> QueueStream::end_capture() {
  capturing_ = false;
  return std::make_unique<QueueGraph>(std::exchange(captured_, {}));
}

class QueueEvent final : public core::Event {
 public:
  void record(core::Stream& stream) override {
    dynamic_cast<QueueStream&>(stream).queue([this] {
      passed_at_ = core::Clock::now();
      done_ = true;
    });
  }
  void synchronize() override { LOCKSTEP_CHECK(done_, "the stream has been waited for"); }
  bool done() override { return done_; }
  double us_since(const core::Event& start) const override {
    const auto& other = dynamic_cast<const QueueEvent&>(start);
    LOCKSTEP_CHECK(done_ && other.done_, "times are of events that are passed");
    return core::us_between(other.passed_at_, passed_at_);
  }
  void* native() const override { return nullptr; }

 private:
  core::Clock::time_point passed_at_;
  bool done_ = false;
};

class QueueDevice final : public core::ForwardingDevice {
 public:
  explicit QueueDevice(int index) : index_(index) {}

  std::string name() const override { return "Test GPU"; }
  int index() const override { return index_; }

  void copy_on(core::Stream& stream, void* to, const void* from, std::size_t size_bytes) override {
    dynamic_cast<QueueStream&>(stream).queue([=, this] { copy_to_host(to, from, size_bytes); });
  }
  void zero_on(core::Stream& stream, void* memory, std::size_t size_bytes) override {
    dynamic_cast<QueueStream&>(stream).queue(
        [=, this] { ForwardingDevice::zero_on(*cpu_stream_, memory, size_bytes); });
  }

  std::unique_ptr<core::Stream> make_stream() override { return std::make_unique<QueueStream>(); }
  std::unique_ptr<core::Event> make_event() override { return std::make_unique<QueueEvent>(); }

 private:
  const int index_;
  const std::unique_ptr<core::Stream> cpu_stream_ = cpu().make_stream();
};

}  // namespace lockstep::sweep
