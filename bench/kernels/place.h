// Where kernels are timed: the CPU with a pool of bound threads, or a CUDA device, each with its own clock.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/context.h"

namespace lockstep::kernel_bench {

// To be used by one thread, which is the one that made it; the device outlives it.
class Place {
 public:
  virtual ~Place() = default;
  virtual const kernels::Context& context() const = 0;
  virtual void wait() = 0;  // until all work is done
  // The time of so many calls, one after the other.
  virtual double us_of(std::int64_t calls, const std::function<void()>& call) = 0;
  virtual std::vector<int> cores() = 0;  // on which each thread runs right now; none on a GPU
};

// `first_core`: of the usable ones; the threads are bound to it and those behind it.
std::unique_ptr<Place> make_cpu_place(int threads, int first_core = 0);

// `timing`: "events", or "graph": the calls are captured into a CUDA graph, whose replay is timed. `attention`: a
// choice of kernels (attention_choice.h); empty: the default.
std::unique_ptr<Place> make_cuda_place(core::Device& device, const std::string& timing,
                                       const std::string& attention = "");

std::unique_ptr<core::Device> make_device(const std::string& name, std::chrono::seconds timeout);  // "cpu", "cuda"
std::vector<std::string> timings_of(const std::string& device);  // {"host"}, {"events", "graph"}

}  // namespace lockstep::kernel_bench
