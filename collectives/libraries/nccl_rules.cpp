#include "collectives/libraries/nccl_rules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>

#include <fmt/format.h>

#include "core/options.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using collectives::Operation;
using core::DType;

// Kernels that NCCL has: algos_of_coll and required_cuda() in its src/device/generate.py, as it is since pat came with
// 2.23; protocols other than simple exist for ring and tree. The names are ncclAlgoStr's and ncclProtoStr's
// (src/init.cc), compared without regard to case. NCCL itself decides what a machine, a dtype, an operation (nvls has
// sums, and minima and maxima of some dtypes) or a number of nodes excludes beyond that (ncclTopoTuneModel in
// src/graph/tuning.cc).
struct Algorithm {
  std::string_view name;
  bool has_low_latency;  // ll and ll128
  bool all_reduce;
  bool gathers_and_scatters;    // all_gather and reduce_scatter
  bool broadcasts_and_reduces;  // broadcast and reduce
};
constexpr std::array kAlgorithms{
    Algorithm{"ring", true, true, true, true},
    Algorithm{"tree", true, true, false, false},
    Algorithm{"nvls", false, true, true, false},
    Algorithm{"nvlstree", false, true, false, false},
    Algorithm{"collnetdirect", false, true, true, false},
    Algorithm{"collnetchain", false, true, false, false},
    Algorithm{"pat", false, false, true, false},
};
constexpr std::array<std::string_view, 3> kProtocols{"ll", "ll128", "simple"};

bool has(const Algorithm& algorithm, Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return algorithm.all_reduce;
    case Kind::all_gather:
    case Kind::reduce_scatter:
      return algorithm.gathers_and_scatters;
    case Kind::broadcast:
    case Kind::reduce:
      return algorithm.broadcasts_and_reduces;
    default:
      return false;
  }
}

const Algorithm* find(std::string_view name) {
  const auto* found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                                   [&](const Algorithm& algorithm) { return algorithm.name == name; });
  return found == kAlgorithms.end() ? nullptr : found;
}

std::string names(Kind kind) {
  std::string all;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (has(algorithm, kind)) all += (all.empty() ? "" : ", ") + std::string(algorithm.name);
  }
  return all;
}

constexpr std::array kFields{
    core::Field<NcclChoice>{"algo", "an algorithm",
                            [](NcclChoice& choice, const core::OptionText& v) {
                              std::vector<std::string_view> names;
                              for (const Algorithm& algorithm : kAlgorithms) names.push_back(algorithm.name);
                              choice.algo = v.one_of(names);
                            }},
    core::Field<NcclChoice>{"proto", "a protocol", [](NcclChoice& choice, const core::OptionText& v) {
                              choice.proto = v.one_of(kProtocols);
                            }}};

}  // namespace

NcclChoice parse_nccl_choice(std::string_view text) {
  NcclChoice choice;
  const std::vector<std::string_view> parts = core::split(text, ':');
  core::read_fields<NcclChoice>(choice, "--algo " + std::string(text), std::span(parts).subspan(1), kFields);
  return choice;
}

std::string nccl_choice_text(const NcclChoice& choice) {
  std::string text = "library";
  if (!choice.algo.empty()) text += ":algo=" + choice.algo;
  if (!choice.proto.empty()) text += ":proto=" + choice.proto;
  return text;
}

std::optional<std::string> choice_refusal(const NcclChoice& choice, Kind kind) {
  if (choice == NcclChoice{}) return std::nullopt;
  const std::string_view collective = collectives::name_of(kind);
  if (names(kind).empty()) {
    return fmt::format("NCCL has one algorithm for {}; allowed: library", collective);
  }
  if (choice.algo.empty()) return std::nullopt;
  const Algorithm& algorithm = *find(choice.algo);
  if (!has(algorithm, kind)) {
    return fmt::format("NCCL has no {} by {}; allowed: {}", collective, choice.algo, names(kind));
  }
  if (!choice.proto.empty() && choice.proto != "simple" && !algorithm.has_low_latency) {
    return fmt::format("NCCL's {} has no protocol {}; allowed: simple", choice.algo, choice.proto);
  }
  return std::nullopt;
}

namespace {

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

// Refuses a feature of a version that is newer than the oldest that we use.
std::optional<std::string> newer_refusal(std::string_view what, int since, int version_code) {
  if (version_code >= since) return std::nullopt;
  const std::string patch = since % 100 > 0 ? fmt::format(".{}", since % 100) : "";
  return fmt::format("{} needs NCCL 2.{}{}; this one is {}", what, since / 100 % 100, patch,
                     version_text(version_code));
}
constexpr int kWindows = 22700;      // ncclCommWindowRegister, CTAPolicy
constexpr int kCopyEngines = 22800;  // NCCL_CTA_POLICY_ZERO, and calls for what copy engines do
constexpr int kCopyEnginesBetweenHosts = 23006;

// Collectives of copy engines within an NVLink domain: they copy, and sum nothing. Between hosts, the first two only.
constexpr std::array kCopied{Kind::all_gather, Kind::all_to_all, Kind::gather, Kind::scatter};

}  // namespace

std::optional<std::string> nccl_refusal(const collectives::Operation& operation, int num_ranks,
                                        const NcclPlatform& platform) {
  const auto& [compute_capability, version_code] = platform;
  const Kind kind = operation.kind;
  if (kind == Kind::all_to_all || kind == Kind::gather || kind == Kind::scatter) {
    if (auto why = newer_refusal(collectives::name_of(kind), kCopyEngines, version_code)) return why;
  }
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
  constexpr int kOldest = 22400;
  if (version_code >= kOldest) return std::nullopt;
  return fmt::format("NCCL {} is too old; allowed: 2.24 or newer", version_text(version_code));
}

std::optional<std::string> settings_refusal(const NcclConfig& config, NcclRegistration registration, int version_code) {
  if (registration == NcclRegistration::symmetric) {
    if (auto why = newer_refusal("-R 2", kWindows, version_code)) return why;
  }
  const int policy = config.cta_policy.value_or(0);
  if (policy == 0) return std::nullopt;
  return newer_refusal(fmt::format("-x {}", policy), policy == 2 ? kCopyEngines : kWindows, version_code);
}

std::optional<std::string> zero_cta_refusal(Kind kind, NcclRegistration registration, int num_hosts, int version_code) {
  const auto* const copied = std::find(kCopied.begin(), kCopied.end(), kind);
  if (copied == kCopied.end()) {
    return "copy engines sum nothing and send no single messages: they do all_gather, all_to_all, gather and scatter";
  }
  if (registration != NcclRegistration::symmetric) return "copy engines need buffers in symmetric windows, -R 2";
  if (num_hosts == 1) return std::nullopt;
  if (copied - kCopied.begin() >= 2) return "between hosts copy engines do all_gather and all_to_all only";
  return newer_refusal("copying between hosts", kCopyEnginesBetweenHosts, version_code);
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

namespace {

// Every block of a buffer, sent to or received from the rank of the same number.
std::vector<Message> block_each(const std::vector<std::int64_t>& offsets) {
  std::vector<Message> messages;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    messages.push_back({.peer = static_cast<int>(b), .first = offsets[b], .count = offsets[b + 1] - offsets[b]});
  }
  return messages;
}

Round ring_shift(const Operation& operation, int num_ranks, int rank) {
  const int next = (rank + 1) % num_ranks;
  const int previous = (rank + num_ranks - 1) % num_ranks;
  return {.sends = {{.peer = next, .first = 0, .count = operation.count}},
          .receives = {{.peer = previous, .first = 0, .count = operation.count}}};
}

// In round k, neighbours across dimension k exchange the 2^k blocks that they hold by then.
std::vector<Round> hypercube(const Operation& operation, int num_ranks, int rank) {
  std::vector<Round> rounds;
  for (int width = 1; width < num_ranks; width *= 2) {
    const int peer = rank ^ width;
    const int mine = rank & ~(width - 1);
    const int theirs = peer & ~(width - 1);
    rounds.push_back(
        {.sends = {{.peer = peer, .first = mine * operation.count, .count = width * operation.count}},
         .receives = {{.peer = peer, .first = theirs * operation.count, .count = width * operation.count}}});
  }
  return rounds;
}

}  // namespace

Exchange exchange_of(const Operation& operation, int num_ranks, int rank) {
  switch (operation.kind) {
    case Kind::all_to_all_v:
      return {.own_block_at = std::nullopt,
              .rounds = {{.sends = block_each(input_offsets(operation, num_ranks, rank)),
                          .receives = block_each(output_offsets(operation, num_ranks, rank))}}};
    case Kind::send_recv:
      return {.own_block_at = std::nullopt, .rounds = {ring_shift(operation, num_ranks, rank)}};
    case Kind::hypercube:
      return {.own_block_at = rank * operation.count, .rounds = hypercube(operation, num_ranks, rank)};
    default:
      break;
  }
  LOCKSTEP_CHECK(false, "NCCL has a call for this collective");
  return {};
}

}  // namespace lockstep::libraries
