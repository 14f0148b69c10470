// Which parameters of a stage lie, are reduced and are sharded together.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/passes/buckets.h"
#include "schedules/passes/sharding.h"
#include "trainer/step/train_layout.h"
#include "trainer/step/train_step.h"

namespace lockstep::trainer {

// Indices into plan.parameters. Up to ZeRO 2 they are PyTorch's buckets (1 MiB first, then the cap); with ZeRO 3 one
// for each part. A word embedding that another stage has, too, or that is gathered for the whole step, is alone in its
// bucket: its shards then lie alike on both stages.
std::vector<std::vector<std::size_t>> buckets_for(const StagePlan& plan, const TrainLayout& layout);

// As passes want them; bucket k is plan.buckets[k]. Bytes are those of the parameters on one tensor rank, without
// padding.
std::vector<schedules::GradientBucket> gradient_buckets_of(const StagePlan& plan, const TrainLayout& layout);
// Unit u is bucket number_of_buckets - 1 - u: gathers go in the forward's order, reductions the other way round.
std::vector<schedules::Unit> units_of(const StagePlan& plan, const TrainLayout& layout, core::DType compute);

// Payload of the sum over tensor ranks of what each has seen a part of the rows for (is_partial_over_tensor), at most
// of any rank; 0 if there is none.
std::int64_t partial_norm_bytes(const std::vector<StagePlan>& plans, const TrainLayout& layout);
// Payload of the sum of the word embedding's gradient over the stages that have it: of a shard, where it is sharded.
std::int64_t tied_gradient_bytes(const StagePlan& plan, const TrainLayout& layout);

// The word embedding among a stage's parameters; parameters.size() if it has none.
std::size_t word_embedding_of(const StagePlan& plan);

}  // namespace lockstep::trainer
