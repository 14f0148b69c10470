// Multi-head attention in tiles with a running maximum and sum, so that no length x length matrix is stored: Dao, Fu,
// Ermon, Rudra, Re 2022, arXiv:2205.14135, algorithms 1 and 4; Dao 2023, arXiv:2307.08691, section 3.1.
//   o[i] = sum over j of softmax_j(scale q[i] . k[j]) v[j],  lse[i] = log sum over j of exp(scale q[i] . k[j])
// Causal: j <= i + (keys - queries), so that the last query sees all keys. The log-sum-exp allows blocks of keys to be
// merged later (ring attention). Sums are computed in f32. Deterministic.
//
// NaN and infinity: a query that sees a score of NaN or +inf gets a row of NaN; a score of -inf has weight 0, and a
// query that sees only such scores gets lse -inf and a row of NaN. Keys that a query does not see never affect its
// scores, but a NaN or infinity in such a key or value may reach o and dq of queries up to a tile before it (0 * NaN).
//
// Queries are [batch, length, heads, head_columns], keys and values [batch, length, kv_heads, head_columns]. A row (all
// heads of one token) begins every `qkv_stride` elements: this is the length of the row if it is packed, and the length
// of queries, keys and values together in a fused QKV activation.
//
// Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245): with fewer heads of keys than of queries, query head
// h reads key head h / (heads / kv_heads). Nothing is repeated in memory; gradients of keys and values are summed over
// the group's queries as they are computed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/context.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct AttentionShape {
  std::int64_t batch;
  std::int64_t heads;
  std::int64_t queries;  // per sequence
  std::int64_t keys;     // per sequence; at least `queries` if causal
  std::int64_t head_columns;
  bool causal = true;
  float scale = 0;              // 0: 1 / sqrt(head_columns)
  std::int64_t qkv_stride = 0;  // row stride of q, k, v and their gradients; 0: their rows are packed
  std::int64_t kv_heads = 0;    // divides heads; 0: equal to heads

  std::int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t group() const { return heads / key_heads(); }  // query heads that share a key head
  std::int64_t row() const { return heads * head_columns; }
  std::int64_t stride() const { return qkv_stride == 0 ? row() : qkv_stride; }
  std::int64_t key_row() const { return key_heads() * head_columns; }
  std::int64_t key_stride() const { return qkv_stride == 0 ? key_row() : qkv_stride; }
  // Number of pairs of a query and a key that it sees, in one sequence and head.
  std::int64_t pairs() const {
    return causal ? queries * (keys - queries) + queries * (queries + 1) / 2 : queries * keys;
  }
  // Elements from the first to the last of queries and their gradient, and the same for keys and values.
  std::int64_t extent() const { return (batch * queries - 1) * stride() + row(); }
  std::int64_t key_extent() const { return (batch * keys - 1) * key_stride() + key_row(); }
  // For q, k, v and their gradients; the other operands are packed.
  Rows rows_of(std::string_view operand) const;
  float factor() const;                       // the effective scale
  void check(std::string_view kernel) const;  // throws a usage Error
};

struct AttentionForward {
  AttentionShape shape;
  In q = {};     // [batch, queries, heads, head_columns], strided
  In k = {};     // [batch, keys, kv_heads, head_columns], strided
  In v = {};     // as k
  Out o = {};    // [batch, queries, heads, head_columns], packed
  Out lse = {};  // [batch, heads, queries] f32

  std::string_view name() const { return "attention_fwd"; }
  void check_shape() const { shape.check(name()); }
  Rows rows_of(std::string_view operand) const { return shape.rows_of(operand); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const AttentionShape& s = self.shape;
    visit("q", self.q, s.extent(), kActivations);
    const DTypes same(self.q.dtype);
    visit("k", self.k, s.key_extent(), same);
    visit("v", self.v, s.key_extent(), same);
    visit("o", self.o, s.batch * s.queries * s.row(), same);
    visit("lse", self.lse, s.batch * s.heads * s.queries, kF32);
  }
};

// Gradients are overwritten. With a stride, the elements between rows are not touched, and dq, dk and dv may be
// interleaved: starting within one stride of each other does not count as overlap.
struct AttentionBackward {
  AttentionShape shape;
  In q = {}, k = {}, v = {};      // the forward's inputs
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
    visit("q", self.q, s.extent(), kActivations);
    const DTypes same(self.q.dtype);
    visit("k", self.k, s.key_extent(), same);
    visit("v", self.v, s.key_extent(), same);
    visit("o", self.o, s.batch * s.queries * s.row(), same);
    visit("lse", self.lse, s.batch * s.heads * s.queries, kF32);
    visit("d_o", self.d_o, s.batch * s.queries * s.row(), same);
    visit("dq", self.dq, s.extent(), same);
    visit("dk", self.dk, s.key_extent(), same);
    visit("dv", self.dv, s.key_extent(), same);
  }
};

Cost cost_of(const AttentionForward& args);
Cost cost_of(const AttentionBackward& args);

void run_cpu(const AttentionForward& args, ThreadPool& pool);
void run_cpu(const AttentionBackward& args, ThreadPool& pool);
void run_cuda(const AttentionForward& args, CudaContext& cuda);
void run_cuda(const AttentionBackward& args, CudaContext& cuda);

// On CUDA, the kernels that compute it: "mma". Empty on the CPU.
std::string implementation_of(const AttentionForward& args, const Context& where);
std::string implementation_of(const AttentionBackward& args, const Context& where);

// The kernels that compute attention on a CUDA device:
//   "mma"           tensor cores by mma.sync, on compute capability 8.0 and later
//   "wgmma"         tensor cores by wgmma, after FlashAttention-3, on compute capability 9.0: bf16 and f16, 64 or 128
//                   columns per head, a positive scale, addresses and strides of 16 bytes and of whole heads
//   "multiply-add"  in f32; used for f32, and for more than 128 columns per head
// With the choice "auto" these are wgmma on devices that have it, otherwise mma.

inline constexpr std::array kAttentionChoices{"auto", "mma", "wgmma"};  // the default first
// Help of the flag --attention, which programs have alike.
inline constexpr const char* kAttentionHelp =
    "kernels of attention on a GPU: wgmma (compute capability 9.0; bf16 and f16, heads of 64 or 128 columns), mma, or "
    "auto: wgmma where it can be had, otherwise mma";

// Why the choice cannot be had on a device of this compute capability, 90 for 9.0; nothing if it can.
// "attention wgmma: ...", as the flag is.
inline std::optional<std::string> attention_refusal(const std::string& name, int capability) {
  if (name != "wgmma") return std::nullopt;
  return wgmma_refusal("attention", capability, "mma");
}

// Whether wgmma takes rows of this dtype and head; besides these, strides and addresses count.
constexpr bool wgmma_takes(core::DType dtype, std::int64_t head_columns) {
  return (dtype == core::DType::bf16 || dtype == core::DType::f16) && (head_columns == 64 || head_columns == 128);
}

// The kernels that a choice (empty: the default) comes to on a device of this compute capability for such operands, if
// these have the strides and addresses that wgmma takes.
inline std::string attention_kernels(const std::string& choice, int capability, core::DType dtype,
                                     std::int64_t head_columns) {
  if (dtype == core::DType::f32 || head_columns > 128) return "multiply-add";
  const bool has_wgmma = choice != "mma" && !attention_refusal("wgmma", capability);
  return has_wgmma && wgmma_takes(dtype, head_columns) ? "wgmma" : "mma";
}

// Chooses one of kAttentionChoices for the context from now on; wgmma is used for all arguments that it supports.
// Throws a usage Error if the choice is "wgmma" and the device has none.
void choose_attention(CudaContext& cuda, const std::string& name);

// Returns whether wgmma computes checked arguments of this shape and dtype there. `aligned`: all operands begin at
// multiples of 16 bytes.
bool takes_wgmma(const AttentionShape& shape, core::DType dtype, bool aligned, CudaContext& cuda);

}  // namespace lockstep::kernels
