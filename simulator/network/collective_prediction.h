// The algorithm and protocol of a collective, and its predicted time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::simulator {

enum class CollectiveAlgorithm : std::uint8_t { ring, tree, exchange, nvls, nvls_tree, pat, measured };
std::string_view name_of(CollectiveAlgorithm algorithm);

// NCCL's protocols: LL sends 4 bytes of data with each 4 bytes of flags, LL128 120 bytes with 8 of flags, Simple whole
// buffer slots with a fence after each. `none` if NCCL does not run the collective.
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
