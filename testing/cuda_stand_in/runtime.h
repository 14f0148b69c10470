// The state behind the stand-in's functions. CUDA's functions get no context, so there is one for the process; it is
// never destroyed, because kernels are unregistered after everything else.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/cuda_stand_in/device_memory.h"
#include "testing/cuda_stand_in/kernels.h"
#include "testing/cuda_stand_in/launch.h"
#include "testing/cuda_stand_in/streams.h"

namespace lockstep::cuda_stand_in {

// State of a thread.
struct ThreadState {
  int last_error = 0;  // for cudaGetLastError()
  std::string refusal;
  int device = 0;
  int capture_mode = 0;  // cudaStreamCaptureModeGlobal
};
ThreadState& this_thread();

class Runtime {
 public:
  static Runtime& get();

  void install(Executor* executor);

  // The members below are used under the lock.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  DeviceMemory memory;
  Streams streams{memory};
  Kernels kernels;
  std::map<const void*, std::shared_ptr<Event>> events;
  std::map<const void*, std::shared_ptr<Graph>> graphs;  // graphs and executable graphs
  std::set<std::pair<int, int>> peers;                   // device, and the peer whose memory it may use
  std::size_t stack_bytes = 1024;
  DescribedGpu described;
  int fault = 0;  // once a kernel has failed: the code that every call returns
  std::string fault_text;

  Executor* executor() const { return executor_; }
  int num_devices() const { return num_devices_; }

  // Something was queued: begins it, here or in the thread that is the GPU.
  void advance();
  // Waits until the GPU's progress makes `done` true. Throws Refused after a fault, or after a minute.
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  // Lets the GPU go on for a moment, before a program that polls is told that it is not done.
  void give_way(std::unique_lock<std::mutex>& lock);
  void count_refusal(const std::string& call, const std::string& why);

 private:
  Runtime();
  void be_the_gpu(const std::stop_token& stop);
  void step(std::unique_lock<std::mutex>& lock);
  void report() const;

  std::mutex mutex_;
  std::condition_variable_any work_;  // for the GPU's thread
  std::condition_variable progress_;  // for those that wait for it
  Executor* executor_ = nullptr;
  std::jthread gpu_;
  int num_devices_ = 1;
  std::map<std::string, std::size_t> refusals_;  // texts, and how often
};

}  // namespace lockstep::cuda_stand_in
