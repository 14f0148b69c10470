// Plans as data: chunks of a block, the steps of each rank's lanes, and their numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"
#include "core/index.h"

namespace lockstep::plan {

// Boundaries of the chunks of a block: the one definition, for executors, counts and tests.

// First element of chunk i when `count` elements are cut into `chunks` chunks of nearly equal size: floor(i*count/k).
// Chunk i is [chunk_begin(i), chunk_begin(i + 1)); written so that i*count cannot overflow.
constexpr std::int64_t chunk_begin(std::int64_t count, std::int64_t chunks, std::int64_t i) {
  return count / chunks * i + count % chunks * i / chunks;
}

constexpr std::int64_t chunk_size(std::int64_t count, std::int64_t chunks, std::int64_t i) {
  return chunk_begin(count, chunks, i + 1) - chunk_begin(count, chunks, i);
}

// A Plan: one collective algorithm for one number of ranks, as data.
//
// Five operations move and combine chunks. A block (collective.h) is split into `chunks_per_block` chunks of nearly
// equal size; chunk c of a buffer is chunk c % chunks_per_block of block c / chunks_per_block. Scratch is a rank's own
// working memory: slots that each hold one chunk of any kind; the size of its content follows from what was written.
//
//   send         src -> peer                   its slice, as it is when the step runs
//   recv         dst <- peer
//   recv_reduce  dst <- src (+) peer           src may be dst (accumulate), or another slice of the same rank
//   copy         dst <- src
//   reduce       dst <- dst (+) src
//
// Steps of a lane run in order; lanes of a rank run concurrently. `after` makes a step wait for steps of other lanes of
// the same rank. The k-th send of lane l to a peer is received by the k-th recv or recv_reduce from that rank in
// lane l at the peer: (from, to, lane) is a first-in first-out channel. How many sends may be in flight before their
// receives, whether bytes are copied or read in place, whether steps are fused or cut into segments: the executor
// decides all that, and it is never part of a plan.

enum class Op : std::uint8_t { send, recv, recv_reduce, copy, reduce };
enum class Buffer : std::uint8_t { input, output, scratch };

std::string_view name_of(Op op);
std::string_view name_of(Buffer buffer);

// `count` chunks of a buffer from chunk `first` on.
struct Slice {
  Buffer buffer = Buffer::input;
  int first = 0;
  int count = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

inline Slice input(int first, int count = 1) {
  return {Buffer::input, first, count};
}
inline Slice output(int first, int count = 1) {
  return {Buffer::output, first, count};
}
inline Slice scratch(int first, int count = 1) {
  return {Buffer::scratch, first, count};
}

// A step of another lane of the same rank, to wait for. As an argument of PlanBuilder, lane -1 is none.
struct After {
  int lane = -1;
  int step = -1;
  friend bool operator==(const After&, const After&) = default;
};

struct Step {
  Op op = Op::copy;
  int peer = -1;             // send, recv, recv_reduce
  Slice src;                 // read on this rank; unused by recv
  Slice dst;                 // written on this rank; unused by send
  std::vector<After> after;  // mostly none or one
  friend bool operator==(const Step&, const Step&) = default;
};

inline bool reads_peer(Op op) {
  return op == Op::recv || op == Op::recv_reduce;
}
inline bool reads_src(Op op) {
  return op != Op::recv;
}
inline bool writes_dst(Op op) {
  return op != Op::send;
}
inline bool reads_dst(Op op) {
  return op == Op::reduce;
}

using Lane = std::vector<Step>;

struct RankSteps {
  std::vector<Lane> lanes;
  friend bool operator==(const RankSteps&, const RankSteps&) = default;
};

struct Plan {
  collectives::Kind kind = collectives::Kind::all_reduce;
  std::string algorithm;  // name with options, for people and records; no interpreter reads it
  int num_ranks = 0;
  int root = 0;  // 0 if the collective has no root
  int chunks_per_block = 1;
  int scratch_chunks = 0;        // per rank; the same for all
  std::vector<RankSteps> ranks;  // [rank]
  friend bool operator==(const Plan&, const Plan&) = default;
};

int input_chunks(const Plan& plan, int rank);
int output_chunks(const Plan& plan, int rank);
int num_lanes(const Plan& plan);  // the most of any rank

// Builds plans step by step: the only way in which algorithms make them.
class PlanBuilder {
 public:
  PlanBuilder(collectives::Kind kind, int num_ranks, int root, int chunks_per_block);

  collectives::Kind kind() const { return plan_.kind; }
  void cut_blocks(int chunks_per_block) { plan_.chunks_per_block = chunks_per_block; }

  // All calls append to `lane` of `rank` and return the step's index there, for use in an After.
  int send(int rank, int peer, Slice src, int lane = 0, After after = {});
  int recv(int rank, int peer, Slice dst, int lane = 0, After after = {});
  int recv_reduce(int rank, int peer, Slice dst, Slice src, int lane = 0, After after = {});
  int copy(int rank, Slice dst, Slice src, int lane = 0, After after = {});
  int reduce(int rank, Slice dst, Slice src, int lane = 0, After after = {});

  // Appends a send at `from` and its recv at `to`.
  void transfer(int from, int to, Slice src, Slice dst, int lane = 0);

  // Reserves the next `chunks` scratch slots on every rank; returns the first.
  int take_scratch(int chunks);

  Plan finish(std::string algorithm);

 private:
  int append(int rank, int lane, Step step);
  Plan plan_;
};

// Numbers all steps and lanes of a plan from 0 on, so that facts about them can be kept in flat arrays.

// A step: its rank, its lane there, and its index in that lane.
struct StepIndex {
  int rank = -1;
  int lane = -1;
  int step = -1;
  friend bool operator==(const StepIndex&, const StepIndex&) = default;
};

// Steps are numbered by rank, then lane, then order. Holds no reference to the plan.
class StepIds {
 public:
  StepIds() = default;
  explicit StepIds(const Plan& plan);

  int num_steps() const { return static_cast<int>(indices_.size()); }
  int num_lanes() const { return static_cast<int>(first_step_.size()) - 1; }  // all ranks' together

  int lane_id(int rank, int lane) const { return first_lane_[at(rank)] + lane; }
  int lanes_of(int rank) const { return first_lane_[at(rank) + 1] - first_lane_[at(rank)]; }
  int lane_begin(int lane_id) const { return first_step_[at(lane_id)]; }  // step id
  int lane_end(int lane_id) const { return first_step_[at(lane_id) + 1]; }
  int id(int rank, int lane, int step) const { return lane_begin(lane_id(rank, lane)) + step; }
  int id(StepIndex index) const { return id(index.rank, index.lane, index.step); }
  int id(int rank, After after) const { return id(rank, after.lane, after.step); }

  const StepIndex& index(int step_id) const { return indices_[at(step_id)]; }
  int lane_of(int step_id) const { return lane_id(index(step_id).rank, index(step_id).lane); }

 private:
  std::vector<int> first_lane_{0};  // [rank], plus one for the end
  std::vector<int> first_step_{0};  // [lane id], plus one for the end
  std::vector<StepIndex> indices_;  // [step id]
};

inline const Step& step_at(const Plan& plan, const StepIndex& index) {
  return plan.ranks[at(index.rank)].lanes[at(index.lane)][at(index.step)];
}

}  // namespace lockstep::plan
