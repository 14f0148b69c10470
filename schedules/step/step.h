// A lowered training step: the tasks of each rank's lanes and their dependencies. lower() makes one from a Schedule,
// and passes (schedules/passes/) add the other parts of a step: gathers, reductions, collectives inside a stage,
// recomputation, the optimizer. The simulator, the emulated device and the trainer all take a Step.
//
// A rank issues its tasks in one order. A lane runs its tasks in that order, one at a time; the lanes of a rank run
// concurrently except for `after` edges. A task starts when the previous task of its lane and all tasks of its `after`
// edges have ended.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

enum class Lane : std::uint8_t {
  compute,   // kernels
  send,      // messages to other stages; a send has ended when its bytes have left
  receive,   // a receive has ended when the message has arrived
  tensor,    // collectives inside a layer: tensor, sequence, context and expert parallel
  gather,    // parameters: UNSHARD
  reduce,    // gradients: REDUCE_GRAD; the optimizer's
  replicas,  // gradients over replicas of shards, during the next bucket's reduction among the shards
  copy,      // OFFLOAD to the host's memory and files, LOAD of activations, and evictions to another rank and back
  load,      // LOAD of parameter shards to the device
  host,      // kernels on the host: an optimizer update that overlaps the device's kernels
};
inline constexpr std::size_t kNumLanes = 10;

// shift: each member sends to the member a fixed distance ahead in the group, as ring neighbours do.
enum class Comm : std::uint8_t { none, all_reduce, all_gather, reduce_scatter, all_to_all, shift, broadcast, reduce };
inline constexpr std::size_t kNumComms = 8;

// The purpose of a group of ranks; a rank is in at most one group of each kind.
enum class GroupKind : std::uint8_t {
  tensor,
  context,
  expert,
  data,         // replicas, or the ranks over which parameters are sharded
  replicas,     // ranks with equal shards: HSDP's other dimension
  embedding,    // first and last stage, if they share the embedding's weights
  world,        // all ranks: gradient norm, barrier before the optimizer
  expert_data,  // replicas, or shards, of the same experts
  // Expert-parallel ranks that hold one group of experts, and those at the same index within each group of experts.
  expert_group,
  expert_groups,
  // Tensor ranks of a grid that differ in one coordinate (workload/grid_product.h).
  tensor_row,
  tensor_column,
  tensor_depth,
  secondary,  // ranks over which the secondary copy of weights is sharded (ZeRO++'s hpZ)
  // The two hops of a reduce-scatter over `data` (ZeRO++'s qgZ): neighbouring ranks, then ranks with the same index
  // among their neighbours.
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
  Comm comm = Comm::none;         // for collectives
  bool host_waits = false;        // the host issues no later task until this and all earlier ones have ended
  std::uint32_t what = 0;         // Piece::what: which of a part's pieces
  std::int32_t stage = -1;        // -1: no stage
  std::int32_t microbatch = -1;   // -1: no microbatch
  std::int32_t part = -1;         // a layer, unit or bucket of the stage; -1: the whole stage
  std::int32_t peer = -1;         // messages: the rank at the other end; collectives: index in Step::groups
  std::int32_t tag = -1;          // messages: index among the receiver's receives, from 0
  std::int64_t amount = 0;        // kernels: picoseconds; messages: bytes; collectives: payload bytes, see below
  std::int64_t issue_ps = 0;      // host time to issue the task
  std::uint32_t first_after = 0;  // in RankStep::after
  std::uint32_t num_after = 0;
};
// Payload bytes of a collective (nccl-tests' "size"): the input of one rank for an all-reduce or reduce-scatter, its
// output for an all-gather, its input (including what it keeps) for an all-to-all, its message for a shift.

// Tensors that an OFFLOAD or LOAD copies, in Task::what.
enum class Copied : std::uint32_t {
  activations = 1,  // those that the task's part keeps of its microbatch
  gradients,        // the reduced shard of bucket Task::part
  parameters,       // the rank's own shard of unit Task::part
};
inline bool copies(const Task& task, Copied what) {
  return (task.op == Op::offload || task.op == Op::load) && task.what == static_cast<std::uint32_t>(what);
}
inline bool copies_activations(const Task& task) {
  return copies(task, Copied::activations);
}

struct RankStep {
  std::vector<Task> tasks;           // in issue order
  std::vector<std::uint32_t> after;  // indices of earlier tasks of this rank
  std::span<const std::uint32_t> after_of(const Task& task) const {
    return std::span<const std::uint32_t>(after).subspan(task.first_after, task.num_after);
  }
};

// Members match collectives per lane: the k-th collective of the group that a rank issues in a lane matches the k-th of
// each other member in that lane. Different lanes are different communicators.
struct Group {
  GroupKind kind = GroupKind::data;
  // Members that are ranks of the Step. The real group may be larger: where members do equal work, one represents all.
  std::vector<std::int32_t> ranks;
  std::int64_t members = 0;  // number of real members; 0: ranks.size()

  std::int64_t size() const { return members > 0 ? members : static_cast<std::int64_t>(ranks.size()); }
};

struct Step {
  std::string name;
  std::int32_t num_microbatches = 0;
  std::int32_t stages_per_pipe = 0;
  std::vector<std::int32_t> rank_of_stage = {};
  std::vector<RankStep> of_rank = {};
  std::vector<Group> groups = {};
  std::int32_t slices = 1;  // per microbatch; num_microbatches counts slices (schedule.h)

  std::int32_t num_ranks() const { return static_cast<std::int32_t>(of_rank.size()); }
  std::int32_t num_stages() const { return static_cast<std::int32_t>(rank_of_stage.size()); }
};

// For each stage of a rank, the microbatches that pass through it: none in a step without kernels; with two pipes, each
// has its own.
std::map<std::int32_t, std::set<std::int32_t>> microbatches_of(const RankStep& rank);

// Tensors that the next (or previous) stage of the same rank takes from a kernel without a message.
enum class HandOver : std::uint8_t { none, activations, gradient };
// By task of the rank: what the last kernel of a stage and microbatch hands over.
std::vector<HandOver> hand_overs_of(const Step& step, const RankStep& rank);

// When each task of a step ran: the result of the simulator and the emulated device, and the input of plots.

struct TaskSpan {
  std::int64_t start_ps = 0;
  std::int64_t end_ps = 0;
};

// [rank][task], from the start of the step.
using StepTimeline = std::vector<std::vector<TaskSpan>>;

// Looks up a rank's group of each kind.

class GroupTable {
 public:
  explicit GroupTable(const Step& step);

  // Index in Step::groups; -1 if the rank has no group of that kind.
  std::int32_t find(std::int32_t rank, GroupKind kind) const;
  // Like find(), but throws a usage Error that names rank and kind if there is none. `who` needs the group: "recipe of
  // stage 3".
  std::int32_t of(std::int32_t rank, GroupKind kind, const std::string& who) const;

 private:
  std::vector<std::array<std::int32_t, kNumGroupKinds>> of_rank_;
};

// Lowers a schedule to a step: one task per action, plus a send and a receive for each product that goes to another
// rank.

// Times of a stage for one microbatch.
struct StageCosts {
  std::int64_t forward_ps = 0;
  std::int64_t input_gradient_ps = 0;
  std::int64_t weight_gradient_ps = 0;  // a full backward takes both
  std::int64_t message_bytes = 0;       // its output, and the gradient of its output
  std::int64_t kept_bytes = 0;          // activations kept until the backward, which an EVICT moves
};

enum class Sends : std::uint8_t {
  asynchronous,  // the compute lane continues
  awaited,       // the next computation waits until the message has left (Megatron without overlap_p2p_communication)
};

// `costs`: one entry per stage of the schedule, or per slice of each stage (work_index()). Fused actions start when all
// of their messages have arrived, and send when all have ended. The schedule has to pass check(); messages in it are
// replaced.
//
// EVICT sends activations that are there after the computation before it, and overlaps the next computation; later
// computations and FETCHes wait for it, as they use the freed memory. FETCH sends its request and receives concurrently
// with the next computation; the backward that needs it waits. The partner rank answers in order, in lane copy,
// independently of its own list.
Step lower(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends = Sends::asynchronous);

// Checks that a step can run, whatever made it: lowering, passes or a test.

struct StepProblem {
  std::int32_t rank = 0;
  std::uint32_t task = 0;  // index in the rank's tasks; their number if no task is concerned
  std::string what;
};

// Returns at most `limit` problems; empty if the step can run. Edges point back; each message has one sender and one
// receiver that agree; the members of a group issue the same collectives in each lane, for the same parts of copies of
// a stage; units are gathered and freed alternately; activations are made before they are used; and all lanes of all
// ranks finish.
std::vector<StepProblem> check_step(const Step& step, std::size_t limit = 10);
// Only the part about collectives. All ranks and groups that tasks name have to exist.
std::vector<StepProblem> check_collectives(const Step& step, std::size_t limit = 10);

// "rank 1, task 7 (0F1): ..."
std::string text_of(const Step& step, const StepProblem& problem);

// Throws core::Error(internal) with the first problem: steps are made by this library, not given by users.
void check_step_or_throw(const Step& step);

}  // namespace lockstep::schedules
