// Counts the bytes that a rank's collectives send, in the plans that they run. A library's collective (NCCL's) has no
// plan, and counts as one that sends as few bytes as can be.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "collectives/backends/mesh.h"

namespace lockstep::parallel_bench {

class SentCounter {
 public:
  // `channels`: of the mesh; outlive this.
  explicit SentCounter(std::span<const backends::Channel> channels) : channels_(channels) {}

  // The rank with collectives that count what they send each time they run. This and `rank` outlive it and them.
  backends::MeshRank counting(backends::MeshRank& rank);

  // By this rank since the start.
  struct Bytes {
    std::int64_t sent = 0;
    double least = 0;  // the mean of the members, by algorithms that send as few as can be (schedules::wire_bytes)
  };
  Bytes so_far() const { return {sent_.load(), least_.load()}; }

 private:
  backends::Prepared prepare(const backends::MeshRank& rank, std::size_t channel,
                             const collectives::Operation& operation, std::string_view algorithm);

  std::span<const backends::Channel> channels_;
  std::atomic<std::int64_t> sent_{0};  // lanes run side by side
  std::atomic<double> least_{0};
};

// Whether what travelled (`least` of it) has the bytes that the formula of the fewest says, and was sent by no fewer.
bool sent_as_formula(double sent, double least, double formula);

}  // namespace lockstep::parallel_bench
