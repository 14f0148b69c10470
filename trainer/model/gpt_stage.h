// One pipeline stage of a GPT-2 or a Llama on one rank: runs the pieces of its recipe on tensors. The recipe defines
// the order of pieces and the communication between them; this defines the computation of each piece. It knows no
// schedule.
//
// Tensor parallelism follows Megatron-LM (Shoeybi et al. 2019, arXiv:1909.08053; sequence parallelism: Korthikanti et
// al. 2022, arXiv:2205.05198, section 4.2.2). Rows are tokens, sequence by sequence; sequence-parallel ranks have equal
// shares of the microbatch's rows, in order. In two or three dimensions: workload/grid_product.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "kernels/base/context.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

// Settings that all stages of a rank share.
struct GptShape {
  workload::Model model = {};
  workload::Layout layout = {};
  workload::TensorRank tensor = {};
  std::int32_t context = 0;      // this rank's index among its context-parallel ranks
  std::int32_t expert_rank = 0;  // and among the expert-parallel ones
  // The place of a slice of tokens in its sequences, whose length is then model.sequence (schedules/slices.h).
  std::int64_t first_token = 0;
  bool last_slice = true;
  // ---- only in benchmarks, which alone have no mask, or tiles
  bool causal = true;  // attention's mask
  // Tiles of the rows of tensor-parallel layers: a piece with a turn t > 0 works on tile t - 1 (part_run.h).
  std::int32_t row_tiles = 1;

  // Tokens per sequence on this rank: its chunks, in their order (workload/context_list.h).
  std::int64_t length() const { return model.sequence / layout.cp; }
  // First positions of the runs of consecutive tokens on this rank.
  std::vector<std::int64_t> first_positions() const;
  std::int64_t run_length() const;
  // Number of rows (tokens): of a microbatch, and of the ones that this rank has between layers.
  std::int64_t rows() const { return layout.microbatch_size * length(); }
  std::int64_t own_rows() const { return rows() / row_parts(layout); }
  // Number of whole sequences within tensor-parallel layers, and of their rows: on a grid its own, otherwise all.
  std::int64_t sequences() const { return layout.microbatch_size / (layout.has_grid() ? row_parts(layout) : 1); }
  std::int64_t layer_rows() const { return sequences() * length(); }
  // Columns that this rank has between layers.
  std::int64_t own_columns() const { return model.hidden / layout.grid.side; }
  // Elements that ranks sum, or gather, of which each has own_rows() of own_columns().
  std::int64_t shared_elems() const {
    return layout.has_grid() ? layout.grid.side * own_rows() * own_columns() : rows() * model.hidden;
  }
  // The sequences of a microbatch whose tokens this rank's embedding looks up, and whose targets its loss needs.
  struct Sequences {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  Sequences looked_up() const;
  Sequences of_loss() const;
};

// The shape of a slice of the tokens of microbatches.
GptShape shape_of_slice(const GptShape& whole, std::int32_t slice);

// Position of a token of a sequence: its context-parallel rank or slice, and its index there.
struct TokenPosition {
  std::int32_t context = 0;
  std::int32_t slice = 0;
  std::int64_t row = 0;
};
TokenPosition place_of(const GptShape& shape, std::int64_t position);

enum class Mode : std::uint8_t {
  train,
  evaluate,  // forward only: nothing is kept for a backward
  generate,  // forward only, with the logits kept
};

class GptStage {
 public:
  // The arguments must outlive this. `store` has the parameters of workload::parameters_of(), in that order.
  GptStage(const GptShape& shape, const workload::StageSlice& place, parallel::ParameterStore& store,
           parallel::Memory& memory, const kernels::Context& where);
  ~GptStage();
  GptStage(const GptStage&) = delete;
  GptStage& operator=(const GptStage&) = delete;

  // Slices count as microbatches everywhere, as in a Schedule.

  // ---- once per step: the factor of the gradient of a token's loss (one over the tokens of the global batch, times
  // the loss scale)
  void begin_step(Mode mode, float gradient_scale);
  // Sets the ids of whole sequences, [batch, sequence] each, of which load() copies those of this rank's tokens. Needed
  // if the stage has the embedding (tokens) or the head (targets); otherwise empty. Kept until the next call for the
  // same microbatch. No work of an earlier step may still be queued.
  void give(std::int32_t microbatch, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  // Call it before the first piece of a microbatch.
  void load(std::int32_t microbatch);

  // ---- pieces. The piece that completes a part's gradients for a microbatch commits them to the store.
  void run(const schedules::Task& kernel);
  // The collective between two pieces: its source and destination. Valid until exchanged().
  using Exchange = parallel::Exchange;
  // Counts that ranks gather before a collective whose sizes they do not know; without an input if it needs none.
  Exchange exchange_counts(const schedules::Task& collective);
  void counts_exchanged(const schedules::Task& collective);
  Exchange exchange(const schedules::Task& collective);
  void exchanged(const schedules::Task& collective);

  // The activations, empty ones included, that a part keeps for a microbatch between its forward and its backward, or
  // that all parts keep if the task names none: an OFFLOAD or an EVICT may take them out, a LOAD or a FETCH put them
  // back.
  std::vector<parallel::Tensor*> kept(const schedules::Task& copy);

  // ---- a block of the stage's first part that runs without what comes before and after it (make_part_step). Instead
  // of messages, its input and the gradient of its output are put at its ends before its first piece, and its output
  // and the gradient of its input are there after its last.
  enum class Block : std::uint8_t {
    core,       // attention, on context-parallel ranks: from queries, keys and values to the projection's input
    attention,  // without the norm and the addition: all ends are [own rows, hidden]
    mlp,        // likewise, or a mixture in its place
    up,         // the first product of an MLP without biases: its output is [rows, this rank's columns]
    down,       // the second one, of such an input
    embedding,  // rows of the tokens that give() had
    loss,       // from logits, [rows, this rank's words], which become their gradient, to losses, [rows] f32
  };
  struct BlockEnds {
    parallel::Tensor* x = nullptr;   // nullptr: an embedding has no input
    parallel::Tensor* dy = nullptr;  // nullptr: that of a loss is 1
    std::function<kernels::In()> y = {};
    parallel::Tensor* dx = nullptr;  // a caller may have made that of a core; nullptr without an input
    // A core on several context-parallel ranks: call it before the first piece of the backward.
    std::function<void()> begin_backward = {};
  };
  BlockEnds ends_of(Block block, std::int32_t microbatch);

  // ---- messages. The first call allocates memory for the received data, which is freed after its use.
  kernels::Out activations_in(std::int32_t microbatch);  // [own rows, own columns], from the previous stage
  kernels::In activations_out(std::int32_t microbatch);
  void activations_sent(std::int32_t microbatch);
  kernels::Out gradient_in(std::int32_t microbatch);  // gradient of activations_out, from the next stage
  kernels::In gradient_out(std::int32_t microbatch);
  void gradient_sent(std::int32_t microbatch);

  // ---- results
  // Mode generate: [rows, words of this rank] f32, on the host.
  std::vector<float> logits(std::int32_t microbatch) const;
  void end_step();  // frees everything of the microbatches; losses and loads are still being copied to the host
  // After that, when queued work is done: the loss over the microbatch's tokens, of the last step in which it had
  // losses. Only with the head; the same on all tensor-parallel ranks.
  double loss_sum(std::int32_t microbatch) const;
  // Likewise: number of this rank's tokens that chose each expert in the last complete step, by layer of the stage.
  std::vector<std::vector<std::int64_t>> loads() const;

  // ---- state other than parameters: Fp8History::steps()
  std::vector<float> fp8_history() const;
  void set_fp8_history(std::span<const float> steps);
  // RouterBias of a layer, counted from the stage's first. Call balance() after a step with the tokens per expert of
  // all ranks.
  void balance(std::int64_t layer, std::span<const std::int64_t> loads);
  std::vector<float> router_bias(std::int64_t layer) const;
  void set_router_bias(std::int64_t layer, std::span<const float> values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::trainer
