// Merges attention over two sets of keys into attention over their union, in place: the second part's output and
// log-sum-exp are merged into the first's (Milakov, Gimelshein 2018, arXiv:1805.02867, section 3.1; Liu, Zaharia,
// Abbeel 2023, arXiv:2310.01889, section 3).
//   lse' = log(exp(lse) + exp(part_lse)),   o' = exp(lse - lse') o + exp(part_lse - lse') part_o
// The exponential is taken of a difference that is at most 0, so nothing overflows. A part whose log-sum-exp is -inf
// has no keys, and its output is not read: two such parts leave the first one unchanged. A log-sum-exp of NaN gives a
// row of NaN. Sums are computed in f32. Deterministic.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct AttentionMerge {
  std::int64_t batch;
  std::int64_t heads;
  std::int64_t queries;  // per sequence
  std::int64_t head_columns;
  std::int64_t lse_stride =
      0;             // elements of `lse` from one head to the next; 0: queries. Larger for a range of more queries
  InOut o = {};      // [batch, queries, heads, head_columns]
  InOut lse = {};    // [batch, heads, queries] f32, strided
  In part_o = {};    // as o
  In part_lse = {};  // [batch, heads, queries] f32

  std::int64_t lse_row() const { return lse_stride == 0 ? queries : lse_stride; }
  std::int64_t rows() const { return batch * queries * heads; }

  std::string_view name() const { return "attention_merge"; }
  void check_shape() const;
  Rows rows_of(std::string_view operand) const {
    return operand == "lse" ? Rows{.elems = queries, .stride = lse_row()} : Rows{};
  }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("o", self.o, self.rows() * self.head_columns, kActivations);
    visit("lse", self.lse, (self.batch * self.heads - 1) * self.lse_row() + self.queries, kF32);
    visit("part_o", self.part_o, self.rows() * self.head_columns, DTypes(self.o.dtype));
    visit("part_lse", self.part_lse, self.rows(), kF32);
  }
};

Cost cost_of(const AttentionMerge& args);

void run_cpu(const AttentionMerge& args, ThreadPool& pool);
void run_cuda(const AttentionMerge& args, CudaContext& cuda);

}  // namespace lockstep::kernels
