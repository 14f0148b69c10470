// The frame of every function of CUDA that the stand-in defines.
#pragma once

#include <mutex>

#include "testing/cuda_stand_in/refused.h"
#include "testing/cuda_stand_in/runtime.h"

namespace lockstep::cuda_stand_in {

inline int note_refusal(const Refused& refused) {
  this_thread().last_error = refused.code();
  this_thread().refusal = refused.what();
  return refused.code();
}

// Calls body(runtime, lock) under the lock, and returns the code with which it is refused, or 0. After a fault of a
// kernel every call is refused.
template <class Code, class Body>
Code guarded(Body body) {
  try {
    Runtime& runtime = Runtime::get();
    std::unique_lock<std::mutex> lock = runtime.lock();
    if (runtime.fault != 0) throw Refused(runtime.fault, runtime.fault_text);
    body(runtime, lock);
    return static_cast<Code>(0);
  } catch (const Refused& refused) {
    return static_cast<Code>(note_refusal(refused));
  }
}

// The thread is about to make a call that may wait for the device.
inline void check_may_wait(Runtime& runtime, const char* call) {
  constexpr int kRelaxed = 2;  // cudaStreamCaptureModeRelaxed
  if (this_thread().capture_mode != kRelaxed) runtime.streams.check_no_capture(call);
}

}  // namespace lockstep::cuda_stand_in
