// Copies of tokens in the order of their experts, and back. A copy is a pair (token, choice), numbered token * top_k +
// choice. First choices of all tokens come before second ones, so that if an expert has a capacity, the copies beyond
// it, which are dropped, are the last choices of the last tokens (Lepikhin et al. 2020, arXiv:2006.16668, algorithm 1).
//   capacity 0   dropless: rows = copies, the first expert's first (Gale et al. 2022, arXiv:2211.15841)
//   capacity C   rows = experts x C; rows of an expert that no copy fills are zero
// Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct AssignSlots {
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t top_k;
  std::int64_t capacity = 0;  // copies per expert; 0: no limit
  In choices = {};            // [tokens, top_k] i32
  Out counts = {};            // [experts] i32: copies of each, including dropped ones
  Out slots = {};             // [tokens, top_k] i32: the row of each copy; -1: dropped
  Out copies = {};            // [rows] i32: the copy of each row; -1: none

  std::int64_t num_copies() const { return tokens * top_k; }
  std::int64_t rows() const { return capacity == 0 ? num_copies() : experts * capacity; }
  std::string_view name() const { return "assign_slots"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("choices", self.choices, self.num_copies(), kI32);
    visit("counts", self.counts, self.experts, kI32);
    visit("slots", self.slots, self.num_copies(), kI32);
    visit("copies", self.copies, self.rows(), kI32);
  }
};

// y[row] = x[token of the row's copy], or zeros.
struct Permute {
  std::int64_t tokens;
  std::int64_t top_k;
  std::int64_t rows;
  std::int64_t columns;
  In x = {};       // [tokens, columns]
  In copies = {};  // [rows] i32
  Out y = {};      // [rows, columns]

  std::string_view name() const { return "permute"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("x", self.x, self.tokens * self.columns, kActivations);
    visit("copies", self.copies, self.rows, kI32);
    visit("y", self.y, self.rows * self.columns, DTypes(self.x.dtype));
  }
};

// out[token] = sum over its copies, in their order, of their gates times their rows of y; dropped copies count as zero.
// Without gates it is the backward of Permute.
struct Unpermute {
  std::int64_t tokens;
  std::int64_t top_k;
  std::int64_t rows;
  std::int64_t columns;
  bool with_gates = true;
  In y = {};      // [rows, columns]
  In slots = {};  // [tokens, top_k] i32
  In gates = {};  // [tokens, top_k] f32, if with_gates
  Out out = {};   // [tokens, columns]

  std::string_view name() const { return with_gates ? "unpermute_fwd" : "permute_bwd"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("y", self.y, self.rows * self.columns, kActivations);
    visit("slots", self.slots, self.tokens * self.top_k, kI32);
    if (self.with_gates) visit("gates", self.gates, self.tokens * self.top_k, kF32);
    visit("out", self.out, self.tokens * self.columns, DTypes(self.y.dtype));
  }
};

// dy[row] = gate * d_out[token]; d_gates = dot product of d_out[token] and the row of y. Rows without a copy and gates
// of dropped copies become zero.
struct UnpermuteBackward {
  std::int64_t tokens;
  std::int64_t top_k;
  std::int64_t rows;
  std::int64_t columns;
  In d_out = {};     // [tokens, columns]
  In y = {};         // [tokens, columns], the forward's input
  In slots = {};     // [tokens, top_k] i32
  In copies = {};    // [rows] i32
  In gates = {};     // [tokens, top_k] f32
  Out dy = {};       // [rows, columns]
  Out d_gates = {};  // [tokens, top_k] f32

  std::string_view name() const { return "unpermute_bwd"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    visit("d_out", self.d_out, self.tokens * self.columns, kActivations);
    const DTypes same(self.d_out.dtype);
    visit("y", self.y, self.rows * self.columns, same);
    visit("slots", self.slots, self.tokens * self.top_k, kI32);
    visit("copies", self.copies, self.rows, kI32);
    visit("gates", self.gates, self.tokens * self.top_k, kF32);
    visit("dy", self.dy, self.rows * self.columns, same);
    visit("d_gates", self.d_gates, self.tokens * self.top_k, kF32);
  }
};

Cost cost_of(const AssignSlots& args);
Cost cost_of(const Permute& args);
Cost cost_of(const Unpermute& args);
Cost cost_of(const UnpermuteBackward& args);

void run_cpu(const AssignSlots& args, ThreadPool& pool);
void run_cpu(const Permute& args, ThreadPool& pool);
void run_cpu(const Unpermute& args, ThreadPool& pool);
void run_cpu(const UnpermuteBackward& args, ThreadPool& pool);
void run_cuda(const AssignSlots& args, CudaContext& cuda);
void run_cuda(const Permute& args, CudaContext& cuda);
void run_cuda(const Unpermute& args, CudaContext& cuda);
void run_cuda(const UnpermuteBackward& args, CudaContext& cuda);

}  // namespace lockstep::kernels
