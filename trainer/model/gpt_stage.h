// One pipeline stage of a GPT-2 or a Llama on one rank: runs the pieces of its recipe on tensors. The recipe says in
// which order pieces run and what ranks exchange in between; this says what each piece does. It names no schedule.
//
// Tensor parallel as Megatron-LM has it (Shoeybi et al. 2019, arXiv:1909.08053; sequence parallel: Korthikanti et al.
// 2022, arXiv:2205.05198, section 4.2.2). Rows are tokens, sequence after sequence; sequence-parallel ranks share the
// rows of the microbatch out evenly, in order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/context.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/parameter.h"

namespace lockstep::trainer {

// Settings that are the same for all stages of a rank.
struct GptShape {
  workload::Model model = {};
  workload::Layout layout = {};
  workload::TensorPlace tensor = {};
  std::int32_t context = 0;      // this rank's place among its context ranks
  std::int32_t expert_rank = 0;  // and among the expert-parallel ones

  // Tokens of a sequence on this rank: its chunks, in their order (workload/context_list.h).
  std::int64_t length() const { return model.sequence / layout.cp; }
  // Runs of tokens that lie one behind the other in a sequence: each with its first position.
  std::vector<std::int64_t> first_positions() const;
  std::int64_t run_length() const;
  // Rows are tokens: of a microbatch, and of those that this rank has between layers.
  std::int64_t rows() const { return layout.microbatch_size * length(); }
  std::int64_t own_rows() const { return layout.sequence_parallel ? rows() / tensor.ranks : rows(); }
};

// Where a token of a sequence is: on which context rank, and which of its tokens.
struct TokenPlace {
  std::int32_t context = 0;
  std::int64_t row = 0;
};
TokenPlace place_of(const GptShape& shape, std::int64_t position);

bool is_trainable(const workload::Model& model);
// Throws a usage Error that names what of the model or the layout this trainer does not have, and what is allowed.
void check_trainable(const workload::Model& model, const workload::Layout& layout);

enum class Mode : std::uint8_t {
  train,
  evaluate,  // forward only: nothing is kept for a backward
  generate,  // forward only, and the logits stay
};

class GptStage {
 public:
  // The arguments outlive this. `store` has the parameters of workload::parameters_of(), in that order.
  GptStage(const GptShape& shape, const workload::StageSlice& place, parallel::ParameterStore& store,
           parallel::Memory& memory, const kernels::Context& where);
  ~GptStage();
  GptStage(const GptStage&) = delete;
  GptStage& operator=(const GptStage&) = delete;

  // ---- once a step: how the gradient of a token's loss is scaled (one over the tokens of the global batch, times the
  // loss scale)
  void begin_step(Mode mode, float gradient_scale);
  // The ids of whole sequences, of which load() copies those of this rank's tokens, [batch, sequence] each, needed
  // where the stage has the embedding (tokens) or the head (targets); otherwise empty. Kept until the next call for the
  // microbatch. Nothing of a step before is queued any more.
  void give(std::int32_t microbatch, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  // Before the first piece of a microbatch.
  void load(std::int32_t microbatch);

  // ---- pieces. The one that completes a part's gradients for a microbatch commits them to the store.
  void run(const schedules::Task& kernel);
  // The collective between two pieces: where it reads and where it writes. Valid until exchanged().
  struct Exchange {
    kernels::In input = {};
    kernels::Out output = {};
    // Between each pair of the group's members: of a shift bytes, of an all-to-all whose blocks differ elements.
    std::shared_ptr<const collectives::CountMatrix> matrix = nullptr;
  };
  // Counts that ranks gather before a collective whose sizes they do not know; none without an input.
  Exchange exchange_counts(const schedules::Task& collective);
  void counts_exchanged(const schedules::Task& collective);
  Exchange exchange(const schedules::Task& collective);
  void exchanged(const schedules::Task& collective);

  // Places of the activations that a part keeps of a microbatch between its forward and its backward, whether there is
  // anything in them or not: of an OFFLOAD or a LOAD, which may take them out and put them back.
  std::vector<parallel::Tensor*> kept(const schedules::Task& copy);

  // ---- messages. Memory for what is received is made by the first call, given up when it has been used.
  kernels::Out activations_in(std::int32_t microbatch);  // [own rows, hidden], from the stage before
  kernels::In activations_out(std::int32_t microbatch);
  void activations_sent(std::int32_t microbatch);
  kernels::Out gradient_in(std::int32_t microbatch);  // of activations_out, from the stage behind
  kernels::In gradient_out(std::int32_t microbatch);
  void gradient_sent(std::int32_t microbatch);

  // ---- results
  // Mode generate: [rows, words of this rank] f32, on the host.
  std::vector<float> logits(std::int32_t microbatch) const;
  void end_step();  // nothing of a microbatch is left, but its losses on their way to the host
  // After that, when what is queued is done: over the microbatch's tokens, of the last step in which it had losses.
  // Where the head is, the same on all tensor ranks.
  double loss_sum(std::int32_t microbatch) const;
  // Choices of each expert by this rank's tokens in a step that has ended, layer by layer of the stage.
  const std::vector<std::vector<std::int64_t>>& loads() const;

  // ---- state beside the parameters: Fp8History::steps()
  std::vector<float> fp8_history() const;
  void set_fp8_history(std::span<const float> steps);
  // RouterBias of a layer, which counts from the stage's first. balance(): behind a step, choices of all ranks' tokens.
  void balance(std::int64_t layer, std::span<const std::int64_t> loads);
  std::vector<float> router_bias(std::int64_t layer) const;
  void set_router_bias(std::int64_t layer, std::span<const float> values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::trainer
