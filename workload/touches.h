// Tensors that each piece of a recipe reads and makes, for GPT-2's and Llama's architecture as this library's layers
// run it (trainer/model): a table from which the lifetime of a tensor follows. It lives from the piece that makes it to
// the last one that touches it, whatever order the schedule has.
//
//   forward     x -> n1 -> qkv -> (o, lse) -> sum1 -> (h, n2) -> (pre, act) -> x of the next part
//   backward    d of the next part -> d_pre -> dh -> d_o -> d_qkv -> d
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/memory.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::workload {

enum class TensorName : std::uint8_t {
  x,       // the input of a part, with the part's number; the stage's output has the number after the last part
  d,       // its gradient
  x_part,  // with Layout::partition_activations, of a group's input
  norm1,
  n1,
  n1_all,
  qkv,
  o,
  lse,
  context,  // tensors of context-parallel ranks: numbered by their list (ContextMemory)
  term1,    // summed over sequence-parallel ranks: all rows
  sum1,
  h,
  norm2,
  n2,
  n2_all,
  pre,
  act,
  term2,
  d_all,
  d_act,  // if the activation is a kernel of its own
  d_pre,
  d_term2,
  dh,
  dh_all,
  d_o,
  d_qkv,
  // Terms of sums over the slices of a sequence.
  o_part,
  lse_part,
  d_qkv_part,
  d_keys_part,
  d_term1,
  held1,  // gradients of norms that wait for a separate W
  held2,
  codes,  // codes of a product's factors in 8-bit floats, with their scales
  tokens,
  targets,
  logits,
  stats,
  all_stats,
  losses,
  // ---- of ranks in a grid: sums of a norm, and what products are of and make, numbered by their steps
  norm_sums,
  panel,
  partial,
  f32_sum,
  // ---- of a mixture of experts: rows are copies of tokens
  router_logits,
  choices,
  gates,
  counts,
  slots,
  copies,
  all_counts,
  sent,
  here,
  out,
  back,
  d_back,
  d_gates,
  d_out,
  d_here,
  d_sent,
  d_router_logits,
  d_router,  // gradient through the router, before it is added
  // The shared experts' tensors.
  shared_pre,
  shared_act,
  shared,
  d_shared_act,
  d_shared_pre,
  d_shared,
};

struct TensorKey {
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t part = 0;
  TensorName name = {};
  std::int32_t number = 0;  // index among those with this name
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

struct Touch {
  TensorKey key = {};
  bool makes = false;  // it is made here
  MemoryKind kind = {};
  std::int64_t bytes = 0;
};

// Bytes of a tensor that is made or read, and their kind.
Touch touch_of(const Model& model, const Layout& layout, const TensorKey& key, bool makes);

// Fills in the bytes that a rank's HOLDs and YIELDs move: the bytes of the other rank's EVICTs, which moves
// `others_bytes` with each of its tasks.
void add_held(const std::vector<schedules::Task>& others, const std::vector<std::int64_t>& others_bytes,
              const std::vector<schedules::Task>& tasks, std::vector<std::int64_t>& bytes);

// The models whose sequences are each of a layout's slices, and the layout that names the tokens of each.
std::vector<Model> models_of_slices(const Model& model, const Layout& layout);
Layout with_slice_tokens(const Model& model, Layout layout);

// A piece consists of phases: gradients that it adds to and tensors that it makes exist from the beginning of a phase;
// tensors that are not touched again are freed at its end.
struct Phase {
  std::vector<std::size_t> gradients = {};  // indices of the stage's parameters
  std::vector<Touch> touches = {};
  bool commits = false;  // the part's gradients of the microbatch are complete at its end
};

// The phases of a kernel of a part, or of a collective inside a layer. `context`: the rank's, if there are
// context-parallel ranks, otherwise nullptr.
std::vector<Phase> phases_of(const Model& model, const Layout& layout, const StageSlice& place,
                             const ContextMemory* context, const schedules::Task& piece);

// The same for the pieces that are other ones on a grid of tensor-parallel ranks: embedding, norms, products,
// statistics of the loss. Empty for other pieces.
std::optional<Phase> phase_on_grid(const Model& model, const Layout& layout, const StageSlice& place,
                                   std::size_t first_parameter, const schedules::Task& piece);

// A change of the bytes held, in order. A tensor that is touched for the last time before it is made again is freed at
// the next end of a phase.
struct MemoryEvent {
  std::optional<Touch> touch = {};
  std::optional<std::uint32_t> copies = {};  // the task that copies activations, whose touches are still to be found
  bool ends_phase = false;
  MemoryKind kind = {};  // kind of bytes that come or go otherwise
  std::int64_t bytes = 0;
};

// The bytes held after all events, and at their peak. `before`: held before the first event.
HeldBytes held_after(const BytesByKind& before, const std::vector<MemoryEvent>& events);

// Finds what OFFLOAD and LOAD copy: the part's existing activations that are used after the LOAD. OFFLOAD frees them
// and LOAD makes them again. So do EVICT and FETCH with all parts of a stage, as one message in a buffer. Returns the
// events with these touches inserted; adds the bytes of each task to `bytes`.
std::vector<MemoryEvent> with_copies(const std::vector<MemoryEvent>& events, const std::vector<schedules::Task>& tasks,
                                     std::vector<std::int64_t>& bytes);

}  // namespace lockstep::workload
