#include "bench/kernels/timed_device.h"

#include "bench/serve/calls.h"
#include "core/cores.h"
#include "core/device_cpu.h"
#include "core/device_cuda.h"

namespace lockstep::kernel_bench {
namespace {

class TimedCpu final : public TimedDevice {
 public:
  TimedCpu(int threads, int first_core) : pool_(threads, first_core), context_(pool_) {}

  const kernels::Context& context() const override { return context_; }
  void wait() override {}

  double us_of(std::int64_t calls, const std::function<void()>& call) override {
    return serve::us_of_calls(calls, call) * static_cast<double>(calls);
  }

  std::vector<int> cores() override {
    std::vector<int> cores(static_cast<std::size_t>(pool_.size()));
    pool_.on_each_thread([&](int thread) { cores[static_cast<std::size_t>(thread)] = core::present_core(); });
    return cores;
  }

 private:
  kernels::ThreadPool pool_;
  kernels::Context context_;
};

}  // namespace

std::unique_ptr<TimedDevice> make_timed_cpu(int threads, int first_core) {
  return std::make_unique<TimedCpu>(threads, first_core);
}

std::unique_ptr<core::Device> make_device(const std::string& name, std::chrono::seconds timeout) {
  return name == "cpu" ? core::make_cpu_device() : core::make_cuda_device(/*index=*/0, /*rank=*/0, timeout);
}

std::vector<std::string> timings_of(const std::string& device) {
  return device == "cpu" ? std::vector<std::string>{"host"} : std::vector<std::string>{"events", "graph"};
}

}  // namespace lockstep::kernel_bench
