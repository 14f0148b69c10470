// Decides which implementation computes a training run's matrix products: once, before the ranks start, the same for
// all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/record.h"
#include "kernels/gemm/gemm_probe.h"
#include "trainer/train/options.h"

namespace lockstep::mini_train {

inline constexpr const char* kProbeGemms = "probe";  // the default of --gemm

// The facts on which the decision depends.
struct GemmQuestion {
  std::string flag;               // --gemm
  core::DType dtype;              // dtype of the run
  std::string checkpoint;         // implementation of the run that wrote the checkpoint; empty: unknown
  std::vector<std::string> here;  // implementations for this dtype that all ranks have, in the fixed order
  std::function<std::vector<kernels::GemmTime>()> probe;  // times these; called at most once
};

// Returns the implementation that the flag names, otherwise the checkpoint's, otherwise the fastest in the probe.
// Throws a usage Error if the flag names one that is not available.
core::GemmRecord decide_gemm(const GemmQuestion& question);

// The decision for a run on the CPU. `threads`: number of this process's kernel threads that have a core each. Under
// mpirun all ranks call it: an implementation counts as fast as on its slowest rank.
core::GemmRecord decide_gemm(const std::string& flag, const trainer::TrainOptions& options, int threads);

// One line of the heading.
std::string gemm_text(const core::GemmRecord& gemm);

}  // namespace lockstep::mini_train
