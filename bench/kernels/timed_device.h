// A device on which kernels are timed: the CPU with a pool of pinned threads, or a CUDA device, each with its own
// clock.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/context.h"

namespace lockstep::kernel_bench {

// For one thread at a time: the one that made it. The device must outlive it.
class TimedDevice {
 public:
  virtual ~TimedDevice() = default;
  virtual const kernels::Context& context() const = 0;
  virtual void wait() = 0;  // waits until all work is done
  // Returns the time of this many calls, one after the other.
  virtual double us_of(std::int64_t calls, const std::function<void()>& call) = 0;
  virtual std::vector<int> cores() = 0;  // cores that run the threads right now; empty on a GPU
};

// The threads are pinned to the usable core `first_core` and the ones after it.
std::unique_ptr<TimedDevice> make_timed_cpu(int threads, int first_core = 0);

// Kernels to use where there are several sets (attention.h, grouped_gemm.h); empty: the default.
struct CudaChoices {
  std::string attention;
  std::string experts;
};

// `timing`: "events", or "graph": the calls are captured into a CUDA graph, whose replay is timed.
std::unique_ptr<TimedDevice> make_timed_cuda(core::Device& device, const std::string& timing,
                                             const CudaChoices& choices = {});

std::unique_ptr<core::Device> make_device(const std::string& name, std::chrono::seconds timeout);  // "cpu", "cuda"
std::vector<std::string> timings_of(const std::string& device);  // {"host"}, {"events", "graph"}

}  // namespace lockstep::kernel_bench
