// Attention of the newest tokens over all that came before, as a model that generates has it at each step: one query
// (or a few, where tokens are guessed ahead) of each sequence, against keys and values in a cache (key_cache.h). The
// cache is plain, or blocks that a table names (Kwon et al. 2023, arXiv:2309.06180, section 4.3). A context is cut into
// parts that are worked on at the same time, and their results are merged by their maxima and sums (Dao et al. 2023,
// Flash-Decoding; Milakov, Gimelshein 2018, arXiv:1805.02867, section 3.1). Each head's keys and values are read once
// for all heads of queries that share them (up to 8 on CUDA). Sums in f32. Deterministic on one device: parts follow
// from the shape, and on CUDA from the number of multiprocessors too.
//
// A sequence of length n has its queries at the places n - queries to n - 1; each sees the keys up to its own. What
// scores of NaN and infinity make is told in kernels/attention/attention.h; of the cache only the first n tokens are
// read. A sequence of length 0 (the end of a batch that was padded) has rows of NaN and the log-sum-exp -inf, which
// kernels/attention_merge takes for no keys.
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
  std::int64_t heads;     // of queries
  std::int64_t kv_heads;  // divides heads
  std::int64_t head_columns;
  std::int64_t most_keys;    // a context has at most so many tokens, its queries' among them
  std::int64_t keys;         // in all contexts together, for the declared cost: their lengths' sum
  std::int64_t queries = 1;  // a sequence
  std::int64_t block = 0;    // tokens a block of the cache; 0: a plain cache
  std::int64_t blocks = 0;   // of the cache, if it has a table
  float scale = 0;           // 0: 1 / sqrt(head_columns)

  bool paged() const { return block > 0; }
  CacheShape cache() const {
    return {paged() ? blocks : sequences, kv_heads, paged() ? block : most_keys, head_columns};
  }
  std::int64_t table_row() const { return (most_keys + block - 1) / block; }  // blocks of the longest context
  std::int64_t group() const { return heads / kv_heads; }                     // heads of queries that share one of keys
  std::int64_t rows() const { return sequences * queries * heads; }
  std::int64_t pairs() const { return queries * keys - sequences * (queries * (queries - 1) / 2); }  // a head's
  float factor() const;                       // the scale that holds
  void check(std::string_view kernel) const;  // throws a usage Error
};

struct AttentionDecode {
  DecodeShape shape;
  In q = {};        // [sequences, queries, heads, head_columns]
  In k = {};        // [cache().blocks, kv_heads, cache().block, head_columns]
  In v = {};        // as k
  In table = {};    // [sequences, table_row()] i32, if paged: blocks of each context in order; past its end anything
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

// As attention's, a pair of a query and a key that it sees, and a query. Of the cache the tokens count that contexts
// hold, and of the table the entries that lead to them.
Cost cost_of(const AttentionDecode& args);

void run_cpu(const AttentionDecode& args, ThreadPool& pool);
void run_cuda(const AttentionDecode& args, CudaContext& cuda);

}  // namespace lockstep::kernels
