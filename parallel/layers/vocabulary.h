// A vocabulary split over tensor-parallel ranks: embedding, head and cross-entropy (Shoeybi et al. 2019,
// arXiv:1909.08053, section 3).
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/gemm/gemm.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// A rank's words. All ranks' tables have the same number of rows; the last rows of the last ranks may be padding.
struct Words {
  std::int64_t rows;   // rows of the table
  std::int64_t valid;  // rows that correspond to a word: the first ones
  std::int64_t first;  // word of row 0
};
// Words of rank `index`, with `rows` rows per rank.
Words words_of(std::int64_t vocabulary, std::int64_t rows, std::int64_t index);

// y [tokens, hidden] = table[ids] + positions, for the words and positions on this rank: a term of a sum over ranks.
// One rank adds the positions; every rank computes their gradient from the whole dy.
struct EmbeddingLayer {
  std::int64_t tokens;
  std::int64_t length;  // tokens per sequence; 0: there are no learned positions
  std::int64_t hidden;
  Words words;

  // `positions`: [length, hidden]; empty if another rank adds them or there are none.
  void forward(const Workspace& workspace, kernels::In ids, kernels::In table, kernels::In positions,
               kernels::Out y) const;
  // f32; adds to the gradients.
  void backward(const Workspace& workspace, kernels::In ids, kernels::In dy, kernels::InOut d_table,
                kernels::InOut d_positions) const;
};

// Logits of a rank's words, and the loss over all words, for which ranks gather three floats per token (stats) instead
// of logits. A single rank needs no stats.
struct HeadLayer {
  std::int64_t rows;
  std::int64_t hidden;
  Words words;
  std::int64_t shards;  // tensor-parallel ranks

  std::int64_t stats_elems() const { return rows * 3; }  // per rank

  void logits(const Workspace& workspace, kernels::In table, kernels::In x, kernels::Out y) const;
  void stats(const Workspace& workspace, kernels::In targets, kernels::In logits, kernels::Out of_rank) const;
  // Replaces logits by their gradient times `scale`; losses [rows] f32. `all_stats` [shards, rows, 3] if there are
  // several shards.
  void loss(const Workspace& workspace, kernels::In targets, kernels::In all_stats, float scale, kernels::InOut logits,
            kernels::Out losses) const;
  // dx: a term of a sum over ranks.
  void input_gradient(const Workspace& workspace, kernels::In table, kernels::In d_logits, kernels::Out dx) const;
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits, kernels::InOut d_table) const;

 private:
  Linear of_table() const { return {{rows, hidden, words.rows}}; }
};

}  // namespace lockstep::parallel
