// Token (and position) embedding: y[n] = table[ids[n]] (+ positions[n % length]). A table may be a shard of the
// vocabulary, rows first_id to first_id + rows - 1: an id outside gives zeros (Shoeybi et al. 2019, arXiv:1909.08053,
// section 3). Deterministic: the backward adds the tokens of a row in their order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct EmbeddingForward {
  std::int64_t tokens;
  std::int64_t length = 0;  // tokens per sequence; 0: without position embeddings
  std::int64_t rows;        // rows of the table
  std::int64_t columns;
  std::int64_t first_id = 0;
  In ids = {};        // [tokens] i32
  In table = {};      // [rows, columns]
  In positions = {};  // [length, columns], if length > 0
  Out y = {};         // [tokens, columns]

  std::string_view name() const { return "embedding_fwd"; }
  void check_shape() const {
    check_at_least(name(), "tokens", tokens, 1);
    check_at_least(name(), "length", length, 0);
    check_sizes(name(), {{"rows", rows}, {"columns", columns}});
  }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("ids", self.ids, self.tokens, kI32);
    visit("table", self.table, self.rows * self.columns, kActivations);
    const DTypes same(self.table.dtype);
    if (self.length > 0) visit("positions", self.positions, self.length * self.columns, same);
    visit("y", self.y, self.tokens * self.columns, same);
  }
};

// Adds to the gradients that are already in dtable and dpositions.
struct EmbeddingBackward {
  std::int64_t tokens;
  std::int64_t length = 0;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t first_id = 0;
  In ids = {};            // [tokens] i32
  In dy = {};             // [tokens, columns]
  InOut dtable = {};      // [rows, columns] f32
  InOut dpositions = {};  // [length, columns] f32, if length > 0

  std::string_view name() const { return "embedding_bwd"; }
  void check_shape() const {
    check_at_least(name(), "tokens", tokens, 1);
    check_at_least(name(), "length", length, 0);
    check_sizes(name(), {{"rows", rows}, {"columns", columns}});
  }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("ids", self.ids, self.tokens, kI32);
    visit("dy", self.dy, self.tokens * self.columns, kActivations);
    visit("dtable", self.dtable, self.rows * self.columns, kF32);
    if (self.length > 0) visit("dpositions", self.dpositions, self.length * self.columns, kF32);
  }
};

Cost cost_of(const EmbeddingForward& args);
Cost cost_of(const EmbeddingBackward& args);

void run_cpu(const EmbeddingForward& args, ThreadPool& pool);
void run_cpu(const EmbeddingBackward& args, ThreadPool& pool);
void run_cuda(const EmbeddingForward& args, CudaContext& cuda);
void run_cuda(const EmbeddingBackward& args, CudaContext& cuda);

// Reference: plain loops, for tests.

// Returns the table row of an id, or `elsewhere` if the id is not in this shard, so that the FLOPs do not depend on the
// ids.
template <class Args, class S>
std::span<S> embedding_row(const Args& args, std::span<S> table, const S& id, std::vector<S>& elsewhere) {
  const std::int64_t row = integer_of(id) - args.first_id;
  if (row < 0 || row >= args.rows) return elsewhere;
  return table.subspan(static_cast<std::size_t>(row * args.columns), static_cast<std::size_t>(args.columns));
}

template <class S>
void reference(const EmbeddingForward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  std::vector<S> zeros(columns, S(0));
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.tokens); ++n) {
    const auto row = embedding_row<EmbeddingForward, S>(args, data["table"], data["ids"][n], zeros);
    for (std::size_t c = 0; c < columns; ++c) {
      S& y = data["y"][n * columns + c];
      y = row[c];
      if (args.length > 0) y += data["positions"][n % static_cast<std::size_t>(args.length) * columns + c];
    }
  }
}

template <class S>
void reference(const EmbeddingBackward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  std::vector<S> thrown_away(columns, S(0));
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.tokens); ++n) {
    const auto row = embedding_row<EmbeddingBackward, S>(args, data["dtable"], data["ids"][n], thrown_away);
    for (std::size_t c = 0; c < columns; ++c) {
      const S dy = data["dy"][n * columns + c];
      row[c] += dy;
      if (args.length > 0) data["dpositions"][n % static_cast<std::size_t>(args.length) * columns + c] += dy;
    }
  }
}

}  // namespace lockstep::kernels
