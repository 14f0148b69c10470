// The parameters of one rank, their gradients and their optimizer state, whole or in shards (ZeRO: Rajbhandari et al.
// 2019, arXiv:1910.02054, section 5).
//
// Parameters lie in buckets: flat buffers, padded so that the data-parallel ranks can share them out evenly. A bucket
// is what is reduced, gathered and sharded at once; its gradients lie as its weights do, so that a collective works in
// place, and nothing is packed. A store knows the ranks of one set of shards; if there are replicas of the set (hybrid
// sharding), whoever reduces sums what has landed over them.
//
//   stage   weights                    gradients                                master weights, optimizer's states
//   0       whole                      whole                                    whole
//   1       whole                      whole; reduced to a shard                a shard
//   2       whole                      whole while a microbatch makes them      a shard
//   3       a shard; whole while used  as 2                                     a shard
//
// With StoreOptions::offload each column's shards may lie in a StateRoom, and not on the device (offload.h):
// master weights and states of any stage, reduced gradients of stages 2 and 3 (offload() takes them there), weights of
// stage 3 (load() brings a bucket's shard, which the next gather() uses up). update() brings all shards. A secondary
// copy is one more shard of the weights, a larger one, from which fewer ranks gather the whole.
//
// The states of a bucket, and who moves it from one to the next: the rank's own thread, which runs the kernels, or the
// thread of a lane, which runs a collective. What has a beginning and an end returns a handle, which the call that ends
// it uses up (&&): to end what was not begun, or to copy a handle, does not compile, and a handle that was used up
// refuses everything.
//
//   weights            lane: gather()                 lane: Gathering::done()
//            SHARDED ------------------> GATHERING --------------------------> WHOLE: weight() may be called
//             ^  ^ |                         ^                                   | |
//             |  | |                         +------- lane: gather() again ------+ |
//             |  +-+ own: reshard() (stage 3), update() and masters_changed()      |
//             +----- likewise -----------------------------------------------------+    (stage 0 is always WHOLE)
//
//   gradients          lane: reduce()                 lane: Reduction::landed()            lane: Landed::add()
//               OPEN ------------------> REDUCING ---------------------------> LANDED -----------------------> REDUCED
//                ^                          ^                             (sums over replicas)                    |
//                |                          +-- lane: reduce() of the next microbatch (stages 2, 3) --------------+
//                +-- own: zero_gradients() -----------------------------------------------------------------------+
//
// Meanwhile the own thread adds to gradients of a microbatch by a handle for each part, PartGradients, and commits it.
// Stages 0 and 1 add in place, and only while the bucket is OPEN. Stages 2 and 3 add to a whole buffer of the bucket
// that belongs to the microbatch: when all parts of the bucket have committed, it waits for its reduce(), and a new one
// is begun, so that a reduction may be late. REDUCED gradients are read (own_gradient(), the norm, update()) only when
// no microbatch's are left that are added to or wait: the sum would lack them.
//
// The order between threads is the Step's, which is data: check_step proves that a rank gathers and gives up each
// bucket in turn, before anything runs (schedules/step/step.h). A call that meets another state than the one drawn here
// is a bug, which the message names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/optimizer/rules.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/device_memory.h"
#include "workload/memory_kinds.h"
#include "workload/parameters.h"

namespace lockstep::parallel {

// Kinds of tensors that are kept off the device; a kind whose maker is empty is not offloaded.
struct StoreOffload {
  MakeStateRoom optimizer = {};                                      // master weights and the optimizer's states
  MakeStateRoom gradients = {};                                      // reduced shards of stages 2 and 3
  MakeStateRoom parameters = {};                                     // shards of stage 3
  std::int64_t piece_elems = workload::OffloadStaging::kPieceElems;  // largest piece that an update brings at once
  // With `gradients`: selects the parameters whose gradients sum_of_squares() adds up, each when it is copied off the
  // device.
  std::function<bool(std::size_t)> counts_in_norm = {};
  // An update runs on the host during the next step. Needs `optimizer`, `gradients` and 16-bit weights. There are then
  // two rooms for gradients, for the current and the previous step, and one for the weights that an update makes, in
  // the room of the parameters or made by this.
  MakeStateRoom next_weights = {};

  bool delays() const { return next_weights != nullptr; }
  bool any() const { return optimizer || gradients || parameters; }
};

struct StoreOptions {
  core::DType compute = core::DType::f32;   // dtype of weights as kernels read them: f32, bf16, f16
  core::DType gradient = core::DType::f32;  // as kept and reduced: f32, or the compute dtype
  kernels::OptimizerKind optimizer = kernels::OptimizerKind::adamw;
  std::int32_t zero = 0;    // stage, 0 to 3
  std::int32_t shards = 1;  // ranks that share one set of shards; with one rank every stage equals stage 0
  std::int32_t shard = 0;   // index of this rank
  // The same for buckets of experts (workload::Parameter::expert): the ranks that have the same experts. 0: as for
  // others.
  std::int32_t expert_shards = 0;
  std::int32_t expert_shard = 0;
  // Stage 3: ranks that share a secondary copy of the weights, and this rank's index among them (ZeRO++'s hpZ: Wang et
  // al. 2023, arXiv:2306.10209, section 4.2). reshard() makes the copy from weights that were gathered from all shards.
  // has_secondary: per bucket. 0 ranks: no such copy.
  std::int32_t secondary_ranks = 0;
  std::int32_t secondary_rank = 0;
  std::vector<bool> has_secondary = {};
  // Stages 2 and 3: gradients are reduced with every microbatch. Otherwise they are accumulated in the whole bucket,
  // which is reduced once, after the last microbatch.
  bool reduce_every_microbatch = true;
  std::int64_t commits_per_microbatch = 1;  // per part: slices of a microbatch add up to one gradient
  // A bucket's gradients are allocated when they are first added to, or reduced to a shard, and freed by the bucket's
  // own update(). Otherwise they are always allocated.
  bool frees_gradients = false;
  StoreOffload offload = {};  // host copies for runs() are then as large as a state
};

class ParameterStore {
 public:
  // `buckets`: indices of parameters; each parameter is in exactly one. `where` and `memory` must outlive this.
  ParameterStore(Memory& memory, const kernels::Context& where, std::vector<workload::Parameter> parameters,
                 workload::TensorRank place, std::vector<std::vector<std::size_t>> buckets,
                 const StoreOptions& options);
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  const std::vector<workload::Parameter>& parameters() const;
  std::int32_t num_buckets() const;
  std::int64_t padded_elems(
      std::int32_t bucket) const;  // elements of the whole bucket; a multiple of the number of shards
  std::int32_t bucket_of(std::size_t parameter) const;

  // Each element is a function of (seed, name, index in the whole parameter): the same in every layout.
  void initialize(std::uint64_t seed);

  // ---- for layers, in the rank's own thread
  kernels::In weight(std::size_t parameter) const;  // its bucket must be WHOLE
  // The gradients that a part (all parameters with the same workload::Parameter::part) adds for one microbatch.
  class PartGradients;
  PartGradients gradients(std::int32_t part);

  // ---- for collectives, in a lane's thread. Weights and gradients may be processed concurrently, and so may different
  // buckets. Stage 3 allocates the whole weights here; stages 1 and 2 gather in place.
  class Gathering;
  enum class GatherFrom : std::uint8_t {
    shards,     // over all ranks that share them
    secondary,  // over StoreOptions::secondary_ranks: after a reshard() of weights gathered from shards
  };
  Gathering gather(std::int32_t bucket, GatherFrom from = GatherFrom::shards);
  void reshard(std::int32_t bucket);  // frees the whole weights; stage 3
  // Copies the own shard of offloaded weights to the device, for one gather.
  void load(std::int32_t bucket);
  // Begins a bucket's reduction: in ZeRO stages 0 and 1 once per step, in 2 and 3 for the gradients that the earliest
  // waiting microbatch has committed.
  class Reduction;
  class Landed;
  Reduction reduce(std::int32_t bucket);
  // Copies reduced gradients to their offload room, added to earlier microbatches'. Ends the bucket's reduction, as
  // Landed::add() does; CPU kernels run in the calling thread only.
  void offload(std::int32_t bucket, Landed landed, const kernels::Context& lane);
  // The sharded, reduced gradient of a bucket: for sums over further groups (tied embeddings, tensor-parallel ranks)
  // and for hooks, once per step. Ranks that sum one parameter must have it at the same position in their buckets
  // (best: in a bucket of its own), because otherwise their shards differ.
  kernels::InOut own_gradient(std::int32_t bucket);
  // This rank's part of a parameter's reduced gradient; may be empty.
  kernels::InOut own_gradient_of(std::size_t parameter);

  // ---- once per step
  void zero_gradients();
  // sum = sum of squares of the own gradients of parameters for which counts(parameter) is true: one f64.
  void sum_of_squares(const std::function<bool(std::size_t)>& counts, const kernels::Out& sum,
                      const kernels::Context& where);
  // The optimizer on this rank's shards: gradients are multiplied by `factor` (of clipping and loss scaling). `step`
  // counts from 1. Weights that other ranks own must be gathered again; stage 3 frees weights that are still gathered.
  void update(const kernels::OptimizerNumbers& optimizer, std::int64_t step, float factor);
  // The same with numbers in device memory instead of `optimizer.rate`, so that the host does not wait for a norm, and
  // a recorded update (a CUDA graph) can be repeated with other numbers. A factor that is not positive, or NaN, changes
  // nothing.
  struct UpdateOnDevice {
    kernels::In factor;    // [1] f32
    kernels::In schedule;  // [kernels::kOptimizerSchedule] f32: kernels::optimizer_schedule()
  };
  void update(const kernels::OptimizerNumbers& optimizer, const UpdateOnDevice& numbers);
  // The same for one bucket, whose gradients of this step are not read afterwards.
  void update(std::int32_t bucket, const kernels::OptimizerNumbers& optimizer, const UpdateOnDevice& numbers);

  // ---- with StoreOffload::next_weights, instead of update() (ZeRO-Offload: Ren et al. 2021, section 5.2)
  // The step's gradients are complete: the next delayed_update() takes them.
  void keep_gradients();
  // In any thread, concurrently with a step: updates with the kept gradients on the host, in the calling thread only.
  // Weights on the device do not change.
  void delayed_update(const kernels::OptimizerNumbers& optimizer, std::int64_t step, float factor);
  // In the rank's own thread, after that: installs the new weights. Like update(), it invalidates weights that others
  // own.
  void take_update();
  void give_up_gathered();  // in a step without an update

  // ---- versions of the weights, for stage 0, in the rank's own thread: a reader (a microbatch) holds the current
  // weights until it releases them, whatever update() does meanwhile. Updates copy weights that are held, each version
  // once. PipeDream's weight stashing (Narayanan et al. 2019, section 3.3).
  void hold(std::int32_t reader);  // holds the newest version, and releases the one held before
  bool holds(std::int32_t reader) const;
  void release(std::int32_t reader);
  void copy_held();                   // now, instead of with the next update
  void read_as(std::int32_t reader);  // from now on weight() returns the version that this reader holds
  void read_newest();                 // from now on weight() returns the newest version, as it does initially

  // Bytes of a kind copied to the device and off it so far.
  std::int64_t offloaded_bytes(workload::OffloadKind kind) const;

  // ---- for checkpoints: f32 runs of elements that this rank owns, by parameter and index in the whole parameter
  enum class State : std::uint8_t { master, first_moment, second_moment };
  struct Run {
    std::size_t parameter = 0;
    std::int64_t whole_begin = 0;  // index in the whole parameter, flattened
    std::int64_t count = 0;
    float* data = nullptr;  // host memory, or a copy of device memory that store_back() writes
  };
  bool has(State state) const;  // optimizers have 0 to 2 moments
  std::vector<Run> runs(State state);
  void store_back(State state);  // writes back changes to the latest runs(state)
  // Call it after changing master weights from outside: updates the weights that kernels read (with stages 1 and 2 a
  // gather has to follow).
  void masters_changed();
  // The f32 weights of a bucket that this rank owns; after writing to them call masters_changed().
  kernels::InOut own_masters(std::int32_t bucket);

 private:
  struct Bucket;
  struct Data;
  template <class Of>
  class UsedOnce;
  std::unique_ptr<Data> data_;
};

// Points to the object of a handle; nullptr in a handle that was moved from or used up.
template <class Of>
class ParameterStore::UsedOnce {
 public:
  UsedOnce() = default;
  explicit UsedOnce(Of& of) : of_(&of) {}
  UsedOnce(UsedOnce&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
  UsedOnce& operator=(UsedOnce&& other) noexcept {
    of_ = std::exchange(other.of_, nullptr);
    return *this;
  }
  UsedOnce(const UsedOnce&) = delete;
  UsedOnce& operator=(const UsedOnce&) = delete;
  ~UsedOnce() = default;

  Of& get() const {
    LOCKSTEP_CHECK(of_ != nullptr, "a handle of a parameter store is used after it was used up");
    return *of_;
  }
  Of& use_up() {
    Of& of = get();
    of_ = nullptr;
    return of;
  }

 private:
  Of* of_ = nullptr;
};

class [[nodiscard]] ParameterStore::PartGradients {
 public:
  // f32, to be added to. With 16-bit gradients it is a working copy in f32 of the sum so far, which commit() rounds
  // once and frees. A parameter of another part may be added to as well (tied embeddings), before that part commits.
  kernels::InOut of(std::size_t parameter);
  void commit() &&;  // the part's gradients for the microbatch are complete

 private:
  friend class ParameterStore;
  PartGradients(Data& data, std::int32_t part) : data_(data), part_(part) {}
  UsedOnce<Data> data_;
  std::int32_t part_;
};

// An all-gather of weights in flight: from every rank's shard to the whole.
class [[nodiscard]] ParameterStore::Gathering {
 public:
  kernels::In shard() const;
  kernels::Out whole() const;
  void done() &&;  // call it once the all-gather has run, or is queued before all work that reads the weights

 private:
  friend class ParameterStore;
  Gathering(Bucket& bucket, GatherFrom from) : bucket_(bucket), from_(from) {}
  UsedOnce<Bucket> bucket_;
  GatherFrom from_;
};

// A reduction of gradients in flight: an all-reduce of `whole` in place (stage 0), or a reduce-scatter from whole to
// result, in place for stage 1.
class [[nodiscard]] ParameterStore::Reduction {
 public:
  kernels::In whole() const;
  kernels::Out result() const;
  Landed landed() &&;  // call it once the collective has run or is queued; stages 2 and 3 free the whole

 private:
  friend class ParameterStore;
  explicit Reduction(Bucket& bucket) : bucket_(bucket) {}
  UsedOnce<Bucket> bucket_;
  Tensor microbatch_ = {};     // stages 2 and 3: the whole gradient
  StagedTensor landing_ = {};  // from the second reduction in a step on; with offloaded gradients, for all reductions
  kernels::In whole_ = {};
  kernels::Out result_ = {};
};

// A reduction's result on this rank, for in-place sums over further groups (replicas of shards).
class [[nodiscard]] ParameterStore::Landed {
 public:
  Landed() = default;  // empty
  kernels::InOut shard() const;
  // Adds the result to earlier microbatches'. CPU kernels run in the calling thread only.
  void add(const kernels::Context& lane) &&;

 private:
  friend class ParameterStore::Reduction;
  friend class ParameterStore;
  Landed(Bucket& bucket, StagedTensor landing) : bucket_(bucket), landing_(std::move(landing)) {}
  UsedOnce<Bucket> bucket_;
  StagedTensor landing_ = {};
};

// The values of weights before the first step.

// Fills in elements [whole_begin, whole_begin + values.size()) of the whole parameter. Each is a function of (seed,
// name, index) only, so that it does not depend on which part is requested.
void fill_initial_values(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t whole_begin,
                         std::span<float> values);

}  // namespace lockstep::parallel
