// Where keys and values of past tokens lie while a model generates, and the kernel that adds new ones.
//
// A cache is cut into blocks of a few tokens, which any sequence may be given, in any order: memory is taken as
// contexts grow, and at most a block less one token of each sequence is unused (Kwon et al. 2023, arXiv:2309.06180,
// section 4.1). Within a block the tokens of one head follow each other: [blocks, kv_heads, block, head_columns] for
// keys and likewise for values. So what a worker of one head reads is whole blocks of block * head_columns elements, 4
// KiB at 16 tokens of 128 columns in bf16. (vLLM began with keys as [blocks, kv_heads, head_columns / x, block, x], x
// elements being 16 bytes, for threads that take a token each; where threads share a token's row, as ours do, plain
// rows are read as fast.) A plain cache is the same with one block a sequence, which is as long as the longest context
// that it may get.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/cost.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct CacheShape {
  std::int64_t blocks;
  std::int64_t kv_heads;
  std::int64_t block;  // tokens
  std::int64_t head_columns;

  std::int64_t elems() const { return blocks * kv_heads * block * head_columns; }
  // The first element of a head of a token, by the token's place: its block's number times `block`, and its own there.
  std::int64_t offset(std::int64_t place, std::int64_t head) const {
    return ((place / block * kv_heads + head) * block + place % block) * head_columns;
  }
  void check(std::string_view kernel) const;  // throws a usage Error
};

// Keys and values of new tokens go to their places in the cache (vLLM's reshape_and_cache). Bits are kept. A token
// whose place is -1 is left out: the end of a batch that was padded. Places of two tokens differ. On the CPU other
// places are refused; on CUDA, where nobody may look, they are the caller's to avoid.
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

// Each new row read once and written once.
Cost cost_of(const CacheAppend& args);

void run_cpu(const CacheAppend& args, ThreadPool& pool);
void run_cuda(const CacheAppend& args, CudaContext& cuda);

}  // namespace lockstep::kernels
