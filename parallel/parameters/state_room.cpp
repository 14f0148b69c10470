#include "parallel/parameters/state_room.h"

#include <cstring>

#include "core/async_file.h"
#include "workload/offload.h"

namespace lockstep::parallel {
namespace {

static_assert(workload::OffloadStaging::kAlign % core::AsyncFile::kAlign == 0);

// Copies are done when they return: they cannot run beside kernels of the same thread.
class HostRoom final : public StateRoom {
 public:
  HostRoom(core::Device& device, std::int64_t bytes)
      : device_(device), memory_(static_cast<std::byte*>(device.allocate_pinned(static_cast<std::size_t>(bytes)))) {}
  ~HostRoom() override { device_.release_pinned(memory_); }
  HostRoom(const HostRoom&) = delete;
  HostRoom& operator=(const HostRoom&) = delete;

  bool in_blocks() const override { return false; }
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes) override {
    device_.copy_to_device(to, memory_ + offset, static_cast<std::size_t>(bytes));
    return 0;
  }
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) override {
    device_.copy_to_host(memory_ + offset, from, static_cast<std::size_t>(bytes));
    return 0;
  }
  void wait(Ticket /*ticket*/) override {}

 private:
  core::Device& device_;
  std::byte* memory_;
};

class FileRoom final : public StateRoom {
 public:
  explicit FileRoom(const core::AsyncFile::Options& options) : file_(options) {}

  bool in_blocks() const override { return true; }
  Ticket read(std::int64_t offset, void* to, std::int64_t bytes) override { return file_.read(offset, to, bytes); }
  Ticket write(std::int64_t offset, const void* from, std::int64_t bytes) override {
    return file_.write(offset, from, bytes);
  }
  void wait(Ticket ticket) override { file_.wait(ticket); }

 private:
  core::AsyncFile file_;
};

}  // namespace

MakeStateRoom rooms_of_host(core::Device& device) {
  return [&device](std::int64_t bytes) { return std::make_unique<HostRoom>(device, bytes); };
}

MakeStateRoom rooms_in_files(const std::string& folder, std::chrono::milliseconds timeout) {
  return [folder, timeout](std::int64_t bytes) {
    return std::make_unique<FileRoom>(core::AsyncFile::Options{.folder = folder, .bytes = bytes, .timeout = timeout});
  };
}

}  // namespace lockstep::parallel
