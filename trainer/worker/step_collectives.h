// One rank's collectives: made when a step first needs them, and kept for all later steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "collectives/backends/mesh.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"
#include "parallel/compress/compress.h"
#include "parallel/memory/memory.h"
#include "schedules/step/step.h"
#include "trainer/worker/lanes.h"

namespace lockstep::trainer {

struct CollectiveOptions {
  // As a user writes it, for all-reduces ("ring", "auto"); a collective that has no algorithm of that name uses "auto".
  std::string algorithm = "auto";
  // For all-reduces of f32 gradients over data-parallel ranks: of entire gradients, or of shards over their replicas.
  workload::Compression compression = {};
  bool compresses_scatters = false;  // the same for reduce-scatters
  int near_ranks = 0;                // reduce-scatters then take two hops (Layout::near_ranks)
  workload::CompressionWay weights = workload::CompressionWay::none;  // for all-gathers of weights
  std::uint64_t seed = 0;                                             // for random draws of compression
};

// The effect of run(). The other two are for rehearsals, in which no collective may run (RankTrainer::rehearse).
enum class CollectiveUse : std::uint8_t {
  run,
  make,  // make it for a later run: all members together
  leave_out,
};

class StepCollectives {
 public:
  // The arguments must outlive this.
  StepCollectives(backends::MeshRank& mesh, const ChannelMap& channels, CollectiveOptions options,
                  parallel::Memory& memory);

  // Runs a collective on buffers that may be in place; returns when it is done. One lane uses one thread at a time;
  // different lanes run concurrently. A sum is in `output.dtype`; a gather moves bytes. `matrix` has sizes between
  // members of the group: bytes for a shift (the same object each time), elements for an all-to-all with blocks of
  // different sizes. `root`: of a broadcast or a reduction, the index in the group.
  void run(const schedules::Step& step, const schedules::Task& task, const kernels::In& input,
           const kernels::Out& output, const std::shared_ptr<const collectives::CountMatrix>& matrix = nullptr,
           int root = 0);

  // Effective from now on. Called when all lanes run in the calling thread.
  void use(CollectiveUse use) { use_ = use; }

  // Bytes that this rank would have sent in a lane's collectives since the start with algorithms of minimal traffic
  // (schedules::wire_bytes, workload::wire_bytes).
  double sent_bytes(schedules::Lane lane) const;
  double sent_bytes(schedules::Lane lane, schedules::GroupKind kind) const { return sent_bytes_[place_of(lane, kind)]; }
  using SentBytes = std::array<double, schedules::kNumLanes * schedules::kNumGroupKinds>;  // by lane and kind of group
  const SentBytes& sent_bytes() const { return sent_bytes_; }
  void count_again(const SentBytes& sent);  // for each launch of a graph that contains collectives

  // Resets error feedback to the state before the first compressed all-reduce. All ranks together, between steps.
  void forget();

  // Error feedback of compressed reductions by bucket: for checkpoints, between steps. An entry made before the first
  // step is the initial state of that bucket's reduction.
  using Bucket = std::pair<std::int32_t, std::int32_t>;  // stage and part
  std::map<Bucket, parallel::CompressionState>& states() { return states_; }

 private:
  // Sizes that change with every step have a collective of their own, which is kept while peers may still be in it.
  void run_ragged(const schedules::Group& group, const schedules::Task& task, const kernels::In& input,
                  const kernels::Out& output, const std::shared_ptr<const collectives::CountMatrix>& matrix);
  static constexpr std::size_t kRaggedKept = 4;

  // Operations of a channel with equal keys share one collective. The last elements: for reductions with error feedback
  // a bucket's stage and part, otherwise -1; the root.
  using Matrix = std::shared_ptr<const collectives::CountMatrix>;
  using Key = std::tuple<std::size_t, schedules::Comm, std::int64_t, core::DType, bool, Matrix, Bucket, int>;
  static constexpr Bucket kAnyBucket{-1, -1};
  backends::Prepared& prepared(const schedules::Step& step, const schedules::Task& task, const schedules::Group& group,
                               const Key& key);
  void shift(const schedules::Step& step, const schedules::Task& task, const schedules::Group& group,
             const kernels::In& input, const kernels::Out& output, const Matrix& bytes_of_pairs);
  // The form in which a collective sends its elements.
  enum class Sends : std::uint8_t { elements, compressed_sum, compressed_scatter, two_hop_scatter, weight_codes };
  Sends sends(const schedules::Task& task, const schedules::Group& group, core::DType dtype) const;
  backends::Prepared prepare_compressed(Sends sends, const schedules::Step& step, const schedules::Task& task,
                                        const schedules::Group& group, const Key& key);
  // Counts the bytes that algorithms of minimal traffic would send. `count`: elements per block
  // (collectives/collective.h).
  void count_sent(Sends sends, const schedules::Task& task, const schedules::Group& group, std::int64_t count,
                  std::int64_t payload);
  static std::size_t place_of(schedules::Lane lane, schedules::GroupKind kind) {
    return static_cast<std::size_t>(lane) * schedules::kNumGroupKinds + static_cast<std::size_t>(kind);
  }
  // The channel of the task's lane to the other ranks of this kind of group.
  std::size_t channel_of(const schedules::Step& step, const schedules::Task& task, schedules::GroupKind kind) const;

  backends::MeshRank& mesh_;
  const ChannelMap& channels_;
  const CollectiveOptions options_;
  parallel::Memory& memory_;
  CollectiveUse use_ = CollectiveUse::run;
  kernels::ThreadPool lane_pool_;  // for the one thread that runs compressed collectives
  const kernels::Context lane_;
  kernels::ThreadPool weight_pool_;  // likewise for the thread that gathers weights
  const kernels::Context weight_lane_;
  std::map<Bucket, parallel::CompressionState> states_;  // by bucket
  std::array<std::map<Key, backends::Prepared>, schedules::kNumLanes>
      prepared_;  // a lane's entry belongs to its thread
  std::array<std::deque<backends::Prepared>, schedules::kNumLanes> ragged_;
  SentBytes sent_bytes_ = {};
  std::byte nothing_{};  // placeholder buffer of a rank that sends or receives nothing
};

}  // namespace lockstep::trainer
