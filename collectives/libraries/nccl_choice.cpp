#include "collectives/libraries/nccl_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;

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

void set_option(std::string_view part, std::string_view text, NcclChoice& choice) {
  const std::size_t equals = part.find('=');
  const std::string_view key = part.substr(0, equals);
  const std::string value(equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1));
  if (key == "algo" && find(value) != nullptr) {
    choice.algo = value;
  } else if (key == "proto" && std::find(kProtocols.begin(), kProtocols.end(), value) != kProtocols.end()) {
    choice.proto = value;
  } else {
    throw core::usage_error(
        fmt::format("--algo {}: '{}' is not an NCCL option; allowed: algo=ring, tree, nvls, nvlstree, collnetdirect, "
                    "collnetchain or pat, and proto=ll, ll128 or simple",
                    text, part));
  }
}

}  // namespace

NcclChoice parse_nccl_choice(std::string_view text) {
  NcclChoice choice;
  std::size_t colon = text.find(':');
  while (colon != std::string_view::npos) {
    const std::size_t begin = colon + 1;
    colon = text.find(':', begin);
    set_option(text.substr(begin, colon == std::string_view::npos ? colon : colon - begin), text, choice);
  }
  return choice;
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

}  // namespace lockstep::libraries
