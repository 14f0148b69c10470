// Which of NCCL's own algorithms and protocols runs a collective: plain words and rules, without NCCL.
//
// NCCL reads NCCL_ALGO and NCCL_PROTO when a communicator is made (ncclTopoTuneModel, src/graph/tuning.cc), not by
// call: each choice is a communicator of its own, made while they are set (nccl_group.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "collectives/collective.h"

namespace lockstep::libraries {

// As NCCL's variables have it; empty: what they were before, or NCCL's own choice.
struct NcclChoice {
  std::string algo;
  std::string proto;
  friend bool operator==(const NcclChoice&, const NcclChoice&) = default;
  friend bool operator<(const NcclChoice& a, const NcclChoice& b) {
    return std::tie(a.algo, a.proto) < std::tie(b.algo, b.proto);
  }
};

// "library:algo=ring:proto=ll128", each part but the first may be left out. Throws a usage Error.
NcclChoice parse_nccl_choice(std::string_view text);

// Why NCCL has no such algorithm or protocol in this collective, in one line; nothing if it has one, on machines that
// are made for it.
std::optional<std::string> choice_refusal(const NcclChoice& choice, collectives::Kind kind);

}  // namespace lockstep::libraries
