// Counts the bytes that a rank's collectives send, from the plans that they run. A library's collective (NCCL) has no
// plan and counts as sending the minimum.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/backends/mesh.h"

namespace lockstep::step_bench {

class SentCounter {
 public:
  // `channels` belong to the mesh and must outlive this.
  explicit SentCounter(std::span<const backends::Channel> channels) : channels_(channels) {}

  // Returns the rank with collectives that count their bytes on each run. This counter and `rank` must outlive the
  // result.
  backends::MeshRank counting(backends::MeshRank& rank);

  // Bytes that this rank has sent since the start.
  struct Bytes {
    std::int64_t sent = 0;
    double least = 0;  // mean over members, by algorithms that send the minimum (schedules::wire_bytes)
  };
  Bytes so_far() const { return {sent_.load(), least_.load()}; }

 private:
  backends::Prepared prepare(const backends::MeshRank& rank, std::size_t channel,
                             const collectives::Operation& operation, std::string_view algorithm);

  std::span<const backends::Channel> channels_;
  std::atomic<std::int64_t> sent_{0};  // atomic because lanes run concurrently
  std::atomic<double> least_{0};
};

// True if the traffic (`least` bytes at minimum) has the bytes of the minimum formula and no fewer were sent.
bool sent_as_formula(double sent, double least, double formula);

}  // namespace lockstep::step_bench
