#include "bench/kernels/neighbours.h"

#include <memory>

#include "bench/kernels/timed_device.h"
#include "core/device_cpu.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernel_bench {

Neighbours::Neighbours(const kernels::KernelCase& one, const Patterns& patterns, const Setting& setting,
                       double cold_bytes, const std::string& gemm)
    : started_(setting.copies - 1) {
  failures_.resize(static_cast<std::size_t>(setting.copies - 1));
  // `one` and `patterns` are used only until the first call has ended; the constructor waits for that.
  const auto repeat = [&, setting, cold_bytes, gemm](const std::stop_token& stop, std::size_t copy) {
    bool has_started = false;
    try {
      const std::unique_ptr<TimedDevice> timed =
          make_timed_cpu(setting.threads, (static_cast<int>(copy) + 1) * setting.threads);
      if (!gemm.empty()) kernels::choose_gemms_by_rule(timed->context(), gemm);
      const std::unique_ptr<core::Device> device =
          core::make_cpu_device();  // its own device: a device tracks the allocations of one thread
      Arena arena(*device);
      OperandSets sets(arena, one, patterns, cold_bytes);
      const std::function<void(std::span<void* const>, const kernels::Context&)> run = one.run;
      run(sets.next(), timed->context());
      has_started = true;
      started_.count_down();
      while (!stop.stop_requested()) run(sets.next(), timed->context());
    } catch (...) {
      has_failed_ = true;
      if (has_started) return;
      failures_[copy] = std::current_exception();
      started_.count_down();
    }
  };
  for (std::size_t copy = 0; copy < failures_.size(); ++copy) threads_.emplace_back(repeat, copy);
  started_.wait();
  for (const std::exception_ptr& failure : failures_) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace lockstep::kernel_bench
