// What other trainers say that they need, in bytes of a rank: to set their figures beside zero_bytes.h's.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lockstep::parallel {

// Megatron-LM's distributed optimizer (its docs, "Distributed Optimizer": bytes a parameter for d data-parallel ranks).
//   parameters                      all ranks alike   distributed
//   f16, gradients f16              20                4 + 16/d     gradients in f32 for the optimizer, too
//   bf16, gradients f32             18                6 + 12/d     as stage 1 here
//   f32, gradients f32              16                8 + 8/d      as stage 1 here
double megatron_bytes_a_parameter(core::DType parameters, std::int32_t ranks, bool distributed);

// DeepSpeed's estimators of "model states" (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py), as their code has
// them since pull request #5099; memory.rst still printed 4P + 16P/N for stage 2 then. 18 bytes a parameter are
// gradients in 16 and 32 bits (2 + 4), master weights (4) and moments (8).
enum class DeepSpeedOffload : std::uint8_t {
  none,
  optimizer,       // to the host
  parameters_too,  // stage 3 only
};
struct DeepSpeedCase {
  std::int64_t parameters = 0;     // P
  std::int64_t largest_layer = 0;  // parameters; stage 3
  std::int32_t ranks = 1;          // N
  std::int32_t nodes = 1;
  DeepSpeedOffload offload = DeepSpeedOffload::none;
};
std::int64_t deepspeed_stage2_device_bytes(const DeepSpeedCase& of);
std::int64_t deepspeed_stage3_device_bytes(const DeepSpeedCase& of);

// A node's host memory, with their factor of 1.5 for buffers: of stage 2 with the optimizer there, of stage 3 with all
// there.
std::int64_t deepspeed_stage2_host_bytes(const DeepSpeedCase& of);
std::int64_t deepspeed_stage3_host_bytes(const DeepSpeedCase& of);

}  // namespace lockstep::parallel
