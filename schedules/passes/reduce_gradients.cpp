#include "schedules/passes/passes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {
namespace {

// The bucket of one kind of gradients that is being filled.
class Filling {
 public:
  Filling(GroupKind group, const BucketRules& rules) : rules_(rules), open_{.group = group} {}

  // Returns true if the bucket is full.
  bool add(std::size_t index, const Parameter& parameter) {
    open_.part = open_.parameters.empty() ? parameter.part : std::min(open_.part, parameter.part);
    open_.parameters.push_back(index);
    open_.bytes += parameter.elements * parameter.grad_bytes;
    return open_.bytes >= limit();
  }
  bool is_open() const { return !open_.parameters.empty(); }
  GradientBucket close() {
    ++closed_;
    return std::exchange(open_, {.group = open_.group});
  }

 private:
  std::int64_t limit() const {
    if (rules_.limits.empty()) return std::numeric_limits<std::int64_t>::max();
    return rules_.limits[std::min(closed_, rules_.limits.size() - 1)];
  }

  const BucketRules& rules_;
  GradientBucket open_;
  std::size_t closed_ = 0;
};

}  // namespace

BucketRules ddp_rules(std::int64_t cap_bytes) {
  return {.limits = {kDdpFirstBucketBytes, cap_bytes}};
}

BucketRules one_bucket() {
  return {};
}

std::vector<GradientBucket> gradient_buckets(std::span<const Parameter> parameters, const BucketRules& rules) {
  std::vector<GradientBucket> buckets;
  std::map<std::pair<std::int32_t, GroupKind>, Filling> kinds;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const Parameter& parameter = parameters[i];
    const auto kind = kinds.try_emplace({parameter.grad_bytes, parameter.group}, parameter.group, rules).first;
    if (kind->second.add(i, parameter)) buckets.push_back(kind->second.close());
  }
  for (auto& [key, filling] : kinds) {
    if (filling.is_open()) buckets.push_back(filling.close());
  }
  // Ordered by their first gradients, as PyTorch does.
  std::stable_sort(buckets.begin(), buckets.end(), [](const GradientBucket& a, const GradientBucket& b) {
    return a.parameters.front() > b.parameters.front();
  });
  return buckets;
}

namespace {

bool gives_weight_gradients(const Task& task) {
  return task.lane == Lane::compute && (task.op == Op::backward || task.op == Op::weight_gradient);
}

enum class Completes : std::uint8_t {
  nothing,
  part,    // the gradients of a part for a microbatch
  action,  // the gradients of a whole stage
};

// For each task of a rank, the gradients that it completes. With `last_only` only the gradients of a stage's last
// microbatch count.
std::vector<Completes> completed_gradients(const Step& step, const RankStep& rank, bool last_only) {
  constexpr std::int32_t kNone = -1;
  std::vector<Completes> completes(rank.tasks.size(), Completes::nothing);
  std::vector<std::int32_t> microbatch_of(step.rank_of_stage.size(),
                                          kNone);  // last microbatch seen, scanning from the end
  std::vector<std::vector<std::int32_t>> of_part(step.rank_of_stage.size());  // same, per part
  for (std::size_t i = rank.tasks.size(); i-- > 0;) {
    const Task& task = rank.tasks[i];
    if (!gives_weight_gradients(task)) continue;
    const auto stage = static_cast<std::size_t>(task.stage);
    const std::int32_t microbatch = task.microbatch / step.slices;  // its slices add up to one gradient
    const bool first_seen = microbatch_of[stage] == kNone;
    if (last_only && !first_seen && microbatch_of[stage] != microbatch) continue;
    if (microbatch_of[stage] != microbatch) {
      microbatch_of[stage] = microbatch;
      of_part[stage].clear();
      completes[i] = Completes::action;
    }
    const auto part = static_cast<std::size_t>(task.part) + 1;  // 0 where the action has no parts
    if (part >= of_part[stage].size()) of_part[stage].resize(part + 1, kNone);
    if (of_part[stage][part] == microbatch) continue;
    of_part[stage][part] = microbatch;
    if (completes[i] == Completes::nothing) completes[i] = Completes::part;
  }
  return completes;
}

class RankReduction {
 public:
  RankReduction(const Step& step, std::int32_t rank, std::span<const std::vector<GradientBucket>> buckets,
                const ReduceOptions& options, const GroupTable& groups)
      : step_(step),
        old_(step.of_rank[static_cast<std::size_t>(rank)]),
        rank_(rank),
        buckets_(buckets),
        options_(options),
        groups_(groups),
        out_(old_),
        left_(step.rank_of_stage.size()) {}

  RankStep run() {
    const std::vector<Completes> completes = completed_gradients(step_, old_, !options_.every_microbatch);
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const Task& task = old_.tasks[i];
      if (task.lane == Lane::compute) {
        out_.keep(i, std::exchange(kernel_waits_for_, kNoTask));
        last_kernel_ = out_.new_of(i);
      } else {
        out_.keep(i);
      }
      if (completes[i] != Completes::nothing) after_gradients(task, completes[i]);
    }
    for (const Task& whole : at_the_end_) put_all(whole);
    return out_.take();
  }

 private:
  const std::vector<GradientBucket>& buckets_of(const Task& task) const {
    return buckets_[static_cast<std::size_t>(task.stage)];
  }

  void after_gradients(const Task& task, Completes what) {
    if (options_.overlapped) return put_ready(task, what);
    if (what != Completes::action) return;
    if (!options_.every_microbatch) {
      at_the_end_.push_back(task);
      return;
    }
    put_all(task);
    kernel_waits_for_ = last_put_;
  }

  // Buckets are reduced in order: an incomplete one delays those after it.
  void put_ready(const Task& task, Completes what) {
    MicrobatchProgress& progress = left_[static_cast<std::size_t>(task.stage)];
    const auto& buckets = buckets_of(task);
    progress.parts.push_back(task.part);
    const auto is_complete = [&](const GradientBucket& bucket) {
      return what == Completes::action ||
             std::find(progress.parts.begin(), progress.parts.end(), bucket.part) != progress.parts.end();
    };
    while (progress.next < buckets.size() && is_complete(buckets[progress.next])) put(task, progress.next++);
    if (what == Completes::action) progress = {};
  }

  void put_all(const Task& whole) {
    for (std::size_t k = 0; k < buckets_of(whole).size(); ++k) put(whole, k);
  }

  void put(const Task& made_by, std::size_t index) {
    const GradientBucket& bucket = buckets_of(made_by)[index];
    Task task{.op = Op::reduce_grad,
              .lane = Lane::reduce,
              .comm = options_.comm,
              .stage = made_by.stage,
              .microbatch = options_.every_microbatch ? made_by.microbatch : -1,
              .part = static_cast<std::int32_t>(index),
              .peer = group(bucket.group, made_by.stage),
              .amount = bucket.bytes};
    std::uint32_t& summed = over_replicas_.try_emplace({task.stage, task.part}, kNoTask).first->second;
    const std::uint32_t edges[] = {last_kernel_, summed};
    last_put_ = out_.put(task, std::span(edges).first(summed == kNoTask ? 1 : 2));
    if (!options_.over_replicas) return;
    if (task.comm == Comm::reduce_scatter) task.amount = shard_of(bucket.bytes, task.peer);
    task.lane = Lane::replicas;
    task.comm = Comm::all_reduce;
    task.peer = group(GroupKind::replicas, made_by.stage);
    const std::uint32_t reduced[] = {last_put_};
    last_put_ = summed = out_.put(task, reduced);
  }

  std::int64_t shard_of(std::int64_t bytes, std::int32_t group) const {
    const std::int64_t ranks = step_.groups[static_cast<std::size_t>(group)].size();
    return (bytes + ranks - 1) / ranks;
  }
  std::int32_t group(GroupKind kind, std::int32_t stage) const {
    const std::int32_t found = groups_.find(rank_, kind);
    return found >= 0 ? found : groups_.of(rank_, kind, "the reduction of gradients of stage " + std::to_string(stage));
  }

  struct MicrobatchProgress {  // per stage and microbatch
    std::size_t next = 0;
    std::vector<std::int32_t> parts = {};  // parts that are complete
  };

  const Step& step_;
  const RankStep& old_;
  std::int32_t rank_;
  std::span<const std::vector<GradientBucket>> buckets_;
  const ReduceOptions& options_;
  const GroupTable& groups_;
  RankRewriter out_;
  std::vector<MicrobatchProgress> left_;
  std::vector<Task> at_the_end_;  // tasks that completed the gradients of each stage
  std::uint32_t last_kernel_ = kNoTask;
  std::uint32_t last_put_ = kNoTask;
  // [stage][bucket]: last sum of its shard over replicas; the shard may not be overwritten before that.
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> over_replicas_;
  std::uint32_t kernel_waits_for_ = kNoTask;
};

}  // namespace

void reduce_gradients(Step& step, std::span<const std::vector<GradientBucket>> buckets, const ReduceOptions& options) {
  LOCKSTEP_CHECK(buckets.size() == step.rank_of_stage.size(), "buckets of each stage");
  LOCKSTEP_CHECK(options.comm == Comm::all_reduce || options.comm == Comm::reduce_scatter, "a reduction");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    step.of_rank[static_cast<std::size_t>(rank)] = RankReduction(step, rank, buckets, options, groups).run();
  }
}

void reduce_at_end(Step& step, GroupKind kind, std::int64_t bytes) {
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    const std::int32_t group = groups.find(rank, kind);
    if (group < 0) continue;
    RankStep& old = step.of_rank[static_cast<std::size_t>(rank)];
    const std::vector<std::uint32_t> after = last_of_lanes(old, {Lane::compute, Lane::replicas});
    RankWriter out(std::move(old));
    out.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .peer = group, .amount = bytes},
            after);
    old = out.take();
  }
}

}  // namespace lockstep::schedules
