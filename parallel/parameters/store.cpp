#include "parallel/parameters/store.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/bucket/bucket.h"
#include "kernels/cast/cast.h"
#include "kernels/copy/copy.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
namespace {

void check_options(const StoreOptions& options) {
  LOCKSTEP_CHECK(options.compute == core::DType::f32 || options.compute == core::DType::bf16 ||
                     options.compute == core::DType::f16,
                 "weights are f32, bf16 or f16");
  LOCKSTEP_CHECK(options.gradient == core::DType::f32 || options.gradient == options.compute,
                 "gradients are f32 or as weights are");
  LOCKSTEP_CHECK(options.zero >= 0 && options.zero <= 3, "ZeRO has stages 0 to 3");
  LOCKSTEP_CHECK(options.shard >= 0 && options.shard < options.shards, "a shard of those that there are");
}

}  // namespace

// ---- construction

namespace {

// The parts of a bucket's members, each once.
template <class PartCommits>
std::vector<PartCommits> parts_of(const std::vector<workload::Parameter>& parameters,
                                  const std::vector<std::size_t>& members) {
  std::vector<PartCommits> parts;
  for (const std::size_t member : members) {
    const std::int32_t part = parameters[member].part;
    const bool known = std::any_of(parts.begin(), parts.end(), [&](const auto& other) { return other.part == part; });
    if (!known) parts.push_back({part, 0});
  }
  return parts;
}

}  // namespace

Tensor ParameterStore::Data::zeroed(MemoryKind kind, core::DType dtype, std::int64_t elems) {
  return make_zeroed(memory, where, kind, dtype, elems);
}

ParameterStore::ParameterStore(Memory& memory, const kernels::Context& where,
                               std::vector<workload::Parameter> parameters, workload::TensorRank place,
                               std::vector<std::vector<std::size_t>> buckets, const StoreOptions& options)
    : data_(new Data{.memory = memory,
                     .where = where,
                     .parameters = std::move(parameters),
                     .place = place,
                     .options = options,
                     .stage = options.shards == 1 ? 0 : options.zero}) {
  check_options(options);
  data_->positions.resize(data_->parameters.size());
  data_->working.resize(data_->parameters.size());
  for (std::vector<std::size_t>& members : buckets) data_->add_bucket(std::move(members));
  if (options.offload.any()) data_->begin_offload();
  for (std::size_t p = 0; p < data_->parameters.size(); ++p) {
    LOCKSTEP_CHECK(data_->position(p).bucket >= 0, data_->parameters[p].name + " is in no bucket");
  }
}

ParameterStore::~ParameterStore() = default;

void ParameterStore::Data::add_bucket(std::vector<std::size_t> members) {
  std::vector<std::int64_t> elems;
  for (const std::size_t member : members) elems.push_back(workload::elems_of_share(parameters.at(member), place));
  Bucket& bucket = buckets.emplace_back();
  const bool is_of_experts = options.expert_shards > 0 && parameters.at(members.front()).expert;
  bucket.shards = is_of_experts ? options.expert_shards : options.shards;
  bucket.flat = workload::lay_out(elems, bucket.shards);
  bucket.own = stage == 0 ? FlatRange{0, bucket.flat.elems}
                          : bucket.flat.shard(bucket.shards, is_of_experts ? options.expert_shard : options.shard);
  for (std::size_t i = 0; i < members.size(); ++i) {
    Position& position = positions.at(members[i]);
    LOCKSTEP_CHECK(position.bucket < 0, parameters[members[i]].name + " is in two buckets");
    position = {static_cast<std::int32_t>(buckets.size()) - 1, bucket.flat.places[i]};
  }
  bucket.parts = parts_of<Bucket::PartCommits>(parameters, members);
  bucket.members = std::move(members);
  allocate(bucket);
}

void ParameterStore::Data::allocate(Bucket& bucket) {
  const FlatRange whole{0, bucket.flat.elems};
  const auto zeros = [this](MemoryKind kind, core::DType dtype, FlatRange range) {
    return FlatTensor{zeroed(kind, dtype, range.count()), range.begin};
  };
  if (stage == 3) bucket.weights_are = Bucket::Weights::sharded;
  if (!options.offload.parameters) {
    bucket.weights = zeros(MemoryKind::weights, options.compute, stage == 3 ? bucket.own : whole);
  }
  if (options.secondary_ranks > 0 && options.has_secondary.at(buckets.size() - 1)) {
    LOCKSTEP_CHECK(stage == 3, "a secondary copy of sharded weights");
    const FlatRange own = bucket.flat.shard(options.secondary_ranks, options.secondary_rank);
    bucket.secondary = zeros(MemoryKind::weights, options.compute, own);
  }
  if (!options.offload.gradients && !options.frees_gradients) make_gradient(bucket);
  if (options.offload.optimizer) return;
  if (narrow_weights()) bucket.master = zeros(MemoryKind::optimizer, core::DType::f32, bucket.own);
  const auto moment = [&](State which) {
    return has(which) ? zeros(MemoryKind::optimizer, core::DType::f32, bucket.own) : FlatTensor{};
  };
  bucket.first_moment = moment(State::first_moment);
  bucket.second_moment = moment(State::second_moment);
}

void ParameterStore::Data::begin_offload() {
  LOCKSTEP_CHECK(!options.offload.parameters || stage == 3, "weights are offloaded where they are sharded");
  LOCKSTEP_CHECK(!options.offload.gradients || scatters_gradients(), "gradients are offloaded where they are sharded");
  std::vector<FlatRange> own;
  std::int64_t squares_kept = 0;
  for (Bucket& bucket : buckets) {
    own.push_back(bucket.own);
    if (!options.offload.gradients) continue;
    bucket.first_square = squares_kept;
    squares_kept += static_cast<std::int64_t>(bucket.own_ranges(options.offload.counts_in_norm).size());
  }
  offloaded = std::make_unique<OffloadedShards>(memory, options, own);
  squares = memory.make(MemoryKind::buffers, core::DType::f64, squares_kept);
}

// ---- properties

const std::vector<workload::Parameter>& ParameterStore::parameters() const {
  return data_->parameters;
}

std::int32_t ParameterStore::num_buckets() const {
  return static_cast<std::int32_t>(data_->buckets.size());
}

std::int64_t ParameterStore::padded_elems(std::int32_t bucket) const {
  return data_->bucket(bucket).flat.elems;
}

std::int64_t ParameterStore::offloaded_bytes(workload::OffloadKind kind) const {
  return data_->offloaded ? data_->offloaded->moved_bytes(kind) : 0;
}

std::int32_t ParameterStore::bucket_of(std::size_t parameter) const {
  return data_->position(parameter).bucket;
}

// ---- weights

kernels::In ParameterStore::weight(std::size_t parameter) const {
  const FlatRange range = data_->position(parameter).range;
  const Bucket& bucket = data_->bucket_of(parameter);
  LOCKSTEP_CHECK(bucket.weights_are == Bucket::Weights::whole,
                 data_->parameters[parameter].name + " is used, but not gathered since it was resharded or updated");
  if (const WeightVersions::Copy* const old = data_->versions.read; old != nullptr) {
    return (*old)[static_cast<std::size_t>(data_->position(parameter).bucket)].in(range.begin, range.count());
  }
  return bucket.gathered.given() ? bucket.gathered.in(range.begin, range.count()) : bucket.weights.in(range);
}

ParameterStore::Gathering ParameterStore::gather(std::int32_t index, GatherFrom from) {
  Bucket& bucket = data_->bucket(index);
  const bool from_shards = from == GatherFrom::shards;
  LOCKSTEP_CHECK(from_shards || bucket.secondary_is_made, "a secondary copy is gathered, which was not made");
  LOCKSTEP_CHECK(data_->stage > 0 || data_->options.shards == 1, "weights of stage 0 are whole");
  LOCKSTEP_CHECK(bucket.weights_are != Bucket::Weights::gathering, "a bucket's weights are gathered twice at once");
  if (data_->stage == 3 && !bucket.gathered.given()) {
    bucket.gathered = data_->memory.make(MemoryKind::weights, data_->options.compute, bucket.flat.elems);
  }
  bucket.weights_are = Bucket::Weights::gathering;
  bucket.gathered_from_shards = from_shards;
  return {bucket, from};
}

void ParameterStore::load(std::int32_t index) {
  Bucket& bucket = data_->bucket(index);
  LOCKSTEP_CHECK(data_->is_offloaded(workload::OffloadKind::parameters), "weights that are offloaded");
  LOCKSTEP_CHECK(!bucket.loaded.given(), "a bucket's weights are loaded twice for one gather");
  bucket.loaded = make_staged(data_->memory, MemoryKind::weights, data_->options.compute, bucket.own.count());
  data_->offloaded->read(workload::OffloadKind::parameters, static_cast<std::size_t>(index), bucket.loaded);
}

kernels::In ParameterStore::Gathering::shard() const {
  const Bucket& bucket = bucket_.get();
  if (from_ == GatherFrom::secondary) return bucket.secondary.tensor.in();
  if (bucket.weights.tensor.given()) return bucket.weights.in(bucket.own);
  LOCKSTEP_CHECK(bucket.loaded.given(), "offloaded weights are gathered that were not loaded");
  return bucket.loaded.in();
}

kernels::Out ParameterStore::Gathering::whole() const {
  const Bucket& bucket = bucket_.get();
  return bucket.gathered.given() ? bucket.gathered.out() : bucket.weights.tensor.out();
}

void ParameterStore::Gathering::done() && {
  Bucket& bucket = bucket_.use_up();
  bucket.loaded.reset();
  bucket.weights_are = Bucket::Weights::whole;
}

void ParameterStore::reshard(std::int32_t index) {
  data_->reshard(data_->bucket(index));
}

void ParameterStore::Data::reshard(Bucket& of) const {
  if (stage < 3) return;
  LOCKSTEP_CHECK(of.weights_are != Bucket::Weights::gathering, "weights are given up while they are gathered");
  if (of.secondary.tensor.given() && of.gathered.given() && of.gathered_from_shards) make_secondary(of);
  of.gathered.reset();
  of.weights_are = Bucket::Weights::sharded;
}

void ParameterStore::Data::make_secondary(Bucket& of) const {
  kernels::CopyRows copy{1, of.secondary.tensor.elems()};
  copy.from = of.gathered.in(of.secondary.begin, copy.columns);
  copy.to = of.secondary.tensor.out();
  kernels::run(copy, where);
  of.secondary_is_made = true;
}

kernels::InOut ParameterStore::own_masters(std::int32_t index) {
  Bucket& bucket = data_->bucket(index);
  LOCKSTEP_CHECK(!data_->is_offloaded(data_->kind_of(State::master)), "master weights on the device");
  return data_->state(bucket, State::master).inout(bucket.own);
}

void ParameterStore::masters_changed() {
  using Use = OffloadedShards::Use;
  if (data_->narrow_weights()) {
    data_->visit_shards(0, data_->buckets.size(), {Use::reads, Use::none, Use::makes},
                        [this](Bucket&, FlatRange part, const ShardViews& views) {
                          kernels::run(kernels::Cast{.count = part.count(),
                                                     .from = core::DType::f32,
                                                     .to = data_->options.compute,
                                                     .x = views.master.in(),
                                                     .y = views.weights.out()},
                                       data_->where);
                        });
  }
  for (Bucket& bucket : data_->buckets) data_->others_changed(bucket);
  for (auto& [version, copy] : data_->versions.copies)
    data_->copy_newest(copy);  // between steps no weights are in flight
}

// The parts of a store that a checkpoint reads and writes.
namespace {

const kernels::InOut& state_in(const ShardViews& views, ParameterStore::State which) {
  switch (which) {
    case ParameterStore::State::master:
      return views.master;
    case ParameterStore::State::first_moment:
      return views.first_moment;
    default:
      return views.second_moment;
  }
}

}  // namespace

std::vector<ParameterStore::Data::Piece> ParameterStore::Data::pieces_of(const Bucket& of, FlatRange wanted,
                                                                         std::int64_t most_elems) const {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < of.members.size(); ++i) {
    const std::int64_t place_begin = of.flat.places[i].begin;
    if (common_of(of.flat.places[i], wanted).empty()) continue;
    const auto add = [&](std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count) {
      const std::int64_t run_begin = place_begin + share_begin;
      FlatRange left = common_of({run_begin, run_begin + count}, wanted);
      while (!left.empty()) {
        const FlatRange piece{left.begin, left.begin + std::min(most_elems, left.count())};
        pieces.push_back({of.members[i], whole_begin + (piece.begin - run_begin), piece});
        left.begin = piece.end;
      }
    };
    workload::for_each_run(parameters[of.members[i]], place, add);
  }
  return pieces;
}

FlatTensor& ParameterStore::Data::state(Bucket& of, State which) {
  switch (which) {
    case State::master:
      return narrow_weights() ? of.master : of.weights;
    case State::first_moment:
      return of.first_moment;
    case State::second_moment:
      return of.second_moment;
  }
  LOCKSTEP_CHECK(false, "a state of the optimizer");
  return of.weights;
}

// The own shard in memory that the host can read and write.
float* ParameterStore::Data::on_host(std::size_t bucket, State which) {
  Bucket& of = buckets[bucket];
  std::vector<std::vector<float>>& copies = host_copies.at(static_cast<std::size_t>(which));
  const auto make_copy = [&] {
    copies.resize(buckets.size());
    copies[bucket].resize(static_cast<std::size_t>(of.own.count()));
  };
  if (is_offloaded(kind_of(which))) {
    make_copy();
    const auto uses = uses_of(which, OffloadedShards::Use::reads);
    offloaded->visit_buckets(bucket, 1, uses, [&](const auto& piece, const auto& views) {
      const kernels::InOut& values = state_in(views, which);
      finish(where);
      memory.device().copy_to_host(copies[bucket].data() + (piece.range.begin - of.own.begin), values.data,
                                   kernels::size_bytes(values.dtype, values.elems));
    });
    return copies[bucket].data();
  }
  const kernels::InOut own = state(of, which).inout(of.own);
  if (memory.device().is_host_memory()) return own.as<float>();
  make_copy();
  memory.device().copy_to_host(copies[bucket].data(), own.data, kernels::size_bytes(own.dtype, own.elems));
  return copies[bucket].data();
}

bool ParameterStore::has(State which) const {
  return data_->has(which);
}

std::vector<ParameterStore::Run> ParameterStore::runs(State which) {
  finish(data_->where);
  std::vector<Run> runs;
  if (!has(which)) return runs;
  for (std::size_t b = 0; b < data_->buckets.size(); ++b) {
    const Bucket& bucket = data_->buckets[b];
    float* const own = data_->on_host(b, which);
    for (const Data::Piece& piece : data_->pieces_of(bucket, bucket.own, std::numeric_limits<std::int64_t>::max())) {
      runs.push_back(
          {piece.parameter, piece.whole_begin, piece.range.count(), own + (piece.range.begin - bucket.own.begin)});
    }
  }
  return runs;
}

void ParameterStore::Data::write_back(std::size_t bucket, State which, const std::vector<float>& values) {
  Bucket& of = buckets[bucket];
  if (!is_offloaded(kind_of(which))) return write_rounded(memory.device(), state(of, which).out(of.own), values);
  const auto uses = uses_of(which, OffloadedShards::Use::changes);
  offloaded->visit_buckets(bucket, 1, uses, [&](const auto& piece, const auto& views) {
    finish(where);
    const auto part = std::span(values).subspan(static_cast<std::size_t>(piece.range.begin - of.own.begin),
                                                static_cast<std::size_t>(piece.range.count()));
    write_rounded(memory.device(), state_in(views, which).out(), part);
  });
}

void ParameterStore::store_back(State which) {
  const std::vector<std::vector<float>>& copies = data_->host_copies.at(static_cast<std::size_t>(which));
  for (std::size_t b = 0; b < copies.size(); ++b) data_->write_back(b, which, copies[b]);
}

// Old weights that microbatches continue to read while updates make newer ones.

bool ParameterStore::Data::is_held(std::int64_t version) const {
  return std::any_of(versions.held.begin(), versions.held.end(),
                     [version](const auto& weights) { return weights.second == version; });
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
