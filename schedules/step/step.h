// A whole training step, lowered: what each rank's lanes do, and what waits for what. lower.h makes one from a
// Schedule, passes (schedules/passes/) put in the other parts of a step: gathers, reductions, collectives inside a
// stage, recomputation, the optimizer. The simulator, the emulated device and the trainer take the same Step.
//
// A rank issues its tasks in one order. A task goes to a lane; a lane takes its tasks in that order, one at a time; the
// lanes of a rank run side by side but for `after` edges. A task starts when the task before it in its lane has ended
// and all that it is after has ended.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

enum class Lane : std::uint8_t {
  compute,   // kernels
  send,      // messages to other stages; a send has ended when its bytes have left
  receive,   // ends when the message is there
  tensor,    // collectives inside a layer: tensor, sequence, context and expert parallel
  gather,    // parameters: UNSHARD
  reduce,    // gradients: REDUCE_GRAD; the optimizer's
  replicas,  // gradients over replicas of shards, beside the next bucket's reduction among the shards
  copy,      // to the host's memory and files: OFFLOAD; of activations LOAD, too; what is evicted to another rank, and
             // comes back
  load,      // from there to the device: LOAD
  host,      // kernels of the host: an update that runs beside the device's
};
inline constexpr std::size_t kNumLanes = 10;

// shift: each member sends to one other and receives from one, all as far around the group; a ring's neighbours.
enum class Comm : std::uint8_t { none, all_reduce, all_gather, reduce_scatter, all_to_all, shift, broadcast, reduce };

// The work that a group of ranks shares; a rank is in one group of a kind at most.
enum class GroupKind : std::uint8_t {
  tensor,
  context,
  expert,
  data,         // replicas, or the ranks that shards are spread over
  replicas,     // of shards: HSDP's other dimension
  embedding,    // first and last stage, where they share the weights of the embedding
  world,        // all ranks: norm of the gradients, barrier before the optimizer
  expert_data,  // replicas, or shards, of the same experts
  // Of expert-parallel ranks, those that have a group of experts, and those in the same place of all groups.
  expert_group,
  expert_groups,
  // Tensor ranks of a grid that differ in one coordinate (workload/grid_product.h).
  tensor_row,
  tensor_column,
  tensor_depth,
  secondary,  // ranks among which the secondary copy of sharded weights is spread (ZeRO++'s hpZ)
  // Two hops of a reduce-scatter over `data` (ZeRO++'s qgZ): neighbours, and the ranks with the same place among
  // theirs.
  near,
  far,
};
inline constexpr std::size_t kNumGroupKinds = 16;
std::string_view name_of(GroupKind kind);
std::string_view name_of(Lane lane);
std::string_view name_of(Comm comm);

struct Task {
  Op op = Op::forward;
  Lane lane = Lane::compute;
  Comm comm = Comm::none;         // of a collective
  bool host_waits = false;        // the host issues nothing more before this and all before it have ended
  std::uint32_t what = 0;         // Piece::what: which of a part's pieces
  std::int32_t stage = -1;        // -1: of none
  std::int32_t microbatch = -1;   // -1: of none
  std::int32_t part = -1;         // of the stage: a layer, a unit or a bucket; -1: the whole
  std::int32_t peer = -1;         // of a message: the rank at the other end; of a collective: its index in Step::groups
  std::int32_t tag = -1;          // of a message: which of the receiver's receives it is, counted from 0
  std::int64_t amount = 0;        // kernels: picoseconds; messages: bytes; collectives: payload bytes, see below
  std::int64_t issue_ps = 0;      // that the host takes to issue it
  std::uint32_t first_after = 0;  // in RankStep::after
  std::uint32_t num_after = 0;
};
// Payload bytes of a collective: what one rank has of the whole vector before an all-reduce or a reduce-scatter, what
// it has after an all-gather, what it gives away and keeps in an all-to-all, what it sends in a shift. (nccl-tests'
// "size" for each of them.)

// Which tensors an OFFLOAD or a LOAD copies: its Task::what.
enum class Copied : std::uint32_t {
  activations = 1,  // what the task's part keeps of its microbatch
  gradients,        // the reduced shard of bucket Task::part
  parameters,       // the own shard of unit Task::part
};
inline bool copies(const Task& task, Copied what) {
  return (task.op == Op::offload || task.op == Op::load) && task.what == static_cast<std::uint32_t>(what);
}
inline bool copies_activations(const Task& task) {
  return copies(task, Copied::activations);
}

struct RankStep {
  std::vector<Task> tasks;           // in the order in which they are issued
  std::vector<std::uint32_t> after;  // tasks of this rank that were issued before
  std::span<const std::uint32_t> after_of(const Task& task) const {
    return std::span<const std::uint32_t>(after).subspan(task.first_after, task.num_after);
  }
};

// Members meet lane by lane: the k-th collective that one issues to the group in a lane is the k-th of all others in
// that lane. What it has in another lane is another channel.
struct Group {
  GroupKind kind = GroupKind::data;
  // Those that the Step has. A group may be larger in truth: where all members do alike, one stands for all.
  std::vector<std::int32_t> ranks;
  std::int64_t members = 0;  // in truth; 0: those of `ranks`

  std::int64_t size() const { return members > 0 ? members : static_cast<std::int64_t>(ranks.size()); }
};

struct Step {
  std::string name;
  std::int32_t num_microbatches = 0;
  std::int32_t stages_a_pipe = 0;
  std::vector<std::int32_t> rank_of_stage = {};
  std::vector<RankStep> of_rank = {};
  std::vector<Group> groups = {};
  std::int32_t slices = 1;  // of a microbatch, which num_microbatches counts each (schedule.h)

  std::int32_t num_ranks() const { return static_cast<std::int32_t>(of_rank.size()); }
  std::int32_t num_stages() const { return static_cast<std::int32_t>(rank_of_stage.size()); }
};

}  // namespace lockstep::schedules
