// The parameters of one rank, their gradients and their optimizer state, whole or in shards (ZeRO: Rajbhandari et al.
// 2019, arXiv:1910.02054, section 5).
//
// Parameters lie in buckets: flat buffers, padded so that the data-parallel ranks can share them out evenly. A bucket
// is what is reduced, gathered and sharded at once; its gradients lie as its weights do, so that a collective works in
// place, and nothing is packed. A store knows the ranks of one set of shards; if there are replicas of the set (hybrid
// sharding), whoever reduces sums what has landed() over them.
//
//   stage   weights                    gradients                                master weights and moments
//   0       whole                      whole                                    whole
//   1       whole                      whole; reduced to a shard                a shard
//   2       whole                      whole while a microbatch makes them      a shard
//   3       a shard; whole while used  as 2                                     a shard
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/dtype.h"
#include "kernels/base/context.h"
#include "parallel/memory/memory.h"
#include "workload/parameter.h"

namespace lockstep::parallel {

struct StoreOptions {
  core::DType compute = core::DType::f32;   // of weights as kernels read them: f32, bf16, f16
  core::DType gradient = core::DType::f32;  // as they are kept and reduced: f32, or the compute dtype
  std::int32_t zero = 0;                    // stage, 0 to 3
  std::int32_t shards = 1;                  // ranks that share shards out; with one all stages are stage 0
  std::int32_t shard = 0;                   // of this rank
  // Stages 2 and 3: gradients are reduced with every microbatch. Else they add up in the whole bucket, which is reduced
  // once, after the last.
  bool reduce_every_microbatch = true;
};

struct AdamWOptions {
  float rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0.1F;  // of parameters that decay
};

class ParameterStore {
 public:
  // `buckets`: indices of parameters; each parameter is in one of them. `where` and `memory` outlive this.
  ParameterStore(Memory& memory, const kernels::Context& where, std::vector<workload::Parameter> parameters,
                 workload::TensorPlace place, std::vector<std::vector<std::size_t>> buckets,
                 const StoreOptions& options);
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  const std::vector<workload::Parameter>& parameters() const;
  std::int32_t num_buckets() const;
  std::int64_t padded_elems(std::int32_t bucket) const;  // of the whole bucket; a multiple of the shards
  std::int32_t bucket_of(std::size_t parameter) const;

  // Each element a function of (seed, name, index in the whole parameter): the same in every layout.
  void initialize(std::uint64_t seed);

  // ---- for layers, in the rank's own thread
  kernels::In weight(std::size_t parameter) const;  // its bucket has to be there (stage 3)
  // f32, to be added to. With narrow gradients it is a working copy: what is there so far, in f32, which commit()
  // rounds once and gives up.
  kernels::InOut gradient(std::size_t parameter);
  // Gradients of a part (of all parameters with workload::Parameter::part) are complete for this microbatch. A bucket
  // of stages 2 and 3 all of whose parts are is closed: what is added later goes to a new one, so that the reduction
  // may be late.
  void commit(std::int32_t part);

  // ---- for collectives, in the lane's thread; what they return stays valid until the call that ends it. Calls for
  // weights, calls for gradients, and those above may run side by side, in a thread each; for one bucket's weights the
  // step's order has to keep gather(), weight() and reshard() apart.
  // Stage 3: gather() makes room for the whole weights; the all-gather goes from shard to whole. In place for stages 1
  // and 2, where shard lies in whole.
  struct Gather {
    kernels::In shard;
    kernels::Out whole;
  };
  Gather gather(std::int32_t bucket);
  void reshard(std::int32_t bucket);  // gives up the whole weights; stage 3
  // Gradients: an all-reduce of `whole` in place (stage 0), or a reduce-scatter from whole to shard, in place for stage
  // 1. Stages 0 and 1 reduce once a step. reduced() ends it: adds the shard to what microbatches before have left.
  struct Reduction {
    kernels::In whole;
    kernels::Out result;
  };
  Reduction reduction(std::int32_t bucket);
  // Between the two, for sums over further groups (replicas of shards), in place: what the reduction has left here.
  // Stages 2 and 3 give up the whole. Other buckets may be reduced meanwhile, in another thread.
  kernels::InOut landed(std::int32_t bucket);
  void reduced(std::int32_t bucket);  // kernels of the CPU
  void reduced(std::int32_t bucket, const kernels::Context& lane);
  // The sharded, reduced gradient of a bucket: for sums over further groups (tied embeddings, tensor ranks) and for
  // hooks, once a step. Ranks that sum one parameter have it at the same place of their buckets (best: alone), or their
  // shards differ.
  kernels::InOut own_gradient(std::int32_t bucket);
  // The part of a parameter's reduced gradient that this rank has: may be empty.
  kernels::InOut own_gradient_of(std::size_t parameter);

  // ---- once a step
  void zero_gradients();
  // sum = sum of squares of the own gradients of parameters for which counts(parameter) is true: one f64.
  void sum_of_squares(const std::function<bool(std::size_t)>& counts, const kernels::Out& sum,
                      const kernels::Context& where);
  bool gradients_are_finite();
  // AdamW on what this rank owns: gradients times `factor` (of clipping and loss scaling). `step` from 1. Of what
  // others own, weights have to be gathered anew; stage 3 gives up what is still gathered.
  void update(const AdamWOptions& adamw, std::int64_t step, float factor);
  // The same with numbers that lie on the device, in place of `adamw.rate`, so that nobody waits for a norm, and an
  // update that is recorded (a CUDA graph) is run again with others. A factor that is not positive, or NaN, changes
  // nothing.
  struct UpdateOnDevice {
    kernels::In factor;    // [1] f32
    kernels::In schedule;  // [kernels::kAdamWSchedule] f32: kernels::adamw_schedule()
  };
  void update(const AdamWOptions& adamw, const UpdateOnDevice& numbers);

  // ---- for checkpoints: f32 runs of elements that this rank owns, named by parameter and place in the whole parameter
  enum class State : std::uint8_t { master, first_moment, second_moment };
  struct Run {
    std::size_t parameter = 0;
    std::int64_t whole_begin = 0;  // element in the whole parameter, flattened
    std::int64_t count = 0;
    float* data = nullptr;  // host memory, or a copy of the device's that store_back() writes
  };
  std::vector<Run> runs(State state);
  void store_back(State state);  // what the latest runs(state) were changed to
  // After master weights were changed from outside: weights as kernels read them follow (stages 1, 2: a gather has to
  // follow, too).
  void masters_changed();

 private:
  struct Bucket;
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace lockstep::parallel
