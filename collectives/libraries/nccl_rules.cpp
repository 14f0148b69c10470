#include "collectives/libraries/nccl_rules.h"

#include <fmt/format.h>

#include <bit>
#include <map>

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using core::DType;

// Kinds in which a block that is still to be sent would be overwritten by one that arrives, in no known order.
bool overwrites_in_place(Kind kind) {
  return kind == Kind::all_to_all || kind == Kind::all_to_all_v || kind == Kind::send_recv;
}

bool is_fp8(DType dtype) {
  return dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
}

// NCCL 2.28 refuses to reduce 8-bit floats on GPUs before Hopper (src/enqueue.cc).
constexpr int kReducesFp8From = 90;

}  // namespace

std::optional<std::string> nccl_refusal(const collectives::Operation& operation, int num_ranks,
                                        int compute_capability) {
  const Kind kind = operation.kind;
  if (operation.in_place && overwrites_in_place(kind)) {
    return fmt::format("NCCL has no {} in place", collectives::name_of(kind));
  }
  if (kind == Kind::hypercube && !std::has_single_bit(static_cast<unsigned>(num_ranks))) {
    return fmt::format("hypercube needs a power of two of ranks, not {}", num_ranks);
  }
  if (collectives::has_op(kind) && is_fp8(operation.dtype) && compute_capability < kReducesFp8From) {
    return fmt::format("NCCL reduces {} on GPUs of compute capability 9.0 and above; this one has {}.{}",
                       core::name_of(operation.dtype), compute_capability / 10, compute_capability % 10);
  }
  return std::nullopt;
}

std::optional<std::string> shared_gpu_refusal(std::span<const GpuUuid> gpus) {
  std::map<GpuUuid, std::size_t> rank_on;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [first, added] = rank_on.emplace(gpus[rank], rank);
    if (!added) {
      return fmt::format("NCCL needs one GPU a rank, but ranks {} and {} are on the same one", first->second, rank);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::libraries
