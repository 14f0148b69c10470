// The closed form of gradient buckets: one stream of communication, in which each bucket waits for its gradients and
// for the bucket before it.
#pragma once

#include <algorithm>
#include <span>

namespace lockstep::schedules {

struct BucketTimes {
  double ready_ms = 0;     // time at which its last gradient is made
  double transfer_ms = 0;  // duration of its collective
};

// The end of the last bucket: end_k = max(end_{k-1}, ready_k) + transfer_k (Li et al. 2020, arXiv:2006.15704, section
// 3.2.3).
inline double end_of_buckets_ms(std::span<const BucketTimes> buckets) {
  double end_ms = 0;
  for (const BucketTimes& bucket : buckets) end_ms = std::max(end_ms, bucket.ready_ms) + bucket.transfer_ms;
  return end_ms;
}

}  // namespace lockstep::schedules
