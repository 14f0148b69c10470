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

}  // namespace lockstep::kernels
