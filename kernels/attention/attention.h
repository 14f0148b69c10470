// Multi-head attention in tiles with a running maximum and sum, so that no length x length matrix is stored: Dao, Fu,
// Ermon, Rudra, Re 2022, arXiv:2205.14135, algorithms 1 and 4; Dao 2023, arXiv:2307.08691, section 3.1.
//   o[i] = sum over j of softmax_j(scale q[i] . k[j]) v[j],  lse[i] = log sum over j of exp(scale q[i] . k[j])
// Causal: j <= i + (keys - queries), so that the last query sees all keys. The log-sum-exp lets blocks of keys be
// merged later (ring attention). Sums in f32. Deterministic.
//
// NaN and infinity: a query that sees a score of NaN or +inf has a row of NaN; a score of -inf has the weight 0, and a
// query that sees no other has the lse -inf and a row of NaN. What a query does not see does not touch its scores, but
// a NaN or infinity in a key or value may reach the o and dq of queries up to a tile before it (0 * NaN).
//
// Queries, keys and values are [batch, length, heads, head_columns], a row (all heads of one token) every `row_stride`
// elements: heads * head_columns if packed alone, three times that inside of a fused QKV activation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/cost.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct AttentionShape {
  std::int64_t batch;
  std::int64_t heads;
  std::int64_t queries;  // a sequence
  std::int64_t keys;     // a sequence; at least queries if causal
  std::int64_t head_columns;
  bool causal = true;
  float scale = 0;              // 0: 1 / sqrt(head_columns)
  std::int64_t qkv_stride = 0;  // row stride of q, k, v and their gradients; 0: heads * head_columns

  std::int64_t row() const { return heads * head_columns; }
  std::int64_t stride() const { return qkv_stride == 0 ? row() : qkv_stride; }
  // Pairs of a query and a key that it sees, in one sequence and head.
  std::int64_t pairs() const {
    return causal ? queries * (keys - queries) + queries * (queries + 1) / 2 : queries * keys;
  }
  // Elements from the first to the last of an array with that stride.
  std::int64_t extent(std::int64_t length) const { return (batch * length - 1) * stride() + row(); }
  // For q, k, v and their gradients; the other operands are packed.
  Rows rows_of(std::string_view operand) const;
  float factor() const;                       // the scale that holds
  void check(std::string_view kernel) const;  // throws a usage Error
};

struct AttentionForward {
  AttentionShape shape;
  In q = {};     // [batch, queries, heads, head_columns], strided
  In k = {};     // [batch, keys, heads, head_columns], strided
  In v = {};     // as k
  Out o = {};    // [batch, queries, heads, head_columns], packed
  Out lse = {};  // [batch, heads, queries] f32

  std::string_view name() const { return "attention_fwd"; }
  void check_shape() const { shape.check(name()); }
  Rows rows_of(std::string_view operand) const { return shape.rows_of(operand); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const AttentionShape& s = self.shape;
    visit("q", self.q, s.extent(s.queries), kActivations);
    const DTypes same(self.q.dtype);
    visit("k", self.k, s.extent(s.keys), same);
    visit("v", self.v, s.extent(s.keys), same);
    visit("o", self.o, s.batch * s.queries * s.row(), same);
    visit("lse", self.lse, s.batch * s.heads * s.queries, kF32);
  }
};

// Gradients are written. With a stride, the elements between rows are left alone, and dq, dk and dv may be interleaved:
// that they start within one stride of each other is no overlap.
struct AttentionBackward {
  AttentionShape shape;
  In q = {}, k = {}, v = {};      // the forward's
  In o = {};                      // [batch, queries, heads, head_columns], packed
  In lse = {};                    // [batch, heads, queries] f32
  In d_o = {};                    // as o
  Out dq = {}, dk = {}, dv = {};  // as q, k, v

  std::string_view name() const { return "attention_bwd"; }
  void check_shape() const { shape.check(name()); }
  Rows rows_of(std::string_view operand) const { return shape.rows_of(operand); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const AttentionShape& s = self.shape;
    visit("q", self.q, s.extent(s.queries), kActivations);
    const DTypes same(self.q.dtype);
    visit("k", self.k, s.extent(s.keys), same);
    visit("v", self.v, s.extent(s.keys), same);
    visit("o", self.o, s.batch * s.queries * s.row(), same);
    visit("lse", self.lse, s.batch * s.heads * s.queries, kF32);
    visit("d_o", self.d_o, s.batch * s.queries * s.row(), same);
    visit("dq", self.dq, s.extent(s.queries), same);
    visit("dk", self.dk, s.extent(s.keys), same);
    visit("dv", self.dv, s.extent(s.keys), same);
  }
};

Cost cost_of(const AttentionForward& args);
Cost cost_of(const AttentionBackward& args);

void run_cpu(const AttentionForward& args, ThreadPool& pool);
void run_cpu(const AttentionBackward& args, ThreadPool& pool);
void run_cuda(const AttentionForward& args, CudaContext& cuda);
void run_cuda(const AttentionBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
