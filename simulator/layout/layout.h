// How a training step is laid out over ranks: the sizes of each kind of parallelism, what is sharded, recomputed and
// overlapped, and the pipeline's schedule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/shape.h"
#include "simulator/model/model.h"

namespace lockstep::simulator {

enum class Recompute : std::uint8_t {
  none,
  selective,  // the core of attention: scores, softmax, dropout, and the values weighed by them (arXiv:2205.05198)
  full,       // whole layers, from the input of every recompute_every-th
};

struct Layout {
  std::int32_t tp = 1;  // tensor parallel
  std::int32_t cp = 1;  // context parallel: parts of a sequence
  std::int32_t ep = 1;  // expert parallel: taken from the dp x cp ranks
  std::int32_t dp = 1;  // data parallel
  std::int32_t pp = 1;  // pipeline parallel
  bool sequence_parallel = false;

  std::string schedule = "1f1b";        // of schedules/catalogue.h
  std::int32_t chunks = 1;              // stages a rank, where the schedule takes them
  std::vector<std::int32_t> layers_of;  // layers of each stage, from the first; empty: all alike
  std::int64_t microbatch_size = 1;     // sequences
  std::int64_t global_batch = 1;        // sequences a step

  std::int32_t zero = 0;         // 0; 1: optimizer; 2: and gradients; 3: and weights (FSDP) are sharded over dp x cp
  std::int32_t shard_ranks = 0;  // HSDP: so many ranks share a shard set, the others are replicas; 0: all
  bool reshard = true;           // ZeRO 3: give weights up after the forward, and gather them again

  Recompute recompute = Recompute::none;
  std::int32_t recompute_every = 1;  // layers between kept inputs
  bool flash = true;                 // attention never writes its scores to memory

  double bucket_mb = 25;        // of gradients; 2^20 bytes; 0: one bucket a stage
  bool overlap_grads = true;    // buckets are reduced beside the backward; else after it
  bool overlap_params = true;   // gathers of ZeRO run ahead
  bool overlap_tp = true;       // tensor-parallel reductions of input gradients run beside weight gradients
  bool overlap_p2p = false;     // the compute lane does not wait for its messages to leave
  bool scatter_gather = false;  // between stages each tensor rank sends its part (arXiv:2104.04473, section 4.1)
  std::int32_t grad_bytes = 4;  // a gradient as it is kept and reduced: 2 or 4

  std::int64_t ranks() const { return std::int64_t{tp} * cp * dp * pp; }
  std::int64_t microbatches() const { return global_batch / (dp * microbatch_size); }  // a pipeline's, a step
};

// "tp=8,pp=64,dp=6,microbatch=1,batch=3072,recompute=full". Throws a usage Error that names the field and what is
// allowed. layout_fields() lists the fields with what they take, a line each.
Layout parse_layout(std::string_view text);
std::vector<std::string> layout_fields();
// The text that makes this layout: what differs from the defaults, and always tp, pp and dp.
std::string text_of(const Layout& layout);

// Why a model cannot be laid out so, with what could ("tp is 5, and heads is 12; allowed: 1 2 3 4 6 12"). Empty: it
// can.
std::string misfit_of(const Model& model, const Layout& layout);

// Words of the vocabulary that one tensor rank has. One that tp does not divide is padded, so that all have as many.
inline std::int64_t words_a_rank(const Model& model, const Layout& layout) {
  return (model.vocabulary + layout.tp - 1) / layout.tp;
}

schedules::PipelineShape shape_of(const Layout& layout);
// Stages of one pipe; some schedules have a fixed number a rank (ZB-V has two) and say so in their lists only.
std::int32_t stages_a_pipe(const Layout& layout);

// What one stage of a pipe has.
struct StageSlice {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embedding = false;
  bool head = false;
  // Stages that are alike but for their place cost the same.
  bool like(const StageSlice& other) const {
    return layers == other.layers && embedding == other.embedding && head == other.head;
  }
};
// `stage` counts within its pipe; `stages`: stages_a_pipe(layout), or of a schedule at hand.
StageSlice slice_of(const Model& model, const Layout& layout, std::int32_t stages, std::int32_t stage);

}  // namespace lockstep::simulator
