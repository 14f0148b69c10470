// Old weights that microbatches continue to read while updates make newer ones.
#include <algorithm>

#include "core/error.h"
#include "kernels/bucket/bucket.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {

bool ParameterStore::Data::is_held(std::int64_t version) const {
  return std::any_of(versions.held.begin(), versions.held.end(),
                     [version](const auto& one) { return one.second == version; });
}

void ParameterStore::Data::copy_newest(WeightVersions::Copy& to) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t elems = buckets[b].flat.elems;
    if (b == to.size()) to.push_back(memory.make(MemoryKind::weights, options.compute, elems));
    kernels::PackBucket copy;
    copy.counts = {elems};
    copy.pieces = {buckets[b].weights.tensor.in()};
    copy.bucket = to[b].out();
    kernels::run(copy, where);
  }
}

void ParameterStore::Data::copy_held() {
  if (is_held(versions.newest) && versions.copies.count(versions.newest) == 0) {
    copy_newest(versions.copies[versions.newest]);
  }
}

void ParameterStore::hold(std::int32_t reader) {
  LOCKSTEP_CHECK(data_->stage == 0, "versions of whole weights");
  if (holds(reader)) release(reader);
  data_->versions.held[reader] = data_->versions.newest;
}

bool ParameterStore::holds(std::int32_t reader) const {
  return data_->versions.held.count(reader) > 0;
}

void ParameterStore::release(std::int32_t reader) {
  const auto held = data_->versions.held.find(reader);
  LOCKSTEP_CHECK(held != data_->versions.held.end(), "weights are released that were not held");
  const std::int64_t version = held->second;
  data_->versions.held.erase(held);
  data_->versions.read = nullptr;
  if (!data_->is_held(version)) data_->versions.copies.erase(version);
}

void ParameterStore::copy_held() {
  data_->copy_held();
}

void ParameterStore::read_as(std::int32_t reader) {
  const auto held = data_->versions.held.find(reader);
  LOCKSTEP_CHECK(held != data_->versions.held.end(), "weights are read that were not held");
  const auto copy = data_->versions.copies.find(held->second);
  LOCKSTEP_CHECK(copy != data_->versions.copies.end() || held->second == data_->versions.newest,
                 "old weights were copied before they changed");
  data_->versions.read = copy == data_->versions.copies.end() ? nullptr : &copy->second;
}

void ParameterStore::read_newest() {
  data_->versions.read = nullptr;
}

}  // namespace lockstep::parallel
