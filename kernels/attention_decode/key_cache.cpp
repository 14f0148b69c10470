#include "kernels/attention_decode/attention_decode.h"

#include <cstring>
#include <string>

#include "core/error.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kGrain = 4;  // tokens

void check_places(const CacheAppend& args) {
  const auto* const places = args.places.as<std::int32_t>();
  const std::int64_t end = args.cache.blocks * args.cache.block;
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    if (places[t] >= -1 && places[t] < end) continue;
    throw core::usage_error("cache_append: places[" + std::to_string(t) + "] is " + std::to_string(places[t]) +
                            "; allowed: 0 to " + std::to_string(end - 1) + ", or -1 for a token to leave out");
  }
}

}  // namespace

void CacheShape::check(std::string_view kernel) const {
  check_sizes(kernel, {{"blocks", blocks}, {"kv_heads", kv_heads}, {"block", block}, {"head_columns", head_columns}});
}

void CacheAppend::check_shape() const {
  check_at_least(name(), "tokens", tokens, 1);
  cache.check(name());
}

Cost cost_of(const CacheAppend& args) {
  const std::int64_t elems = 2 * args.tokens * args.cache.kv_heads * args.cache.head_columns;
  const double bytes = 2 * static_cast<double>(size_bytes(args.k.dtype, elems)) +
                       static_cast<double>(size_bytes(core::DType::i32, args.tokens));
  return {0, bytes, "only the written rows of the caches count"};
}

void run_cpu(const CacheAppend& args, ThreadPool& pool) {
  check_places(args);
  const CacheShape& cache = args.cache;
  const auto size = static_cast<std::int64_t>(core::size_of(args.k.dtype));
  const auto row_bytes = static_cast<std::size_t>(cache.head_columns * size);
  const auto copy = [&](const In& from, const InOut& to, std::int64_t token, std::int64_t place) {
    const auto* source = from.as<std::byte>() + token * cache.kv_heads * cache.head_columns * size;
    for (std::int64_t head = 0; head < cache.kv_heads; ++head, source += row_bytes) {
      std::memcpy(to.as<std::byte>() + cache.offset(place, head) * size, source, row_bytes);
    }
  };
  pool.for_ranges(args.tokens, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t place = args.places.as<std::int32_t>()[t];
      if (place < 0) continue;
      copy(args.k, args.k_cache, t, place);
      copy(args.v, args.v_cache, t, place);
    }
  });
}

}  // namespace lockstep::kernels
