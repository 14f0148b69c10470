// A training step as data: what each rank does, in order. Generators (schedules/generators/) make them as pure
// functions of integers, or a user writes one (schedules/text.h); they are then checked, counted, played, drawn and run
// alike.
//
// Words: a *stage* is a part of the model's layers; a *pipe* is a chain of stages that holds the whole model (one, or
// two in opposite directions for Chimera and DualPipe, each with its own copy of the weights); a *microbatch* goes
// through one pipe. Stages are numbered pipe after pipe: stage s of pipe k is s + k * stages_a_pipe.
//
// Where microbatches are cut into token slices (schedules/slices.h), each slice is what goes through the stages: slice
// s of k of microbatch j has the number j * k + s wherever a microbatch is named, and num_microbatches counts them all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::schedules {

// With PyTorch's letters in pipelining (torch.distributed.pipelining.schedules).
enum class Op : std::uint8_t {
  forward,          // F
  backward,         // B: both gradients
  input_gradient,   // I: what the stage before waits for
  weight_gradient,  // W: what nobody waits for but the optimizer
  // Messages, put in by a pass (schedules/messages.h). The stage is the one that sends or receives.
  send_activations,  // SEND_F
  recv_activations,  // RECV_F
  send_gradient,     // SEND_B
  recv_gradient,     // RECV_B
  // Actions on a stage's parameters, where they are sharded.
  unshard,      // UNSHARD: gather them
  reshard,      // RESHARD: give up what was gathered
  reduce_grad,  // REDUCE_GRAD: reduce their gradients over the replicas
  // What a forward has kept for its backward goes to the rank at the other end of the pipeline, num_ranks - 1 - rank,
  // and comes back (BPipe, schedules/generators/bpipe.cpp). PyTorch has no token for these.
  evict,  // EVICT
  fetch,  // FETCH
  // Only in a lowered step (schedules/step/step.h), likewise.
  recompute,         // RECOMPUTE: forward again, for the backward that follows
  layer_collective,  // COLLECTIVE: inside a layer
  optimizer,         // STEP
  offload,           // OFFLOAD: to host memory
  load,              // LOAD: from host memory
  send_chunk,        // SEND_CHUNK, RECV_CHUNK: of a collective that is run message by message
  recv_chunk,
  // The other ends of what an EVICT and a FETCH exchange: the rank that fetches asks first.
  hold,   // HOLD: receives what is evicted
  ask,    // ASK: sends the question, before a FETCH
  asked,  // ASKED: receives it
  yield,  // YIELD: sends back what was held
  // Work for the bubbles (schedules/passes/fill_bubbles.h).
  curvature,  // CURVATURE: of a layer, from a microbatch's activations or gradients
  inversion,  // INVERT: of a layer's curvature
  filler,     // FILL: anything else
};

inline bool is_compute(Op op) {
  return op <= Op::weight_gradient;
}
// Messages of what stages make for each other.
inline bool is_between_stages(Op op) {
  return op >= Op::send_activations && op <= Op::recv_gradient;
}
// What moves a forward's kept activations to another rank and back.
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
// Whether the action is on a stage's parameters, and belongs to no microbatch.
inline bool is_of_parameters(Op op) {
  return op == Op::unshard || op == Op::reshard || op == Op::reduce_grad;
}
inline constexpr std::int32_t kNoMicrobatch = -1;

struct Action {
  Op op = Op::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;  // kNoMicrobatch: of none
  // Runs together with the next one: both inputs are there at the start, both outputs at the end (DualPipe's F&B).
  bool with_next = false;

  friend bool operator==(const Action&, const Action&) = default;
};

struct Schedule {
  std::string name;
  std::int32_t num_microbatches = 0;  // over all pipes; slices each count
  std::int32_t stages_a_pipe = 0;
  std::vector<std::int32_t> rank_of_stage;        // as many as all pipes have
  std::vector<std::vector<Action>> of_rank = {};  // a list a rank
  std::vector<std::int64_t> slice_tokens = {};    // as in PipelineShape

  std::int32_t slices() const { return slice_tokens.empty() ? 1 : static_cast<std::int32_t>(slice_tokens.size()); }
  std::int32_t num_ranks() const { return static_cast<std::int32_t>(of_rank.size()); }
  std::int32_t num_stages() const { return static_cast<std::int32_t>(rank_of_stage.size()); }
  std::int32_t num_pipes() const { return num_stages() / stages_a_pipe; }
  std::int32_t chunks() const { return stages_a_pipe / num_ranks(); }  // a rank's share of the model is so many stages
  bool is_first(std::int32_t stage) const { return stage % stages_a_pipe == 0; }
  bool is_last(std::int32_t stage) const { return (stage + 1) % stages_a_pipe == 0; }
};

// Whether any rank's kept activations go to another one.
bool evicts_activations(const Schedule& schedule);

// Stages, times slices where microbatches are cut.
inline std::size_t num_works(const Schedule& schedule) {
  return static_cast<std::size_t>(schedule.num_stages()) * static_cast<std::size_t>(schedule.slices());
}
// Where the work of a stage for a microbatch, or for a slice of one, stands in a list that has an entry for each stage
// and slice.
inline std::size_t work_index(std::int32_t stage, std::int32_t microbatch, std::int32_t slices) {
  const std::int32_t slice = microbatch < 0 ? 0 : microbatch % slices;
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(slices) + static_cast<std::size_t>(slice);
}

}  // namespace lockstep::schedules
