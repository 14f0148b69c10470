// Attention of new tokens against a cache of past keys and values, and that cache.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

// The memory of past tokens' keys and values during generation, and the kernel that adds new ones.
//
// A cache is divided into blocks of a few tokens that can be given to any sequence in any order: memory is used as
// contexts grow, and at most a block less one token per sequence is wasted (Kwon et al. 2023, arXiv:2309.06180, section
// 4.1). Within a block, the tokens of one head are contiguous: [blocks, kv_heads, block, head_columns] for keys and
// likewise for values. A worker of one head thus reads whole blocks of block * head_columns elements, 4 KiB for 16
// tokens of 128 columns in bf16. (vLLM began with keys as [blocks, kv_heads, head_columns / x, block, x], where x
// elements are 16 bytes, for threads that take one token each; if threads share a token's row, as here, plain rows are
// equally fast.) A contiguous cache is the same with one block per sequence, as long as the longest context that it may
// get.

class CudaContext;

struct CacheShape {
  std::int64_t blocks;
  std::int64_t kv_heads;
  std::int64_t block;  // tokens per block
  std::int64_t head_columns;

  std::int64_t elems() const { return blocks * kv_heads * block * head_columns; }
  // Returns the first element of a head of a token, given the token's position: its block's number times `block` plus
  // its index there.
  std::int64_t offset(std::int64_t place, std::int64_t head) const {
    return ((place / block * kv_heads + head) * block + place % block) * head_columns;
  }
  void check(std::string_view kernel) const;  // throws a usage Error
};

// Writes keys and values of new tokens to their positions in the cache (vLLM's reshape_and_cache). Bits are kept. A
// token with position -1 is left out: the end of a padded batch. Positions of two tokens must differ. On the CPU
// invalid positions are refused; on CUDA, where a check would wait for the device, the caller must avoid them.
struct CacheAppend {
  std::int64_t tokens;
  CacheShape cache;
  In k = {}, v = {};              // [tokens, kv_heads, head_columns]
  In places = {};                 // [tokens] i32
  InOut k_cache = {}, v_cache{};  // [blocks, kv_heads, block, head_columns]

  std::string_view name() const { return "cache_append"; }
  void check_shape() const;
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const std::int64_t elems = self.tokens * self.cache.kv_heads * self.cache.head_columns;
    visit("k", self.k, elems, kActivations);
    const DTypes same(self.k.dtype);
    visit("v", self.v, elems, same);
    visit("places", self.places, self.tokens, kI32);
    visit("k_cache", self.k_cache, self.cache.elems(), same);
    visit("v_cache", self.v_cache, self.cache.elems(), same);
  }
};

// Each new row is read once and written once.
Cost cost_of(const CacheAppend& args);

void run_cpu(const CacheAppend& args, ThreadPool& pool);
void run_cuda(const CacheAppend& args, CudaContext& cuda);

// Attention of the newest tokens over all earlier ones, as in each step of generation: one query per sequence (or a
// few, in speculative decoding), against keys and values in a cache. The cache is contiguous, or consists
// of blocks that a table names (paged attention; Kwon et al. 2023, arXiv:2309.06180, section 4.3). A context is cut
// into parts that are processed at the same time, and their results are merged by their maxima and sums (Dao et al.
// 2023, Flash-Decoding; Milakov, Gimelshein 2018, arXiv:1805.02867, section 3.1). Each head's keys and values are read
// once for all heads of queries that share them (up to 16 on CUDA). Sums are computed in f32. Deterministic on one
// device: the parts depend on the shape and, on CUDA, on the number of multiprocessors.
//
// A sequence of length n has its queries at positions n - queries to n - 1; each sees the keys up to its own position.
// Scores of NaN and infinity have the effects described in kernels/attention/attention.h. Only the first n tokens of
// the cache are read. A sequence of length 0 (the end of a padded batch) gets rows of NaN and log-sum-exp -inf, which
// kernels/attention_merge treats as no keys.

class CudaContext;

struct DecodeShape {
  std::int64_t sequences;
  std::int64_t heads;     // heads of queries
  std::int64_t kv_heads;  // divides heads
  std::int64_t head_columns;
  std::int64_t most_keys;    // maximum length of a context, including its queries' tokens
  std::int64_t keys;         // sum of all contexts' lengths, for the declared cost
  std::int64_t queries = 1;  // per sequence
  std::int64_t block = 0;    // tokens per block of the cache; 0: a contiguous cache
  std::int64_t blocks = 0;   // number of blocks in a paged cache
  float scale = 0;           // 0: 1 / sqrt(head_columns)

  bool paged() const { return block > 0; }
  CacheShape cache() const {
    return {paged() ? blocks : sequences, kv_heads, paged() ? block : most_keys, head_columns};
  }
  std::int64_t table_row() const { return (most_keys + block - 1) / block; }  // blocks of the longest context
  std::int64_t group() const { return heads / kv_heads; }                     // heads of queries per head of keys
  std::int64_t rows() const { return sequences * queries * heads; }
  std::int64_t pairs() const { return queries * keys - sequences * (queries * (queries - 1) / 2); }  // per head
  float factor() const;                       // the effective scale
  void check(std::string_view kernel) const;  // throws a usage Error
};

struct AttentionDecode {
  DecodeShape shape;
  In q = {};  // [sequences, queries, heads, head_columns]
  In k = {};  // [cache().blocks, kv_heads, cache().block, head_columns]
  In v = {};  // as k
  In table =
      {};  // [sequences, table_row()] i32, if paged: blocks of each context in order; entries past its end are ignored
  In lengths = {};  // [sequences] i32: tokens of each context; 0, or queries to most_keys
  Out o = {};       // as q
  Out lse = {};     // [sequences, heads, queries] f32

  std::string_view name() const { return shape.paged() ? "attention_decode_paged" : "attention_decode"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const DecodeShape& s = self.shape;
    visit("q", self.q, s.rows() * s.head_columns, kActivations);
    const DTypes same(self.q.dtype);
    visit("k", self.k, s.cache().elems(), same);
    visit("v", self.v, s.cache().elems(), same);
    if (s.paged()) visit("table", self.table, s.sequences * s.table_row(), kI32);
    visit("lengths", self.lengths, s.sequences, kI32);
    visit("o", self.o, s.rows() * s.head_columns, same);
    visit("lse", self.lse, s.rows(), kF32);
  }
};

// Pairs and queries count as in attention. Of the cache, only the tokens in contexts count, and of the table the
// entries that lead to them.
Cost cost_of(const AttentionDecode& args);

void run_cpu(const AttentionDecode& args, ThreadPool& pool);
void run_cuda(const AttentionDecode& args, CudaContext& cuda);

}  // namespace lockstep::kernels
