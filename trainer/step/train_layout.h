// How a training run is laid out over ranks. Ranks are numbered as Megatron-LM does: tensor first, then data, then
// pipeline: rank = t + tp (d + dp p).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "schedules/schedule.h"
#include "trainer/model/gpt_stage.h"

namespace lockstep::trainer {

struct TrainLayout {
  std::int32_t dp = 1;
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  std::int32_t zero = 0;          // stage, 0 to 3, over the dp ranks
  std::int32_t shard_ranks = 0;   // of those, so many neighbours share a set of shards, the others have replicas of it
                                  // (hybrid sharding, HSDP: Zhao et al. 2023, arXiv:2304.11277, section 3.2.2); 0: all
  std::string schedule = "1f1b";  // of schedules/catalogue.h
  std::int32_t chunks = 1;        // stages a rank, where the schedule takes them
  std::shared_ptr<const schedules::Schedule> own_schedule = {};  // a checked one of a user's, in place of `schedule`
  std::int32_t microbatches = 1;                                 // a step, of each data-parallel rank
  std::int64_t bucket_cap_bytes = 25LL << 20;                    // of gradients; 0: one bucket a stage
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  core::DType gradient = core::DType::f32;  // as gradients are kept and reduced: f32, or the compute dtype
  bool overlap_gradients = true;            // buckets leave beside the backward; else after it
  bool prefetch = true;                     // ZeRO 3: units are gathered ahead of their use

  std::int32_t ranks() const { return dp * tp * pp; }
};

struct Coordinates {
  std::int32_t tp = 0;
  std::int32_t dp = 0;
  std::int32_t pp = 0;
};
Coordinates coordinates_of(const TrainLayout& layout, std::int32_t rank);
std::int32_t rank_at(const TrainLayout& layout, const Coordinates& at);

// Pipes of the schedule, each with a copy of the model: 2 in opposite directions (Chimera, DualPipe), else 1.
std::int32_t pipes_of(const TrainLayout& layout);
// Ranks that have the same parameters: data-parallel ranks, and with two pipes those of place pp - 1 - p beside those
// of place p. Which of them a rank is, and where the one with an index is.
std::int32_t data_ranks_of(const TrainLayout& layout);
std::int32_t data_index_of(const TrainLayout& layout, const Coordinates& at);
Coordinates data_rank_at(const TrainLayout& layout, const Coordinates& at, std::int32_t index);

// The ZeRO stage that makes a difference: none where a set of shards is on one rank.
std::int32_t zero_of(const TrainLayout& layout);
// Neighbouring data-parallel ranks that share a set of shards (or, without any, reduce whole gradients) among
// themselves, and how many replicas of the set there are. The one with index i (data_index_of) has shard
// i % shards_of() of replica i / shards_of().
std::int32_t shards_of(const TrainLayout& layout);
std::int32_t replicas_of(const TrainLayout& layout);

// The schedule that the layout names, or the user's own.
schedules::Schedule schedule_of(const TrainLayout& layout);

// Throws a usage Error that names the flag, its value, and which values would do, if the model cannot be laid out so.
void check_layout(const TrainLayout& layout, const GptConfig& config, std::int64_t batch, std::int64_t length);

}  // namespace lockstep::trainer
