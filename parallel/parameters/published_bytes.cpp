#include "parallel/parameters/published_bytes.h"

#include <algorithm>

#include "core/error.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kSharded = 18;  // bytes a parameter that DeepSpeed's stages 2 and 3 spread out

std::int64_t with_buffers(std::int64_t bytes) {
  return bytes * 3 / 2;
}

}  // namespace

double megatron_bytes_a_parameter(core::DType parameters, std::int32_t ranks, bool distributed) {
  const double shards = distributed ? ranks : 1;
  switch (parameters) {
    case core::DType::f16:
      return 4 + 16 / shards;
    case core::DType::bf16:
      return 6 + 12 / shards;
    default:
      LOCKSTEP_CHECK(parameters == core::DType::f32, "Megatron-LM's table has f16, bf16 and f32");
      return 8 + 8 / shards;
  }
}

std::int64_t deepspeed_stage2_device_bytes(const DeepSpeedCase& of) {
  const std::int64_t sharded = of.offload == DeepSpeedOffload::none ? kSharded * of.parameters / of.ranks : 0;
  return 2 * of.parameters + sharded;
}

std::int64_t deepspeed_stage3_device_bytes(const DeepSpeedCase& of) {
  const std::int64_t layer = 4 * of.largest_layer;
  switch (of.offload) {
    case DeepSpeedOffload::none:
      return layer + kSharded * of.parameters / of.ranks;
    case DeepSpeedOffload::optimizer:
      return layer + 2 * of.parameters / of.ranks;
    case DeepSpeedOffload::parameters_too:
      break;
  }
  return layer;
}

std::int64_t deepspeed_stage2_host_bytes(const DeepSpeedCase& of) {
  LOCKSTEP_CHECK(of.offload == DeepSpeedOffload::optimizer, "the optimizer on the host");
  return with_buffers(of.parameters * std::max<std::int64_t>(4 * std::int64_t{of.ranks}, 16));
}

std::int64_t deepspeed_stage3_host_bytes(const DeepSpeedCase& of) {
  LOCKSTEP_CHECK(of.offload == DeepSpeedOffload::parameters_too, "optimizer and parameters on the host");
  return with_buffers(kSharded * of.parameters / of.nodes);
}

}  // namespace lockstep::parallel
