#include "workload/parameters.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::workload {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t grain) {
  return (value + grain - 1) / grain * grain;
}

}  // namespace

FlatBucket lay_out(std::span<const std::int64_t> member_elems, std::int32_t shards) {
  FlatBucket bucket;
  for (const std::int64_t elems : member_elems) {
    const std::int64_t begin = rounded_up(bucket.elems, kFlatGrain);
    bucket.places.push_back({begin, begin + elems});
    bucket.elems = begin + elems;
  }
  bucket.elems = rounded_up(bucket.elems, shards * kFlatGrain);
  return bucket;
}

namespace {

using Bucket = std::vector<std::size_t>;

std::int64_t elems_of(const StagePlan& plan, const Bucket& bucket, const Layout& layout) {
  std::int64_t elems = 0;
  for (const std::size_t p : bucket) elems += elems_of_rank(plan.parameters[p], layout);
  return elems;
}

std::int32_t first_part_of(const StagePlan& plan, const Bucket& bucket) {
  std::int32_t part = plan.parameters[bucket.front()].part;
  for (const std::size_t p : bucket) part = std::min(part, plan.parameters[p].part);
  return part;
}

schedules::GroupKind group_of(const Parameter& parameter) {
  return parameter.expert ? schedules::GroupKind::expert_data : schedules::GroupKind::data;
}

// PyTorch's buckets over all parameters except the one that must be alone.
std::vector<Bucket> ddp_buckets(const StagePlan& plan, const Layout& layout, std::size_t alone) {
  std::vector<schedules::Parameter> parameters;
  std::vector<std::size_t> index;
  for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
    if (p == alone) continue;
    index.push_back(p);
    parameters.push_back({.elements = elems_of_rank(plan.parameters[p], layout),
                          .grad_bytes = static_cast<std::int32_t>(core::size_of(layout.gradient)),
                          .part = plan.parameters[p].part,
                          .group = group_of(plan.parameters[p])});
  }
  const schedules::BucketRules rules =
      layout.bucket_cap_bytes == 0 ? schedules::one_bucket() : schedules::ddp_rules(layout.bucket_cap_bytes);
  std::vector<Bucket> buckets;
  for (const schedules::GradientBucket& bucket : schedules::gradient_buckets(parameters, rules)) {
    Bucket& made = buckets.emplace_back();
    for (const std::size_t p : bucket.parameters) made.push_back(index[p]);
  }
  return buckets;
}

// One per part, and one more for its experts and for each tile, the last part first.
std::vector<Bucket> part_buckets(const StagePlan& plan, std::size_t alone) {
  std::map<std::tuple<std::int32_t, bool, std::int32_t>, Bucket> of_part;
  for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
    const Parameter& parameter = plan.parameters[p];
    if (p != alone) of_part[{parameter.part, parameter.expert, tile_unit_of(parameter)}].push_back(p);
  }
  std::vector<Bucket> buckets;
  for (auto bucket = of_part.rbegin(); bucket != of_part.rend(); ++bucket) buckets.push_back(std::move(bucket->second));
  return buckets;
}

// One per matrix, together with the biases and norms that belong to it.
std::vector<Bucket> matrix_buckets(const StagePlan& plan, const std::vector<Bucket>& parts) {
  std::vector<Bucket> made;
  for (const Bucket& part : parts) {
    made.emplace_back();
    bool has_matrix = false;
    for (const std::size_t p : part) {
      if (has_matrix && plan.parameters[p].decays) made.emplace_back();
      has_matrix = has_matrix || plan.parameters[p].decays;
      made.back().push_back(p);
    }
  }
  return made;
}

// Up to ZeRO 2 these are PyTorch's buckets (1 MiB first, then the cap); with ZeRO 3 there is one per part. A word
// embedding that another stage has as well, or that is gathered for the whole step, is alone in its bucket, so that its
// shards have the same layout on both stages.
std::vector<Bucket> buckets_for(const StagePlan& plan, const Layout& layout) {
  const std::int32_t zero = zero_of(layout);
  const bool shared = plan.tied && plan.place.embedding != plan.place.head;  // also on another stage
  const std::size_t word_embedding = word_embedding_of(plan.parameters);
  const bool is_alone = word_embedding < plan.parameters.size() && (shared || zero == 3);
  const std::size_t alone = is_alone ? word_embedding : plan.parameters.size();
  std::vector<Bucket> buckets = zero == 3 ? part_buckets(plan, alone) : ddp_buckets(plan, layout, alone);
  if (layout.gather_lists) buckets = matrix_buckets(plan, buckets);
  if (!is_alone) return buckets;
  // Its gradient is complete with its part's: after all buckets of later parts.
  const std::int32_t part = plan.parameters[alone].part;
  const auto place = std::find_if(buckets.begin(), buckets.end(),
                                  [&](const Bucket& bucket) { return first_part_of(plan, bucket) < part; });
  buckets.insert(place, Bucket{alone});
  return buckets;
}

}  // namespace

StagePlan plan_of(const Model& model, const Layout& layout, const StageSlice& slice) {
  StagePlan plan{
      .place = slice, .tied = model.tied_embeddings, .parameters = parameters_of(model, layout, slice), .buckets = {}};
  plan.buckets = buckets_for(plan, layout);
  return plan;
}

std::int64_t updated_elems(const StagePlan& plan, std::size_t bucket, const Layout& layout) {
  const std::int64_t elems = elems_of(plan, plan.buckets[bucket], layout);
  if (zero_of(layout) == 0) return elems;
  const bool expert = plan.parameters[plan.buckets[bucket].front()].expert;
  const std::int64_t shards = expert ? expert_shards_of(layout) : shards_of(layout);
  return (elems + shards - 1) / shards;
}

bool is_summed_at_end(const StagePlan& plan, std::size_t bucket, const Layout& layout) {
  const bool tied = plan.tied && plan.place.embedding != plan.place.head;
  return std::any_of(plan.buckets[bucket].begin(), plan.buckets[bucket].end(), [&](std::size_t p) {
    const auto is_over = [&](schedules::GroupKind kind) { return is_summed_over(kind, plan, p, layout); };
    const bool over_tensor = layout.tp > 1 && std::any_of(kTensorGroups.begin(), kTensorGroups.end(), is_over);
    return over_tensor || (tied && is_summed_over(schedules::GroupKind::embedding, plan, p, layout));
  });
}

std::vector<schedules::GradientBucket> gradient_buckets_of(const StagePlan& plan, const Layout& layout) {
  std::vector<schedules::GradientBucket> buckets;
  for (const Bucket& bucket : plan.buckets) {
    buckets.push_back(
        {.bytes = elems_of(plan, bucket, layout) * static_cast<std::int64_t>(core::size_of(layout.gradient)),
         .part = first_part_of(plan, bucket),
         .group = group_of(plan.parameters[bucket.front()]),
         .parameters = bucket});
  }
  return buckets;
}

std::vector<schedules::Unit> units_of(const StagePlan& plan, const Layout& layout) {
  std::vector<schedules::Unit> units;
  for (auto bucket = plan.buckets.rbegin(); bucket != plan.buckets.rend(); ++bucket) {
    const std::int64_t elems = elems_of(plan, *bucket, layout);
    const bool embeds = plan.place.embedding && first_part_of(plan, *bucket) == 0;
    const bool tied = plan.tied && plan.place.head && bucket->front() == word_embedding_of(plan.parameters);
    units.push_back({.first_part = first_part_of(plan, *bucket),
                     .parameter_bytes = elems * static_cast<std::int64_t>(core::size_of(layout.compute)),
                     .gradient_bytes = elems * static_cast<std::int64_t>(core::size_of(layout.gradient)),
                     .group = group_of(plan.parameters[bucket->front()]),
                     .held = embeds && tied,
                     .in_backward = !embeds,
                     .tile = zero_of(layout) == 3 ? tile_unit_of(plan.parameters[bucket->front()]) : -1});
  }
  return units;
}

std::vector<bool> has_secondary(const StagePlan& plan, const Layout& layout) {
  std::vector<bool> has;
  const std::vector<schedules::Unit> units = units_of(plan, layout);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    has.push_back(layout.secondary_ranks > 0 && unit->in_backward && unit->group == schedules::GroupKind::data);
  }
  return has;
}

std::int64_t partial_bytes(schedules::GroupKind kind, const std::vector<StagePlan>& plans, const Layout& layout) {
  std::int64_t most = 0;
  for (const StagePlan& plan : plans) {
    std::int64_t elems = 0;
    for (const Parameter& parameter : plan.parameters) {
      if (is_partial_over(kind, parameter, layout)) elems += elems_of_rank(parameter, layout);
    }
    most = std::max(most, elems);
  }
  return most * static_cast<std::int64_t>(core::size_of(layout.gradient));
}

bool is_summed_over(schedules::GroupKind kind, const StagePlan& plan, std::size_t parameter, const Layout& layout) {
  return kind == schedules::GroupKind::embedding ? parameter == word_embedding_of(plan.parameters)
                                                 : is_partial_over(kind, plan.parameters[parameter], layout);
}

bool counts_in_norm(const StagePlan& plan, std::size_t parameter, const Layout& layout, const Coordinates& at) {
  std::int32_t first_replica = zero_of(layout) == 0 ? 1 : shards_of(layout);
  if (plan.parameters[parameter].expert) first_replica = std::max(first_replica, layout.ep);
  if (data_index_of(layout, at) >= first_replica) return false;
  if (!is_first_with(plan.parameters[parameter], layout, at.tp)) return false;
  return parameter != word_embedding_of(plan.parameters) || plan.place.embedding;
}

std::int64_t tied_gradient_bytes(const StagePlan& plan, const Layout& layout) {
  const std::int64_t elems = elems_of_rank(plan.parameters[word_embedding_of(plan.parameters)], layout);
  const std::int64_t shards = zero_of(layout) > 0 ? shards_of(layout) : 1;
  return (elems + shards - 1) / shards * static_cast<std::int64_t>(core::size_of(layout.gradient));
}

}  // namespace lockstep::workload
