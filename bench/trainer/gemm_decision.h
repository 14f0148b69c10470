// Which implementation computes the products of a training run: decided once, before the ranks start, the same for all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/record.h"
#include "kernels/gemm/gemm_probe.h"
#include "trainer/train/options.h"

namespace lockstep::mini_train {

inline constexpr const char* kProbeGemms = "probe";  // the default of --gemm

// The facts that a decision follows from.
struct GemmQuestion {
  std::string flag;               // --gemm
  core::DType dtype;              // the run's
  std::string checkpoint;         // what the checkpoint that the run goes on from was computed with; empty: unknown
  std::vector<std::string> here;  // implementations that all ranks have for it, in the fixed order
  std::function<std::vector<kernels::GemmTime>()> probe;  // times those; called at most once
};

// The implementation that the flag names, or else the checkpoint, or else the fastest by the probe. Throws a usage
// Error if what the flag names is not here.
core::GemmRecord decide_gemm(const GemmQuestion& question);

// The decision for a run on the CPU. `threads`: of all ranks of this process together, as many as have cores. Under
// mpirun all ranks call it: an implementation is as slow as on its slowest rank.
core::GemmRecord decide_gemm(const std::string& flag, const trainer::TrainOptions& options, int threads);

// A line of the heading.
std::string gemm_text(const core::GemmRecord& gemm);

}  // namespace lockstep::mini_train
