// A training step as data: the actions of each rank, in order. Generators (schedules/generators/) make schedules as
// pure functions of integers, or a user writes one (parse_csv() below). All are checked, counted, played, drawn and run
// by the same code.
//
// Words: a *stage* is a part of the model's layers; a *pipe* is a chain of stages that holds the whole model (one, or
// two in opposite directions for Chimera and DualPipe, each with its own copy of the weights); a *microbatch* goes
// through one pipe. Stages are numbered pipe after pipe: stage s of pipe k has the number s + k * stages_per_pipe.
//
// Where microbatches are cut into token slices (schedules/slices.h), slices go through the stages in place of
// microbatches: slice s of k of microbatch j has the number j * k + s in every `microbatch` field, and num_microbatches
// counts all slices.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::schedules {

// Operations, with the letters of torch.distributed.pipelining.schedules.
enum class Op : std::uint8_t {
  forward,          // F
  backward,         // B: both gradients
  input_gradient,   // I: the previous stage waits for it
  weight_gradient,  // W: only the optimizer waits for it
  // Messages, added by with_messages(). The action's stage is the one that sends or receives.
  send_activations,  // SEND_F
  recv_activations,  // RECV_F
  send_gradient,     // SEND_B
  recv_gradient,     // RECV_B
  // Actions on a stage's parameters, where they are sharded.
  unshard,      // UNSHARD: gather them
  reshard,      // RESHARD: free the gathered parameters
  reduce_grad,  // REDUCE_GRAD: reduce their gradients over the replicas
  // Activations that a forward kept go to the rank at the other end of the pipeline, num_ranks - 1 - rank, and come
  // back before the backward (BPipe, schedules/generators/looped.cpp). PyTorch has no token for these.
  evict,  // EVICT
  fetch,  // FETCH
  // Only in a lowered step (schedules/step/step.h); PyTorch has no token for these either.
  recompute,         // RECOMPUTE: repeats a forward for the backward that follows
  layer_collective,  // COLLECTIVE: inside a layer
  optimizer,         // STEP
  offload,           // OFFLOAD: to host memory
  load,              // LOAD: from host memory
  send_chunk,        // SEND_CHUNK, RECV_CHUNK: messages of a collective that is run message by message
  recv_chunk,
  // The other ends of EVICT and FETCH: the fetching rank first sends a request.
  hold,   // HOLD: receives what its peer evicts
  ask,    // ASK: sends the request, before a FETCH
  asked,  // ASKED: receives the request
  yield,  // YIELD: sends back what HOLD received
  // Work for the bubbles (schedules/passes/passes.h).
  curvature,  // CURVATURE: computes a layer's curvature from a microbatch's activations or gradients
  inversion,  // INVERT: inverts a layer's curvature
  filler,     // FILL: any other work
};

inline bool is_compute(Op op) {
  return op <= Op::weight_gradient;
}
// Messages of activations and gradients between stages.
inline bool is_between_stages(Op op) {
  return op >= Op::send_activations && op <= Op::recv_gradient;
}
// Moves of kept activations to another rank and back.
inline bool is_of_eviction(Op op) {
  return op == Op::evict || op == Op::fetch;
}
// All messages between two ranks.
inline bool is_send(Op op) {
  return op == Op::send_activations || op == Op::send_gradient || op == Op::send_chunk || op == Op::evict ||
         op == Op::ask || op == Op::yield;
}
inline bool is_recv(Op op) {
  return op == Op::recv_activations || op == Op::recv_gradient || op == Op::recv_chunk || op == Op::hold ||
         op == Op::asked || op == Op::fetch;
}

inline bool is_filler(Op op) {
  return op >= Op::curvature;
}
inline bool is_message(Op op) {
  return is_send(op) || is_recv(op);
}
// True if the action is on a stage's parameters and belongs to no microbatch.
inline bool is_of_parameters(Op op) {
  return op == Op::unshard || op == Op::reshard || op == Op::reduce_grad;
}
inline constexpr std::int32_t kNoMicrobatch = -1;

struct Action {
  Op op = Op::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;  // or kNoMicrobatch
  // Runs together with the next action: both need their inputs at the start and give their outputs at the end
  // (DualPipe's F&B).
  bool with_next = false;

  friend bool operator==(const Action&, const Action&) = default;
};

struct Schedule {
  std::string name;
  std::int32_t num_microbatches = 0;  // over all pipes; each slice counts
  std::int32_t stages_per_pipe = 0;
  std::vector<std::int32_t> rank_of_stage;        // one entry per stage of all pipes
  std::vector<std::vector<Action>> of_rank = {};  // one list per rank
  std::vector<std::int64_t> slice_tokens = {};    // see PipelineShape

  std::int32_t slices() const { return slice_tokens.empty() ? 1 : static_cast<std::int32_t>(slice_tokens.size()); }
  std::int32_t num_ranks() const { return static_cast<std::int32_t>(of_rank.size()); }
  std::int32_t num_stages() const { return static_cast<std::int32_t>(rank_of_stage.size()); }
  std::int32_t num_pipes() const { return num_stages() / stages_per_pipe; }
  std::int32_t chunks() const { return stages_per_pipe / num_ranks(); }  // stages per rank in each pipe
  bool is_first(std::int32_t stage) const { return stage % stages_per_pipe == 0; }
  bool is_last(std::int32_t stage) const { return (stage + 1) % stages_per_pipe == 0; }
};

// The end of the actions of a list that run together with the one at `begin`.
inline std::size_t end_of_fused(const std::vector<Action>& list, std::size_t begin) {
  std::size_t end = begin + 1;
  while (list[end - 1].with_next && end < list.size()) ++end;
  return end;
}

// True if any rank moves kept activations to another rank.
bool evicts_activations(const Schedule& schedule);

// Number of kinds of work: stages x slices.
inline std::size_t num_works(const Schedule& schedule) {
  return static_cast<std::size_t>(schedule.num_stages()) * static_cast<std::size_t>(schedule.slices());
}
// Index of a stage's work for a microbatch (or slice) in a list with num_works() entries, one per stage and slice.
inline std::size_t work_index(std::int32_t stage, std::int32_t microbatch, std::int32_t slices) {
  const std::int32_t slice = microbatch < 0 ? 0 : microbatch % slices;
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(slices) + static_cast<std::size_t>(slice);
}

// The shape of a generated schedule, and the placement of stages on ranks.

struct PipelineShape {
  std::int32_t ranks = 1;         // p
  std::int32_t microbatches = 1;  // m
  std::int32_t chunks = 1;        // v, stages per rank
  // Tokens in each slice of a microbatch (schedules/slices.h); empty: microbatches are whole.
  std::vector<std::int64_t> slice_tokens = {};

  std::int32_t slices() const {  // k
    return slice_tokens.empty() ? 1 : static_cast<std::int32_t>(slice_tokens.size());
  }
};

// Puts stage s on rank s % ranks: v chunks per rank, and each pass goes from the first rank to the last.
std::vector<std::int32_t> looped_placement(std::int32_t ranks, std::int32_t chunks);
// Every other pass through the ranks goes backwards: 0 .. p-1, p-1 .. 0, 0 .. p-1 (a V with two chunks per rank,
// Hanayo's waves with more). Consecutive passes meet on one rank.
std::vector<std::int32_t> folded_placement(std::int32_t ranks, std::int32_t chunks);
// Two pipes: one from rank 0 to p-1, one from p-1 to 0.
std::vector<std::int32_t> opposite_placement(std::int32_t ranks);

// The data dependencies of actions.

// Results of a stage for a microbatch: its activations, or the gradient of its input. (Weight gradients stay on the
// rank.)
enum class Product : std::uint8_t { activations, gradient };

struct Need {
  Product product = Product::activations;
  std::int32_t stage = 0;  // stage that makes the product
  std::int32_t microbatch = 0;
};

struct Needs {
  std::array<Need, 2> all;
  std::size_t count = 0;
  const Need* begin() const { return all.data(); }
  const Need* end() const { return all.data() + count; }
};

// A forward needs the activations of the previous stage. A backward (or input gradient) needs the activations of its
// own stage and the gradient of the next stage. A weight gradient needs the input gradient of its own stage.
Needs needs_of(const Schedule& schedule, const Action& action);

// The product that a computation makes; no value for others.
std::optional<Product> product_of(Op op);

// Index of a product in arrays with one entry per product.
inline std::size_t product_index(const Schedule& schedule, const Need& need) {
  const auto m = static_cast<std::size_t>(schedule.num_microbatches);
  const auto stage = static_cast<std::size_t>(need.stage);
  return (2 * stage + (need.product == Product::gradient ? 1 : 0)) * m + static_cast<std::size_t>(need.microbatch);
}
inline std::size_t num_products(const Schedule& schedule) {
  return 2 * static_cast<std::size_t>(schedule.num_stages()) * static_cast<std::size_t>(schedule.num_microbatches);
}

// The messages between ranks: activations and gradients that cross a stage boundary.

// The rank that receives the product of `action`; no value if the product stays on its rank.
std::optional<std::int32_t> receiver_of(const Schedule& schedule, const Action& action);

// The rank at the other end of a send or a receive.
std::int32_t peer_of(const Schedule& schedule, const Action& message);

// The payload of a send or a receive.
Need message_of(const Action& message);

bool has_messages(const Schedule& schedule);

// The schedule with SEND and RECV actions in place of those that it has: each message is sent right after the action
// that makes its payload and received right before the action that needs it.
Schedule with_messages(const Schedule& schedule);

// Checks that a schedule is a complete training step: every microbatch goes once through each stage of one pipe,
// forward and backward, and each action comes after those that it depends on. If the lists contain messages, each
// message is sent once, after its payload is made, and received once, before its payload is used. On each stage the
// slices of a microbatch go forward from first to last and backward from last to first. Evicted activations are fetched
// before their backward. Times and channels do not matter here; hang_of() checks for deadlocks of channels.

struct Problem {
  std::int32_t rank = 0;
  std::size_t index = 0;  // in the rank's list; the list's length if an action is missing
  std::string what;
};

// All problems, in the order of ranks and lists; empty if the schedule is correct.
std::vector<Problem> check(const Schedule& schedule);

// The lists of all ranks around the problem's index, which is bracketed. Columns are equal indices, not equal times.
std::string grid_around(const Schedule& schedule, const Problem& problem);

// Throws core::Error(usage) with the first problem and the grid around it if the schedule has any problem.
void check_or_throw(const Schedule& schedule);

// Checks whether ranks that run their lists with messages (with_messages()) deadlock on a given kind of channel.

enum class Waiting : std::uint8_t {
  blocking,  // each send blocks until it is received (MPI_Ssend)
  batched,   // messages between two computations start together and are awaited before the next computation (PyTorch's
             // P2POp)
  buffered,  // a send does not block while fewer than `slots` messages of its (sender, receiver) pair are in flight
};

struct ChannelRules {
  Waiting waiting = Waiting::batched;
  std::int32_t slots = 1;  // per pair of ranks, if buffered
};

// Empty if every rank finishes; else the action at which each blocked rank stands: "rank 1 at 4RECV_F2 from rank 0;
// ...".
std::string hang_of(const Schedule& with_messages, const ChannelRules& rules);

// Schedules as text. Actions are written as torch.distributed.pipelining prints them: "0F1" is the forward of
// microbatch 1 on stage 0; "1RECV_F1" is its arrival at stage 1.

std::string_view name_of(Op op);  // "F", "RECV_B"
// With more than one slice per microbatch, prints microbatch and slice: "0F1.2".
std::string token_of(const Action& action, std::int32_t slices = 1);
// Returns no value if `text` is neither a token that PyTorch reads nor an EVICT or FETCH. UNSHARD, RESHARD and
// REDUCE_GRAD may have a microbatch (PyTorch prints none); all others must have one. Fused actions are two tokens
// (parse_csv()).
std::optional<Action> parse_token(std::string_view text);

// Reads and writes schedules as the CSV of torch.distributed.pipelining: one line per rank, one cell per action; empty
// cells are idle time. docs/schedule_format.md has the grammar.

std::string to_csv(const Schedule& schedule);

// Parses a schedule without checking that it is a complete step (check() does). A stage belongs to the rank in whose
// line it appears. `pipes`: number of chains that the stages form. Throws a usage Error with `source`, line, column,
// the text found there and what is allowed.
Schedule parse_csv(std::string_view text, std::string_view source, std::int32_t pipes = 1);

}  // namespace lockstep::schedules
