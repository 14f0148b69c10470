#include "bench/pipeline/recurrence.h"

#include <algorithm>

namespace lockstep::pipeline {

double end_of_buckets_ms(std::span<const BucketTimes> buckets) {
  double end_ms = 0;
  for (const BucketTimes& bucket : buckets) end_ms = std::max(end_ms, bucket.ready_ms) + bucket.transfer_ms;
  return end_ms;
}

}  // namespace lockstep::pipeline
