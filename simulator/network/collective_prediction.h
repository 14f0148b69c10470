// How a collective is run, and what it takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::simulator {

enum class CollectiveAlgorithm : std::uint8_t { ring, tree, exchange, nvls, nvls_tree, pat, measured };
std::string_view name_of(CollectiveAlgorithm algorithm);

// How NCCL's thread blocks hand over data: LL, 8 bytes with 8 of flags; LL128, 120 bytes with 8 of flags; Simple, slots
// of a buffer with a fence behind each. None for what is not NCCL's.
enum class Protocol : std::uint8_t { ll, ll128, simple, none };
std::string_view name_of(Protocol protocol);

struct CollectivePrediction {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Protocol protocol = Protocol::none;
  double latency_us = 0;
  double transfer_us = 0;
  double time_us() const { return latency_us + transfer_us; }
};
// "ring", "ring ll128"
std::string way_of(const CollectivePrediction& made);

}  // namespace lockstep::simulator
