// The NCCL algorithm and protocol that run a collective: plain text and rules, without NCCL.
//
// NCCL reads NCCL_ALGO and NCCL_PROTO when a communicator is made (ncclTopoTuneModel, src/graph/tuning.cc), not per
// call: each choice is a communicator of its own, made while they are set (nccl_group.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "collectives/collective.h"

namespace lockstep::libraries {

// Values of NCCL's variables; empty: unchanged, so the user's value or NCCL's own choice.
struct NcclChoice {
  std::string algo;
  std::string proto;
  friend bool operator==(const NcclChoice&, const NcclChoice&) = default;
  friend bool operator<(const NcclChoice& a, const NcclChoice& b) {
    return std::tie(a.algo, a.proto) < std::tie(b.algo, b.proto);
  }
};

// Parses "library:algo=ring:proto=ll128"; every part but the first is optional. Throws a usage Error.
NcclChoice parse_nccl_choice(std::string_view text);

// Returns in one line why NCCL has no such algorithm or protocol for this collective; nothing if it has one, on
// machines that support it.
std::optional<std::string> choice_refusal(const NcclChoice& choice, collectives::Kind kind);

}  // namespace lockstep::libraries
