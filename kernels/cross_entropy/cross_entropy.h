// Cross-entropy of logits against target ids, forward and backward in one: the gradient overwrites the logits, so that
// the probabilities are written once. Works on a whole vocabulary, or on one shard; ranks then exchange three
// floats per token instead of the logits (Shoeybi et al. 2019, arXiv:1909.08053, section 3):
//
//   each rank    CrossEntropyStats   maximum, sum of exp(logit - maximum), target's logit (0 if not in the shard)
//   all ranks    all-gather of the stats, 3 floats per token
//   each rank    CrossEntropyFinish  merges them in the ranks' order, writes losses and its shard's gradient
//
// The two forms add the same numbers in a different order: losses agree within the tolerance of a sum of `columns`
// terms. Columns at and above `valid_columns` are padding: they do not contribute and get the gradient 0.
// Deterministic.
//
// A row with a NaN or +inf logit gets loss NaN and gradient NaN; so does a row whose logits are all -inf. A logit of
// -inf among finite ones has probability 0, and as the target it gives loss +inf.
//
// Targets outside of [0, valid_columns): the CPU checks them before it writes anything (4 bytes read per row, and at
// least 4 bytes per column) and throws a usage Error that names the first one. CUDA, where a check would wait for the
// device, gives such a row loss NaN. Shards do not know the whole vocabulary: they refuse only ids below 0, each device
// in its way as above; an id that is in no shard gives the loss log(sum exp(logits)), as if its logit were 0.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// losses[n] = log(sum exp(logits[n])) - logits[n][target]; logits become scale * (softmax - one at the target).
struct CrossEntropy {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  float scale = 1;    // factor of the gradient: for a mean, one over the number of tokens in the whole batch
  In targets = {};    // [rows] i32, in [0, valid_columns)
  InOut logits = {};  // [rows, columns]
  Out losses = {};    // [rows] f32

  std::string_view name() const { return "cross_entropy"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("targets", self.targets, self.rows, kI32);
    visit("logits", self.logits, self.rows * self.columns, kActivations);
    visit("losses", self.losses, self.rows, kF32);
  }
};

struct CrossEntropyStats {
  std::int64_t rows;
  std::int64_t columns;        // columns of this shard
  std::int64_t valid_columns;  // valid columns of this shard; may be 0: the maximum is then -infinity and the sum 0
  std::int64_t first_id;       // id of column 0
  In targets = {};             // [rows] i32, ids of the whole vocabulary
  In logits = {};              // [rows, columns]
  Out stats = {};              // [rows, 3] f32

  std::string_view name() const { return "cross_entropy_stats"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("targets", self.targets, self.rows, kI32);
    visit("logits", self.logits, self.rows * self.columns, kActivations);
    visit("stats", self.stats, self.rows * 3, kF32);
  }
};

struct CrossEntropyFinish {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  std::int64_t first_id;
  std::int64_t shards;  // number of shards of the vocabulary
  float scale = 1;
  In targets = {};    // [rows] i32
  In stats = {};      // [shards, rows, 3] f32
  InOut logits = {};  // [rows, columns]
  Out losses = {};    // [rows] f32, the same on every rank

  std::string_view name() const { return "cross_entropy_finish"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("targets", self.targets, self.rows, kI32);
    visit("stats", self.stats, self.shards * self.rows * 3, kF32);
    visit("logits", self.logits, self.rows * self.columns, kActivations);
    visit("losses", self.losses, self.rows, kF32);
  }
};

Cost cost_of(const CrossEntropy& args);
Cost cost_of(const CrossEntropyStats& args);
Cost cost_of(const CrossEntropyFinish& args);

void run_cpu(const CrossEntropy& args, ThreadPool& pool);
void run_cpu(const CrossEntropyStats& args, ThreadPool& pool);
void run_cpu(const CrossEntropyFinish& args, ThreadPool& pool);
void run_cuda(const CrossEntropy& args, CudaContext& cuda);
void run_cuda(const CrossEntropyStats& args, CudaContext& cuda);
void run_cuda(const CrossEntropyFinish& args, CudaContext& cuda);

}  // namespace lockstep::kernels
