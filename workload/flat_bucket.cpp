#include "workload/flat_bucket.h"

namespace lockstep::workload {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t grain) {
  return (value + grain - 1) / grain * grain;
}

}  // namespace

FlatBucket lay_out(std::span<const std::int64_t> member_elems, std::int32_t shards) {
  FlatBucket bucket;
  for (const std::int64_t elems : member_elems) {
    const std::int64_t begin = rounded_up(bucket.elems, kFlatGrain);
    bucket.places.push_back({begin, begin + elems});
    bucket.elems = begin + elems;
  }
  bucket.elems = rounded_up(bucket.elems, shards * kFlatGrain);
  return bucket;
}

}  // namespace lockstep::workload
