// One benchmark: a kernel's case run in one way, and its results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/kernels/roofline.h"
#include "core/record.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// Times of one call by Google Benchmark, which calls with more and more iterations and reports the last calls.
struct Trial {
  std::vector<double> samples_us;  // each is the mean of a batch of calls
  std::int64_t iterations = 0;
};

struct Outcome {
  std::vector<Trial> trials;
  std::vector<int> cores;
  std::vector<core::GpuStateRecord> gpu_states;     // right after the last trial's samples, if there is NVML
  std::optional<core::GpuClocksRecord> gpu_clocks;  // the same of its clocks
  std::string implementation;                       // which of several implementations ran; empty if there is only one
  bool left_out = false;                            // because the time budget was over
  bool checked = false;
  std::string status = "ok";  // or "wrong", "failed"
  std::string error;
};

struct Instance {
  const kernels::KernelCase* one;
  Setting setting;
  std::string timing;  // "host", "events", "graph"
  Outcome outcome = {};

  // "layernorm_fwd/bf16/B8_T1024_C768/cpu/threads:2/cold", "gelu_fwd/f32/B8_T128_C1024/cuda/graph/warm"; with more than
  // one copy "gelu_fwd/f32/B8_T128_C1024/cpu/threads:1/copies:2/warm"
  std::string name() const {
    std::string how = setting.device == "cpu" ? "threads:" + std::to_string(setting.threads) : timing;
    if (setting.copies > 1) how += "/copies:" + std::to_string(setting.copies);
    return one->name() + "/" + setting.device + "/" + how + "/" + name_of(setting.cache);
  }
};

}  // namespace lockstep::kernel_bench
