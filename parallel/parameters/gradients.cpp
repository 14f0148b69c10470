// Gradients of a store: added to in the rank's own thread, reduced in a lane's.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cast/cast.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {

// ---- the rank's own thread

Tensor& ParameterStore::Data::open_gradient(Bucket& of) {
  if (!of.open.given()) of.open = zeroed(MemoryKind::gradients, options.gradient, of.flat.elems);
  return of.open;
}

kernels::InOut ParameterStore::Data::kept_gradient(std::size_t parameter) {
  const FlatRange range = position(parameter).range;
  Bucket& bucket = bucket_of(parameter);
  if (scatters_gradients()) return open_gradient(bucket).inout(range.begin, range.count());
  LOCKSTEP_CHECK(bucket.times_reduced == 0 || options.shards == 1,
                 "a gradient of " + parameters[parameter].name + " after the reduction of its bucket");
  return bucket.gradient.inout(range);
}

namespace {

void cast(const kernels::In& from, const kernels::Out& to, const kernels::Context& where) {
  kernels::run(kernels::Cast{.count = from.elems, .from = from.dtype, .to = to.dtype, .x = from, .y = to}, where);
}

}  // namespace

kernels::InOut ParameterStore::gradient(std::size_t parameter) {
  if (!data_->narrow_gradients()) return data_->kept_gradient(parameter);
  Tensor& copy = data_->working.at(parameter);
  if (copy.given()) return copy.inout();
  const std::int64_t elems = data_->position(parameter).range.count();
  if (data_->scatters_gradients() && !data_->bucket_of(parameter).open.given()) {
    copy = data_->zeroed(MemoryKind::buffers, core::DType::f32, elems);
  } else {
    copy = data_->memory.make(MemoryKind::buffers, core::DType::f32, elems);
    cast(data_->kept_gradient(parameter).in(), copy.out(), data_->where);
  }
  return copy.inout();
}

void ParameterStore::commit(std::int32_t part) {
  for (std::size_t p = 0; p < data_->parameters.size(); ++p) {
    Tensor& copy = data_->working[p];
    if (data_->parameters[p].part != part || !copy.given()) continue;
    cast(copy.in(), data_->kept_gradient(p).out(), data_->where);
    copy.reset();
  }
  if (!data_->scatters_gradients() || !data_->options.reduce_every_microbatch) return;
  for (Bucket& bucket : data_->buckets) data_->count_commit(bucket, part);
}

void ParameterStore::Data::count_commit(Bucket& of, std::int32_t part) {
  std::int64_t fewest = of.times_closed + 1;
  for (Bucket::PartCommits& one : of.parts) {
    one.commits += one.part == part ? 1 : 0;
    fewest = std::min(fewest, one.commits);
  }
  if (fewest > of.times_closed) close(of);
}

void ParameterStore::Data::close(Bucket& of) {
  Tensor& complete = open_gradient(of);
  ++of.times_closed;
  const std::lock_guard lock(closed_mutex);
  of.closed.push_back(std::move(complete));
}

void ParameterStore::zero_gradients() {
  for (Bucket& bucket : data_->buckets) {
    LOCKSTEP_CHECK(!bucket.is_reduced, "gradients are being reduced");
    if (!data_->scatters_gradients()) {
      set_zero(data_->memory.device(), data_->where, bucket.gradient.tensor.out());
    }
    bucket.times_reduced = 0;
    bucket.open.reset();
    bucket.closed.clear();
    bucket.times_closed = 0;
    for (Bucket::PartCommits& one : bucket.parts) one.commits = 0;
  }
  for (Tensor& copy : data_->working) copy.reset();
}

// ---- the thread that reduces

Tensor ParameterStore::Data::take_complete(Bucket& of) {
  if (!options.reduce_every_microbatch) {
    LOCKSTEP_CHECK(of.open.given(), "a reduction without gradients");
    return std::move(of.open);
  }
  const std::lock_guard lock(closed_mutex);
  LOCKSTEP_CHECK(!of.closed.empty(), "a reduction before all gradients of its bucket were committed");
  Tensor complete = std::move(of.closed.front());
  of.closed.pop_front();
  return complete;
}

ParameterStore::Reduction ParameterStore::reduction(std::int32_t index) {
  Bucket& bucket = data_->bucket(index);
  LOCKSTEP_CHECK(!bucket.is_reduced, "a bucket is reduced twice at once");
  if (!data_->scatters_gradients()) {
    LOCKSTEP_CHECK(bucket.times_reduced == 0 || data_->options.shards == 1,
                   "stages 0 and 1 reduce gradients once a step");
    bucket.is_reduced = true;
    return {bucket.gradient.tensor.in(), bucket.gradient.out(bucket.own)};
  }
  bucket.reducing = data_->take_complete(bucket);
  bucket.is_reduced = true;
  if (bucket.times_reduced == 0) return {bucket.reducing.in(), bucket.gradient.tensor.out()};
  bucket.landing = data_->memory.make(MemoryKind::buffers, data_->options.gradient, bucket.own.count());
  return {bucket.reducing.in(), bucket.landing.out()};
}

kernels::InOut ParameterStore::landed(std::int32_t index) {
  Bucket& bucket = data_->bucket(index);
  LOCKSTEP_CHECK(bucket.is_reduced, "no reduction was begun");
  bucket.reducing.reset();
  return bucket.landing.given() ? bucket.landing.inout() : bucket.gradient.inout(bucket.own);
}

void ParameterStore::reduced(std::int32_t index) {
  LOCKSTEP_CHECK(data_->where.on_cpu(), "a queue's kernels are those of a context that the lane has");
  kernels::ThreadPool lane(1);  // this thread
  reduced(index, kernels::Context(lane));
}

void ParameterStore::reduced(std::int32_t index, const kernels::Context& lane) {
  Bucket& bucket = data_->bucket(index);
  LOCKSTEP_CHECK(bucket.is_reduced, "no reduction was begun");
  if (bucket.landing.given()) {
    kernels::run(kernels::ResidualAdd{.count = bucket.own.count(),
                                      .a = bucket.gradient.tensor.in(),
                                      .b = bucket.landing.in(),
                                      .y = bucket.gradient.tensor.out()},
                 lane);
  }
  bucket.landing.reset();
  bucket.reducing.reset();
  bucket.is_reduced = false;
  ++bucket.times_reduced;
}

FlatTensor& ParameterStore::Data::reduced_gradient(Bucket& of) {
  LOCKSTEP_CHECK(stage == 0 || of.times_reduced > 0, "gradients are used before they were reduced");
  return of.gradient;
}

kernels::InOut ParameterStore::own_gradient(std::int32_t index) {
  Bucket& bucket = data_->bucket(index);
  return data_->reduced_gradient(bucket).inout(bucket.own);
}

kernels::InOut ParameterStore::own_gradient_of(std::size_t parameter) {
  Bucket& bucket = data_->bucket_of(parameter);
  const FlatRange range = common_of(data_->position(parameter).range, bucket.own);
  if (range.empty()) return {nullptr, data_->options.gradient, 0};
  return data_->reduced_gradient(bucket).inout(range);
}

}  // namespace lockstep::parallel
