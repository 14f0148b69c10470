// The state of a ParameterStore, for its sources.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/error.h"
#include "kernels/optimizer/optimizer.h"
#include "parallel/parameters/offload.h"
#include "parallel/parameters/store.h"
#include "workload/parameters.h"

namespace lockstep::parallel {

using workload::common_of;
using workload::FlatBucket;
using workload::FlatRange;

// A tensor with the elements of a flat bucket from `begin` on.
struct FlatTensor {
  Tensor tensor;
  std::int64_t begin = 0;

  kernels::In in(FlatRange range) const { return tensor.in(range.begin - begin, range.count()); }
  kernels::Out out(FlatRange range) const { return tensor.out(range.begin - begin, range.count()); }
  kernels::InOut inout(FlatRange range) const { return tensor.inout(range.begin - begin, range.count()); }
};

struct ParameterStore::Bucket {
  std::vector<std::size_t> members;  // parameters in memory order
  FlatBucket flat;
  std::int32_t shards = 1;  // ranks that share the bucket
  FlatRange own;            // the range that this rank updates

  // As drawn in store.h.
  enum class Weights : std::uint8_t { sharded, gathering, whole };
  enum class Gradients : std::uint8_t { open, reducing, landed, reduced };
  Weights weights_are = Weights::whole;
  Gradients gradients_are = Gradients::open;

  FlatTensor weights;    // in the compute dtype: whole, or with stage 3 the own shard; empty if that is offloaded
  StagedTensor loaded;   // if it is offloaded: the own shard, between load() and its gather
  Tensor gathered;       // stage 3: the whole weights while used
  FlatTensor secondary;  // stage 3 with a secondary copy: this rank's shard
  bool secondary_is_made = false;    // from the current weights
  bool gathered_from_shards = true;  // origin of the gathered weights
  // The following are on the device, for the own shard; empty if states are offloaded.
  FlatTensor master;        // f32; empty if the weights are f32
  FlatTensor first_moment;  // f32; empty if the optimizer has none
  FlatTensor second_moment;

  FlatTensor gradient;  // stages 0, 1: whole. 2, 3: own shard, the sum of reductions so far; empty if offloaded
  bool has_offloaded_gradient = false;  // in this step
  std::int64_t first_square = 0;        // index of the first of its runs that count in the norm, in Data::squares

  // Stages 2 and 3: the whole gradient of a microbatch, owned by the rank's own thread while it is added to; then it
  // waits in `complete` for the thread that reduces.
  Tensor added_to;
  std::deque<Tensor> complete;  // guarded by Data::complete_mutex
  struct PartCommits {
    std::int32_t part = 0;
    std::int64_t commits = 0;
  };
  std::vector<PartCommits> parts;  // commits of the members' parts
  std::int64_t times_complete = 0;

  // Ranges in the own shard of the members for which `chosen` is true.
  template <class Chosen>
  std::vector<FlatRange> own_ranges(const Chosen& chosen) const {
    return flat.ranges_in(own, [&](std::size_t i) { return chosen(members[i]); });
  }
};

// Old weights that updates keep because a reader still holds them.
struct WeightVersions {
  using Copy = std::vector<Tensor>;           // [bucket], whole
  std::int64_t newest = 0;                    // version of Bucket::weights
  std::map<std::int32_t, std::int64_t> held;  // version by reader
  std::map<std::int64_t, Copy> copies;        // by version
  const Copy* read = nullptr;                 // version that weight() returns; nullptr: the newest
};

struct ParameterStore::Data {
  Memory& memory;
  const kernels::Context where;
  const std::vector<workload::Parameter> parameters;
  const workload::TensorRank place;
  const StoreOptions options;
  const std::int32_t stage;  // the stage that takes effect
  std::deque<Bucket> buckets = {};

  struct Position {
    std::int32_t bucket = -1;
    FlatRange range = {};
  };
  std::vector<Position> positions = {};  // [parameter]

  std::vector<Tensor> working = {};  // [parameter] f32: 16-bit gradients while they are added to
  Tensor number_one = {};            // the constant 1, for the optimizer's kernels
  std::mutex complete_mutex = {};
  // [State][bucket]: host copies of device memory or of offloaded states
  std::array<std::vector<std::vector<float>>, 3> host_copies = {};
  std::unique_ptr<OffloadedShards> offloaded = {};
  Tensor squares = {};  // f64, with offloaded gradients: one per run that counts in the norm
  WeightVersions versions = {};

  bool narrow_weights() const { return options.compute != core::DType::f32; }
  bool narrow_gradients() const { return options.gradient != core::DType::f32; }
  bool scatters_gradients() const { return stage >= 2; }

  Bucket& bucket(std::int32_t index) {
    LOCKSTEP_CHECK(index >= 0 && index < static_cast<std::int32_t>(buckets.size()), "a bucket of the store");
    return buckets[static_cast<std::size_t>(index)];
  }
  const Position& position(std::size_t parameter) const { return positions.at(parameter); }
  Bucket& bucket_of(std::size_t parameter) { return bucket(position(parameter).bucket); }

  bool has(State which) const {
    const kernels::OptimizerRule& rule = kernels::rule_of(options.optimizer);
    return which == State::master || (which == State::first_moment ? rule.first_moment : rule.second_moment);
  }
  bool is_offloaded(workload::OffloadKind kind) const { return offloaded != nullptr && offloaded->has(kind); }
  // Weights in f32 are their own masters.
  workload::OffloadKind kind_of(State which) const {
    const bool is_weight = which == State::master && !narrow_weights();
    return is_weight ? workload::OffloadKind::parameters : workload::OffloadKind::optimizer;
  }
  // Uses of a visit to only the kind that has this state.
  OffloadedShards::Uses uses_of(State which, OffloadedShards::Use use) const {
    OffloadedShards::Uses uses = {};
    uses[static_cast<std::size_t>(kind_of(which))] = use;
    return uses;
  }

  void add_bucket(std::vector<std::size_t> members);
  void begin_offload();
  void allocate(Bucket& bucket);
  Tensor zeroed(MemoryKind kind, core::DType dtype, std::int64_t elems);

  // The part of `wanted` without padding, in pieces of limited size that are contiguous both in the bucket and in the
  // whole parameter.
  struct Piece {
    std::size_t parameter = 0;
    std::int64_t whole_begin = 0;
    FlatRange range = {};
  };
  std::vector<Piece> pieces_of(const Bucket& of, FlatRange wanted, std::int64_t most_elems) const;
  void initialize(std::size_t bucket, std::uint64_t seed);
  void make_offloaded(std::size_t bucket, std::span<const float> masters);
  // `masters`: of the own shard, if they or the weights are offloaded.
  void write_initial(Bucket& of, const Piece& piece, std::uint64_t seed, std::span<float> values,
                     std::span<float> masters);
  FlatTensor& state(Bucket& of, State which);
  float* on_host(std::size_t bucket, State which);
  void write_back(std::size_t bucket, State which, const std::vector<float>& values);

  void reshard(Bucket& of) const;
  void make_secondary(Bucket& of) const;
  Tensor& microbatch_gradient(Bucket& of);
  kernels::InOut kept_gradient(std::size_t parameter);  // in the dtype in which it is kept
  void count_commit(Bucket& of, std::int32_t part);
  void complete(Bucket& of);
  Tensor take_complete(Bucket& of);
  FlatTensor& reduced_gradient(Bucket& of);

  void make_gradient(Bucket& of);
  void add_squares(Bucket& of, const StagedTensor& shard, const kernels::Context& lane);
  void update(std::size_t first_bucket, std::size_t count, kernels::OptimizerStep step);
  // Updates the parts of the shard that decay and those that do not.
  void step_part(Bucket& of, FlatRange part, const ShardViews& views, const kernels::OptimizerStep& step,
                 const kernels::Context& on);
  // `views`: of elements from `begin` on.
  void step_range(FlatRange range, const ShardViews& views, std::int64_t begin, kernels::OptimizerStep step,
                  const kernels::Context& on) const;
  ShardViews views_on_device(Bucket& of, FlatRange range, const OffloadedShards::Uses& uses);
  // Visits the own shards in parts; offloaded kinds are copied in and out according to `uses`.
  using VisitPart = std::function<void(Bucket& of, FlatRange part, const ShardViews& views)>;
  void visit_shards(std::size_t first_bucket, std::size_t count, const OffloadedShards::Uses& uses,
                    const VisitPart& visit);
  void others_changed(Bucket& of);  // invalidates weights of other ranks' shards
  bool is_held(std::int64_t version) const;
  void copy_newest(WeightVersions::Copy& to);
  void copy_held();
};

}  // namespace lockstep::parallel
