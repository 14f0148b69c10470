// A vocabulary shared out over tensor-parallel ranks: embedding, head and cross-entropy (Shoeybi et al. 2019,
// arXiv:1909.08053, section 3).
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/gemm/gemm.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// A rank's words. All ranks have a table of as many rows; the rows at the end of the last ranks' may be padding.
struct Words {
  std::int64_t rows;   // of the table
  std::int64_t valid;  // that stand for a word: the first ones
  std::int64_t first;  // word that row 0 stands for
};
// `rows` a rank, of a vocabulary of so many words.
Words words_of(std::int64_t vocabulary, std::int64_t rows, std::int64_t index);

// y [tokens, hidden] = table[ids] + positions, where the word and the positions are here: a term of a sum over ranks.
// Positions are added by one rank; each adds their gradient up from the whole dy.
struct EmbeddingLayer {
  std::int64_t tokens;
  std::int64_t length;  // of a sequence; 0: there are no learned positions
  std::int64_t hidden;
  Words words;

  // `positions`: [length, hidden]; none where another rank adds them, or there are none.
  void forward(const Workspace& workspace, kernels::In ids, kernels::In table, kernels::In positions,
               kernels::Out y) const;
  // f32, added to.
  void backward(const Workspace& workspace, kernels::In ids, kernels::In dy, kernels::InOut d_table,
                kernels::InOut d_positions) const;
};

// Logits of a rank's words, and the loss over all words, for which ranks gather three floats a token (stats) and not
// logits. One rank alone needs no stats.
struct HeadLayer {
  std::int64_t rows;
  std::int64_t hidden;
  Words words;
  std::int64_t shards;  // tensor ranks

  std::int64_t stats_elems() const { return rows * 3; }  // of a rank

  void logits(const Workspace& workspace, kernels::In table, kernels::In x, kernels::Out y) const;
  void stats(const Workspace& workspace, kernels::In targets, kernels::In logits, kernels::Out of_rank) const;
  // Logits become their gradient times `scale`; losses [rows] f32. `all_stats` [shards, rows, 3] if there are shards.
  void loss(const Workspace& workspace, kernels::In targets, kernels::In all_stats, float scale, kernels::InOut logits,
            kernels::Out losses) const;
  // dx: a term of a sum over ranks.
  void input_gradient(const Workspace& workspace, kernels::In table, kernels::In d_logits, kernels::Out dx) const;
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits, kernels::InOut d_table) const;

 private:
  Linear of_table() const { return {{rows, hidden, words.rows}}; }
};

}  // namespace lockstep::parallel
