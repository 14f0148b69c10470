// One rank's collectives: made when a step needs them for the first time, kept for all later steps.
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
#include "trainer/worker/channels.h"

namespace lockstep::trainer {

struct CollectiveOptions {
  // As a user writes it, for all-reduces ("ring", "auto"); where another collective has no algorithm of that name,
  // "auto" is taken.
  std::string algorithm = "auto";
  // For all-reduces of f32 gradients over data-parallel ranks: of whole ones, or of shards over their replicas.
  workload::Compression compression = {};
  bool compresses_scatters = false;                                   // the same for reduce-scatters
  int near_ranks = 0;                                                 // which then go in two hops (Layout::near_ranks)
  workload::CompressionWay weights = workload::CompressionWay::none;  // for all-gathers of weights
  std::uint64_t seed = 0;                                             // of what compression draws
};

// The mode of run(). The two others are for rehearsals, in which no collective may run (RankTrainer::rehearse).
enum class CollectiveUse : std::uint8_t {
  run,
  make,  // so that it is there when it is run: all members together
  leave_out,
};

class StepCollectives {
 public:
  // The arguments outlive this.
  StepCollectives(backends::MeshRank& mesh, const ChannelMap& channels, CollectiveOptions options,
                  parallel::Memory& memory);

  // Runs it on buffers that may be in place; returns when it is done. Of one lane at a time in one thread; of different
  // lanes side by side. A sum is of `output.dtype`; a gather moves bytes.
  // `matrix`, between members of the group: of a shift bytes, the same object each time; of an all-to-all whose blocks
  // differ elements.
  void run(const schedules::Step& step, const schedules::Task& task, const kernels::In& input,
           const kernels::Out& output, const std::shared_ptr<const collectives::CountMatrix>& matrix = nullptr);

  // From now on, in one thread of the rank; where all lanes are that thread's.
  void use(CollectiveUse use) { use_ = use; }

  // Bytes that this rank has sent in collectives of a lane since the start, if each sent as few as an optimal algorithm
  // does (schedules::wire_bytes, workload::wire_bytes).
  double sent_bytes(schedules::Lane lane) const;
  double sent_bytes(schedules::Lane lane, schedules::GroupKind kind) const { return sent_bytes_[place_of(lane, kind)]; }
  using SentBytes = std::array<double, schedules::kNumLanes * schedules::kNumGroupKinds>;  // of a lane, kind by kind
  const SentBytes& sent_bytes() const { return sent_bytes_; }
  void count_again(const SentBytes& sent);  // by a graph of collectives that is launched again

  // As if no compressed all-reduce had run before. All ranks together, between steps.
  void forget();

  // What compressed reductions remember, by bucket: for checkpoints, between steps. An entry that is made before the
  // first step is what the bucket's reduction begins with.
  using Bucket = std::pair<std::int32_t, std::int32_t>;  // stage and part
  std::map<Bucket, parallel::CompressionState>& states() { return states_; }

 private:
  // Sizes that are told anew in each step have a collective of their own, which is kept while peers may be in it.
  void run_ragged(const schedules::Group& group, const schedules::Task& task, const kernels::In& input,
                  const kernels::Out& output, const std::shared_ptr<const collectives::CountMatrix>& matrix);
  static constexpr std::size_t kRaggedKept = 4;

  // Operations of a channel that differ in none of these share one. The last: of reductions that remember, a bucket's
  // stage and part; else -1.
  using Matrix = std::shared_ptr<const collectives::CountMatrix>;
  using Key = std::tuple<std::size_t, schedules::Comm, std::int64_t, core::DType, bool, Matrix, Bucket>;
  static constexpr Bucket kAnyBucket{-1, -1};
  backends::Prepared& prepared(const schedules::Step& step, const schedules::Task& task, const schedules::Group& group,
                               const Key& key);
  void shift(const schedules::Step& step, const schedules::Task& task, const schedules::Group& group,
             const kernels::In& input, const kernels::Out& output, const Matrix& bytes_of_pairs);
  // What a collective sends in place of its elements.
  enum class Sends : std::uint8_t { elements, compressed_sum, compressed_scatter, two_hop_scatter, weight_codes };
  Sends sends(const schedules::Task& task, const schedules::Group& group, core::DType dtype) const;
  backends::Prepared prepare_compressed(Sends sends, const schedules::Step& step, const schedules::Task& task,
                                        const schedules::Group& group, const Key& key);
  // Counts what is sent by algorithms that send as few bytes as can be. `count`: elements a block
  // (collectives/collective.h).
  void count_sent(Sends sends, const schedules::Task& task, const schedules::Group& group, std::int64_t count,
                  std::int64_t payload);
  static std::size_t place_of(schedules::Lane lane, schedules::GroupKind kind) {
    return static_cast<std::size_t>(lane) * schedules::kNumGroupKinds + static_cast<std::size_t>(kind);
  }
  // The channel of the task's lane to the ranks of this kind that this one works with.
  std::size_t channel_of(const schedules::Step& step, const schedules::Task& task, schedules::GroupKind kind) const;

  backends::MeshRank& mesh_;
  const ChannelMap& channels_;
  const CollectiveOptions options_;
  parallel::Memory& memory_;
  CollectiveUse use_ = CollectiveUse::run;
  kernels::ThreadPool lane_pool_;  // of the one thread whose collectives are compressed: what that computes
  const kernels::Context lane_;
  kernels::ThreadPool weight_pool_;  // likewise of the thread that gathers weights
  const kernels::Context weight_lane_;
  std::map<Bucket, parallel::CompressionState> states_;                           // of buckets
  std::array<std::map<Key, backends::Prepared>, schedules::kNumLanes> prepared_;  // a lane's is its thread's
  std::array<std::deque<backends::Prepared>, schedules::kNumLanes> ragged_;
  SentBytes sent_bytes_ = {};
  std::byte nothing_{};  // where a rank has nothing to send or to receive
};

}  // namespace lockstep::trainer
