// Gradients of a store: the rank's own thread adds to them, a lane's thread reduces them.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cast/cast.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/residual/residual.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {

// ---- the rank's own thread

Tensor& ParameterStore::Data::microbatch_gradient(Bucket& of) {
  if (!of.added_to.given()) of.added_to = zeroed(MemoryKind::gradients, options.gradient, of.flat.elems);
  return of.added_to;
}

void ParameterStore::Data::make_gradient(Bucket& of) {
  if (of.gradient.tensor.given()) return;
  const FlatRange kept = scatters_gradients() ? of.own : FlatRange{0, of.flat.elems};
  of.gradient = {zeroed(MemoryKind::gradients, options.gradient, kept.count()), kept.begin};
}

kernels::InOut ParameterStore::Data::kept_gradient(std::size_t parameter) {
  const FlatRange range = position(parameter).range;
  Bucket& bucket = bucket_of(parameter);
  if (scatters_gradients()) return microbatch_gradient(bucket).inout(range.begin, range.count());
  LOCKSTEP_CHECK(bucket.gradients_are == Bucket::Gradients::open || bucket.shards == 1,
                 "a gradient of " + parameters[parameter].name + " after the reduction of its bucket");
  make_gradient(bucket);
  return bucket.gradient.inout(range);
}

namespace {

void cast(const kernels::In& from, const kernels::Out& to, const kernels::Context& where) {
  kernels::run(kernels::Cast{.count = from.elems, .from = from.dtype, .to = to.dtype, .x = from, .y = to}, where);
}

}  // namespace

ParameterStore::PartGradients ParameterStore::gradients(std::int32_t part) {
  return {*data_, part};
}

kernels::InOut ParameterStore::PartGradients::of(std::size_t parameter) {
  Data& data = data_.get();
  if (!data.narrow_gradients()) return data.kept_gradient(parameter);
  Tensor& copy = data.working.at(parameter);
  if (copy.given()) return copy.inout();
  const std::int64_t elems = data.position(parameter).range.count();
  if (data.scatters_gradients() && !data.bucket_of(parameter).added_to.given()) {
    copy = data.zeroed(MemoryKind::buffers, core::DType::f32, elems);
  } else {
    copy = data.memory.make(MemoryKind::buffers, core::DType::f32, elems);
    cast(data.kept_gradient(parameter).in(), copy.out(), data.where);
  }
  return copy.inout();
}

void ParameterStore::PartGradients::commit() && {
  Data& data = data_.use_up();
  for (std::size_t p = 0; p < data.parameters.size(); ++p) {
    Tensor& copy = data.working[p];
    if (data.parameters[p].part != part_ || !copy.given()) continue;
    cast(copy.in(), data.kept_gradient(p).out(), data.where);
    copy.reset();
  }
  if (!data.scatters_gradients() || !data.options.reduce_every_microbatch) return;
  for (Bucket& bucket : data.buckets) data.count_commit(bucket, part_);
}

void ParameterStore::Data::count_commit(Bucket& of, std::int32_t part) {
  const std::int64_t wanted = (of.times_complete + 1) * options.commits_per_microbatch;
  std::int64_t fewest = wanted;
  for (Bucket::PartCommits& part_commits : of.parts) {
    part_commits.commits += part_commits.part == part ? 1 : 0;
    fewest = std::min(fewest, part_commits.commits);
  }
  if (fewest >= wanted) complete(of);
}

void ParameterStore::Data::complete(Bucket& of) {
  Tensor& whole = microbatch_gradient(of);
  ++of.times_complete;
  const std::lock_guard lock(complete_mutex);
  of.complete.push_back(std::move(whole));
}

void ParameterStore::zero_gradients() {
  if (data_->options.offload.delays()) data_->offloaded->turn_gradients();
  for (Bucket& bucket : data_->buckets) {
    LOCKSTEP_CHECK(
        bucket.gradients_are == Bucket::Gradients::open || bucket.gradients_are == Bucket::Gradients::reduced,
        "gradients are being reduced");
    bucket.gradients_are = Bucket::Gradients::open;
    if (!data_->scatters_gradients() && bucket.gradient.tensor.given()) {
      set_zero(data_->memory.device(), data_->where, bucket.gradient.tensor.out());
    }
    bucket.has_offloaded_gradient = false;
    bucket.added_to.reset();
    bucket.complete.clear();
    bucket.times_complete = 0;
    for (Bucket::PartCommits& part_commits : bucket.parts) part_commits.commits = 0;
  }
  for (Tensor& copy : data_->working) copy.reset();
}

// ---- the thread that reduces

Tensor ParameterStore::Data::take_complete(Bucket& of) {
  if (!options.reduce_every_microbatch) {
    LOCKSTEP_CHECK(of.added_to.given(), "a reduction without gradients");
    return std::move(of.added_to);
  }
  const std::lock_guard lock(complete_mutex);
  LOCKSTEP_CHECK(!of.complete.empty(), "a reduction before all gradients of its bucket were committed");
  Tensor whole = std::move(of.complete.front());
  of.complete.pop_front();
  return whole;
}

ParameterStore::Reduction ParameterStore::reduce(std::int32_t index) {
  Bucket& bucket = data_->bucket(index);
  const bool first = bucket.gradients_are == Bucket::Gradients::open;
  LOCKSTEP_CHECK(first || bucket.gradients_are == Bucket::Gradients::reduced, "a bucket is reduced twice at once");
  Reduction reduction(bucket);
  if (data_->scatters_gradients()) {
    reduction.microbatch_ = data_->take_complete(bucket);
    reduction.whole_ = reduction.microbatch_.in();
    const core::DType dtype = data_->options.gradient;
    if (data_->is_offloaded(workload::OffloadKind::gradients)) {
      reduction.landing_ = make_staged(data_->memory, MemoryKind::gradients, dtype, bucket.own.count());
    } else if (!bucket.gradient.tensor.given()) {  // the reduction writes the whole tensor
      bucket.gradient = {data_->memory.make(MemoryKind::gradients, dtype, bucket.own.count()), bucket.own.begin};
    }
    if (!reduction.landing_.given() && !first) {
      reduction.landing_ = unaligned(data_->memory.make(MemoryKind::buffers, dtype, bucket.own.count()));
    }
    reduction.result_ = reduction.landing_.given() ? reduction.landing_.out() : bucket.gradient.tensor.out();
  } else {
    LOCKSTEP_CHECK(first || bucket.shards == 1, "stages 0 and 1 reduce gradients once a step");
    reduction.whole_ = bucket.gradient.tensor.in();
    reduction.result_ = bucket.gradient.out(bucket.own);
  }
  bucket.gradients_are = Bucket::Gradients::reducing;
  return reduction;
}

kernels::In ParameterStore::Reduction::whole() const {
  bucket_.get();
  return whole_;
}

kernels::Out ParameterStore::Reduction::result() const {
  bucket_.get();
  return result_;
}

ParameterStore::Landed ParameterStore::Reduction::landed() && {
  Bucket& bucket = bucket_.use_up();
  bucket.gradients_are = Bucket::Gradients::landed;
  microbatch_.reset();
  return {bucket, std::move(landing_)};
}

kernels::InOut ParameterStore::Landed::shard() const {
  const Bucket& bucket = bucket_.get();
  return landing_.given() ? landing_.inout() : bucket.gradient.inout(bucket.own);
}

namespace {

// Calls run(context); CPU kernels run in the calling thread only.
template <class Run>
void in_lane(const kernels::Context& lane, const Run& run) {
  if (!lane.on_cpu()) return run(lane);
  kernels::ThreadPool this_thread(1);
  run(kernels::Context(this_thread));
}

void add(const kernels::In& shard, const kernels::InOut& to, const kernels::Context& where) {
  kernels::run(kernels::ResidualAdd{.count = shard.elems, .a = to.in(), .b = shard, .y = to.out()}, where);
}

}  // namespace

void ParameterStore::Landed::add(const kernels::Context& lane) && {
  Bucket& bucket = bucket_.use_up();
  if (landing_.given()) {
    in_lane(lane, [&](const kernels::Context& where) {
      parallel::add(landing_.in(), bucket.gradient.tensor.inout(), where);
    });
  }
  landing_.reset();
  bucket.gradients_are = Bucket::Gradients::reduced;
}

// The squares belong to the last microbatch's sum: earlier ones are overwritten.
void ParameterStore::Data::add_squares(Bucket& of, const StagedTensor& shard, const kernels::Context& lane) {
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(options.gradient));
  std::int64_t square = of.first_square;
  for (const FlatRange range : of.own_ranges(options.offload.counts_in_norm)) {
    const kernels::In x{static_cast<std::byte*>(shard.data) + elem_bytes * (range.begin - of.own.begin),
                        options.gradient, range.count()};
    kernels::run(kernels::SumOfSquares{.count = x.elems, .x = x, .sum = squares.out(square++, 1)}, lane);
  }
}

void ParameterStore::offload(std::int32_t index, Landed landed, const kernels::Context& lane) {
  constexpr auto kGradients = workload::OffloadKind::gradients;
  Bucket& bucket = landed.bucket_.use_up();
  LOCKSTEP_CHECK(data_->is_offloaded(kGradients), "gradients that are offloaded");
  const auto b = static_cast<std::size_t>(index);
  StagedTensor shard = std::move(landed.landing_);
  in_lane(lane, [&](const kernels::Context& where) {
    if (bucket.has_offloaded_gradient) {  // from earlier microbatches
      StagedTensor sum = make_staged(data_->memory, MemoryKind::gradients, data_->options.gradient, shard.elems);
      data_->offloaded->read(kGradients, b, sum);
      parallel::add(shard.in(), sum.inout(), where);
      std::swap(shard, sum);
      data_->offloaded->write(kGradients, b, shard);
    } else {
      data_->offloaded->write(kGradients, b, shard);
    }
    data_->add_squares(bucket, shard, where);
  });
  bucket.has_offloaded_gradient = true;
  bucket.gradients_are = Bucket::Gradients::reduced;
}

FlatTensor& ParameterStore::Data::reduced_gradient(Bucket& of) {
  LOCKSTEP_CHECK(stage == 0 || of.gradients_are == Bucket::Gradients::reduced,
                 "gradients are used before they were reduced");
  const std::lock_guard lock(complete_mutex);
  LOCKSTEP_CHECK(of.complete.empty() && !of.added_to.given(),
                 "gradients are used before a later microbatch's were reduced");
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
