// Runs a GroupStream's combinations by our kernels, on a CUDA stream.
#pragma once

#include <memory>

#include "collectives/executors/grouped/grouped_executor.h"
#include "core/device.h"

namespace lockstep::executors {

// Used by the rank's thread only; the device and the stream outlive it.
class CudaCombiner {
 public:
  CudaCombiner(core::Device& device, core::Stream& stream, int rank);
  ~CudaCombiner();
  CudaCombiner(const CudaCombiner&) = delete;
  CudaCombiner& operator=(const CudaCombiner&) = delete;
  void combine(const Combination& combination);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::executors
