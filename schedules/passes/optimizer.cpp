#include "schedules/passes/passes.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kNormBytes = 4;  // the sum of squares, as a float

}  // namespace

void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier) {
  LOCKSTEP_CHECK(ps_of_rank.size() == step.of_rank.size(), "a duration for each rank");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    std::vector<std::uint32_t> ends =
        last_of_lanes(of_rank, {Lane::compute, Lane::reduce, Lane::replicas, Lane::copy, Lane::host});
    const std::vector<std::uint32_t> over_replicas = last_of_lanes(of_rank, {Lane::replicas});
    RankWriter out(std::move(of_rank));
    if (barrier == Barrier::norm) {
      ends = {out.add({.op = Op::optimizer,
                       .lane = Lane::reduce,
                       .comm = Comm::all_reduce,
                       .peer = groups.of(rank, GroupKind::world, "the norm of the gradients"),
                       .amount = kNormBytes},
                      ends)};
      // The norm waits for these, too; explicit edges let breakdown.h attribute the wait.
      ends.insert(ends.end(), over_replicas.begin(), over_replicas.end());
    }
    out.add({.op = Op::optimizer, .amount = ps_of_rank[static_cast<std::size_t>(rank)]}, ends);
    of_rank = out.take();
  }
}

void update_during_step(Step& step, std::span<const std::int64_t> ps_of_rank) {
  LOCKSTEP_CHECK(ps_of_rank.size() == step.of_rank.size(), "a duration for each rank");
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    RankRewriter out(step.of_rank[r]);
    out.put({.op = Op::optimizer, .lane = Lane::host, .amount = ps_of_rank[r]});
    for (std::uint32_t i = 0; i < step.of_rank[r].tasks.size(); ++i) out.keep(i);
    step.of_rank[r] = out.take();
  }
}

namespace {

class RankUpdates {
 public:
  RankUpdates(const RankStep& old, std::span<const std::int64_t> ps_of_stage)
      : old_(old), ps_of_stage_(ps_of_stage), out_(old) {
    for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
      const Task& task = old.tasks[i];
      const bool gives = task.op == Op::backward || task.op == Op::weight_gradient;
      if (gives && task.lane == Lane::compute) last_gradient_[{task.stage, task.microbatch}] = i;
    }
  }

  RankStep run() {
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      const Task& task = old_.tasks[i];
      if (task.lane == Lane::compute) put_due();
      out_.keep(i);
      const std::pair key{task.stage, task.microbatch};
      if (task.op == Op::reduce_grad) last_reduction_[key] = out_.new_of(i);
      const auto last = last_gradient_.find(key);
      if (last != last_gradient_.end() && last->second == i) due_.push_back(key);
    }
    put_due();
    return out_.take();
  }

 private:
  using StageMicrobatch = std::pair<std::int32_t, std::int32_t>;

  // After messages and reductions, which other ranks wait for.
  void put_due() {
    for (const StageMicrobatch& key : due_) {
      std::vector<std::uint32_t> after;
      const auto reduction = last_reduction_.find(key);
      if (reduction != last_reduction_.end()) after.push_back(reduction->second);
      out_.put({.op = Op::optimizer,
                .stage = key.first,
                .microbatch = key.second,
                .amount = ps_of_stage_[static_cast<std::size_t>(key.first)]},
               after);
    }
    due_.clear();
  }

  const RankStep& old_;
  std::span<const std::int64_t> ps_of_stage_;
  RankRewriter out_;
  std::map<StageMicrobatch, std::uint32_t> last_gradient_;   // old index
  std::map<StageMicrobatch, std::uint32_t> last_reduction_;  // new index
  std::vector<StageMicrobatch> due_;
};

}  // namespace

void add_updates(Step& step, std::span<const std::int64_t> ps_of_stage) {
  LOCKSTEP_CHECK(ps_of_stage.size() == step.rank_of_stage.size(), "a duration for each stage");
  for (RankStep& rank : step.of_rank) rank = RankUpdates(rank, ps_of_stage).run();
}

namespace {

class RankBucketUpdates {
 public:
  using StageBucket = std::pair<std::int32_t, std::int32_t>;

  RankBucketUpdates(const RankStep& old, std::vector<StageBucket> own,
                    std::span<const std::vector<BucketUpdate>> updates)
      : old_(old), updates_(updates), out_(old) {
    for (const StageBucket& bucket : own) {
      const std::uint32_t reduced = last_reduction(bucket);
      const std::uint32_t gradient = last_gradient(bucket);
      if (update_of(bucket).at_end || (reduced == kNoTask && gradient == kNoTask)) {
        at_end_.push_back(bucket);
      } else {
        (reduced == kNoTask ? made_at_[gradient] : reduced_at_[reduced]).push_back(bucket);
      }
    }
  }

  RankStep run() {
    for (std::uint32_t i = 0; i < old_.tasks.size(); ++i) {
      if (old_.tasks[i].lane == Lane::compute) put_due();
      out_.keep(i);
      if (const auto found = made_at_.find(i); found != made_at_.end()) move(found->second, due_);
      const auto found = reduced_at_.find(i);
      if (found == reduced_at_.end()) continue;
      move(reduced_, due_);
      for (const StageBucket& bucket : found->second) reduction_of_[bucket] = out_.new_of(i);
      move(found->second, reduced_);
    }
    move(reduced_, due_);
    put_due();
    std::vector<std::uint32_t> ends;
    for (const std::uint32_t last : last_of_lanes(old_, {Lane::reduce, Lane::replicas})) {
      ends.push_back(out_.new_of(last));
    }
    for (const StageBucket& bucket : at_end_) put(bucket, ends);
    return out_.take();
  }

 private:
  const BucketUpdate& update_of(const StageBucket& bucket) const {
    return updates_[static_cast<std::size_t>(bucket.first)][static_cast<std::size_t>(bucket.second)];
  }

  template <class Is>
  std::uint32_t last_task(const Is& is) const {
    const auto found = std::find_if(old_.tasks.rbegin(), old_.tasks.rend(), is);
    return found == old_.tasks.rend() ? kNoTask : static_cast<std::uint32_t>(old_.tasks.rend() - found - 1);
  }
  std::uint32_t last_reduction(const StageBucket& of) const {
    return last_task([&](const Task& task) {
      return task.op == Op::reduce_grad && task.stage == of.first && task.part == of.second;
    });
  }
  // Gradients are made from the last part to the first.
  std::uint32_t last_gradient(const StageBucket& of) const {
    return last_task([&](const Task& task) {
      const bool gives = task.op == Op::backward || task.op == Op::weight_gradient;
      return gives && task.lane == Lane::compute && task.stage == of.first &&
             (task.part < 0 || task.part >= update_of(of).part);
    });
  }

  static void move(std::vector<StageBucket>& from, std::vector<StageBucket>& to) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
  }
  void put_due() {
    for (const StageBucket& bucket : due_) {
      const auto reduction = reduction_of_.find(bucket);
      if (reduction == reduction_of_.end()) {
        put(bucket, {});
      } else {
        put(bucket, std::span(&reduction->second, 1));
      }
    }
    due_.clear();
  }
  void put(const StageBucket& bucket, std::span<const std::uint32_t> after) {
    out_.put({.op = Op::optimizer, .stage = bucket.first, .part = bucket.second, .amount = update_of(bucket).ps},
             after);
  }

  const RankStep& old_;
  std::span<const std::vector<BucketUpdate>> updates_;
  RankRewriter out_;
  std::map<std::uint32_t, std::vector<StageBucket>> made_at_;     // by the old task that makes the last gradient
  std::map<std::uint32_t, std::vector<StageBucket>> reduced_at_;  // by the old task of the last reduction
  std::map<StageBucket, std::uint32_t> reduction_of_;             // new index of the last one
  std::vector<StageBucket> reduced_;                              // updated after the next bucket's reduction
  std::vector<StageBucket> due_;                                  // updated before the next kernel
  std::vector<StageBucket> at_end_;
};

}  // namespace

void add_bucket_updates(Step& step, std::span<const std::vector<BucketUpdate>> updates) {
  LOCKSTEP_CHECK(updates.size() == step.rank_of_stage.size(), "updates of each stage");
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    std::vector<RankBucketUpdates::StageBucket> own;
    for (std::size_t stage = 0; stage < updates.size(); ++stage) {
      if (step.rank_of_stage[stage] != rank) continue;
      for (std::size_t b = 0; b < updates[stage].size(); ++b) {
        own.emplace_back(static_cast<std::int32_t>(stage), static_cast<std::int32_t>(b));
      }
    }
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    of_rank = RankBucketUpdates(of_rank, std::move(own), updates).run();
  }
}

}  // namespace lockstep::schedules
