// Attention of the newest tokens over all earlier ones, as in each step of generation: one query per sequence (or a
// few, in speculative decoding), against keys and values in a cache (key_cache.h). The cache is contiguous, or consists
// of blocks that a table names (paged attention; Kwon et al. 2023, arXiv:2309.06180, section 4.3). A context is cut
// into parts that are processed at the same time, and their results are merged by their maxima and sums (Dao et al.
// 2023, Flash-Decoding; Milakov, Gimelshein 2018, arXiv:1805.02867, section 3.1). Each head's keys and values are read
// once for all heads of queries that share them (up to 8 on CUDA). Sums are computed in f32. Deterministic on one
// device: the parts depend on the shape and, on CUDA, on the number of multiprocessors.
//
// A sequence of length n has its queries at positions n - queries to n - 1; each sees the keys up to its own position.
// Scores of NaN and infinity have the effects described in kernels/attention/attention.h. Only the first n tokens of
// the cache are read. A sequence of length 0 (the end of a padded batch) gets rows of NaN and log-sum-exp -inf, which
// kernels/attention_merge treats as no keys.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/attention_decode/key_cache.h"
#include "kernels/base/cost.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

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
