#include "collectives/libraries/nccl_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using core::DType;

// Kinds in which an arriving block may overwrite one that is still to be sent, in no fixed order.
bool overwrites_in_place(Kind kind) {
  return kind == Kind::all_to_all || kind == Kind::all_to_all_v || kind == Kind::send_recv;
}

bool is_fp8(DType dtype) {
  return dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
}

// NCCL 2.28 refuses to reduce 8-bit floats on GPUs before Hopper (src/enqueue.cc).
constexpr int kReducesFp8From = 90;

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

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

std::optional<std::string> sharing_refusal(const NcclSharing& sharing) {
  constexpr int kSharesFrom = 23000;
  constexpr const char* kVariable = "NCCL_MULTI_RANK_GPU_ENABLE=1";
  const int code = sharing.version_code;
  if (code < kSharesFrom) {
    return fmt::format("NCCL {} needs one GPU per rank; NCCL 2.30 or newer lets ranks share one with {}",
                       version_text(code), kVariable);
  }
  if (!sharing.enabled) return fmt::format("NCCL lets ranks share a GPU only with {} in the environment", kVariable);
  return std::nullopt;
}

std::optional<std::string> version_refusal(int version_code) {
  constexpr int kOldest = 22800;
  if (version_code >= kOldest) return std::nullopt;
  return fmt::format("NCCL {} is too old; allowed: 2.28 or newer", version_text(version_code));
}

std::optional<std::string> shared_gpu_refusal(std::span<const GpuUuid> gpus, const NcclSharing& sharing) {
  const auto why = sharing_refusal(sharing);
  if (!why) return std::nullopt;
  std::map<GpuUuid, std::size_t> rank_on;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [first, added] = rank_on.emplace(gpus[rank], rank);
    if (!added) return fmt::format("ranks {} and {} are on the same GPU: {}", first->second, rank, *why);
  }
  return std::nullopt;
}

int most_blocks(std::span<const GpuUuid> gpus, int rank, int num_multiprocessors) {
  constexpr int kCluster = 4;
  constexpr int kMost = 32;  // more gain nothing: NCCL's own limit until 2.28
  const auto sharers = static_cast<int>(std::count(gpus.begin(), gpus.end(), gpus[static_cast<std::size_t>(rank)]));
  if (sharers == 1) return 0;
  const int share = num_multiprocessors * 3 / 4 / sharers;
  return std::clamp(share / kCluster * kCluster, 1, kMost);
}

NcclConfig config_within(const NcclConfig& asked, int most_blocks) {
  if (most_blocks == 0) return asked;
  const auto check = [most_blocks](const char* flag, const std::optional<int>& ctas) {
    if (ctas.value_or(0) <= most_blocks) return;
    throw core::usage_error(
        fmt::format("{} {}: ranks share a GPU, on which the thread blocks of all must run at the same time; allowed: 1 "
                    "to {}",
                    flag, *ctas, most_blocks));
  };
  check("--min-ctas", asked.min_ctas);
  check("--max-ctas", asked.max_ctas);
  NcclConfig config = asked;
  config.max_ctas = asked.max_ctas.value_or(most_blocks);
  return config;
}

}  // namespace lockstep::libraries
