#include "kernels/gemm/amx_tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {
namespace {

struct alignas(64) TileConfig {  // read by LDTILECFG
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

LOCKSTEP_AMX void load_shapes() {
  static constexpr TileConfig kShapes;  // not on the stack: g++ 12 assumes that only 8 bytes are read
  _tile_loadconfig(&kShapes);
}

LOCKSTEP_AMX void release_tiles() {
  _tile_release();
}

constexpr unsigned bit(unsigned number) {
  return 1u << number;
}

bool cpu_has_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const unsigned avx512 = bit(16) | bit(17) | bit(30) | bit(31);  // F, DQ, BW, VL
  const unsigned amx = bit(22) | bit(24);                         // BF16, TILE
  if ((b & avx512) != avx512 || (d & amx) != amx) return false;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a & bit(5)) != 0;  // AVX512_BF16
}

constexpr std::uint32_t first_bits(std::int64_t count) {
  return count >= 32 ? 0xffffffffu : (1u << static_cast<unsigned>(count)) - 1u;
}

// Orders memory accesses: the compiler does not know which memory tile instructions read and write.
inline void order_memory() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Loads 32 numbers of bf16 and widens them; those that the mask excludes are zero.
LOCKSTEP_AMX inline void load_32(__mmask32 mask, const core::BFloat16* from, __m512& low, __m512& high) {
  const __m512i bits = _mm512_maskz_loadu_epi16(mask, from);
  const __m512i low_bits = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
  const __m512i high_bits = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1));
  low = _mm512_castsi512_ps(_mm512_slli_epi32(low_bits, 16));
  high = _mm512_castsi512_ps(_mm512_slli_epi32(high_bits, 16));
}

// c = sums (+ bias), rounded to bf16 by the instruction VCVTNE2PS2BF16, which treats subnormal numbers as zero, as
// TDPBF16PS does.
class StoreAsBf16 {
 public:
  static bool can(const Sums& c) {
    return c.dtype == core::DType::bf16 && ((c.finish == Finish::store && c.alpha == 1) || c.finish == Finish::bias);
  }
  LOCKSTEP_AMX explicit StoreAsBf16(const StagedTile& tile)
      : sums_(tile.sums),
        stride_(tile.stride),
        to_(tile.c.as<core::BFloat16>()),
        row_stride_(tile.c.row_stride),
        mask_(first_bits(tile.columns)) {
    if (tile.c.finish == Finish::bias) load_32(mask_, static_cast<const core::BFloat16*>(tile.c.bias), low_, high_);
  }
  LOCKSTEP_AMX void rows(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* const sums = sums_ + r * stride_;
      const __m512 low = _mm512_add_ps(_mm512_loadu_ps(sums), low_);
      const __m512 high = _mm512_add_ps(_mm512_loadu_ps(sums + kTileRows), high_);
      const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      _mm512_mask_storeu_epi16(to_ + r * row_stride_, mask_, rounded);
    }
  }

 private:
  const float* sums_;
  std::int64_t stride_;
  core::BFloat16* to_;
  std::int64_t row_stride_;
  __mmask32 mask_;
  __m512 low_{};
  __m512 high_{};
};

// All other finishes.
class FinishSums {
 public:
  explicit FinishSums(const StagedTile& tile) : tile_(tile) {}
  void rows(std::int64_t begin, std::int64_t end) const {
    finish_sums(tile_.c.from(begin, 0), tile_.sums + begin * tile_.stride, tile_.stride, end - begin, tile_.columns);
  }

 private:
  const StagedTile& tile_;
};

class NoFinish {
 public:
  explicit NoFinish(const StagedTile& /*tile*/) {}
  void rows(std::int64_t /*begin*/, std::int64_t /*end*/) const {}
};

inline void ask_for_rows(char* at, const Prefetches& prefetches, std::int64_t begin, std::int64_t end) {
  if (at == nullptr) return;
  constexpr std::int64_t kLine = 64;
  for (std::int64_t r = begin; r < end; ++r) {
    const char* const row = at + r * prefetches.stride_bytes;
    __builtin_prefetch(row, 1, 3);
    if (prefetches.row_bytes > kLine) __builtin_prefetch(row + kLine, 1, 3);
  }
}

LOCKSTEP_AMX inline void ask_for(const Prefetches& prefetches, std::int64_t begin, std::int64_t end) {
  ask_for_rows(prefetches.written, prefetches, begin, end);
  ask_for_rows(prefetches.also, prefetches, begin, end);
  if (prefetches.passing != nullptr) prefetches.passing->step();
  if (prefetches.staying != nullptr) prefetches.staying->step();
}

struct Held {
  float* sums;
  std::int64_t stride;
};

// Compilers accept only a literal as a tile's number.
template <int kTile>
LOCKSTEP_AMX inline void store_tile(float* to, std::int64_t bytes) {
  if constexpr (kTile == 0) _tile_stored(0, to, bytes);
  if constexpr (kTile == 1) _tile_stored(1, to, bytes);
  if constexpr (kTile == 2) _tile_stored(2, to, bytes);
  if constexpr (kTile == 3) _tile_stored(3, to, bytes);
}

template <int kTile>
LOCKSTEP_AMX inline void load_tile(const float* from, std::int64_t bytes) {
  if constexpr (kTile == 0) _tile_loadd(0, from, bytes);
  if constexpr (kTile == 1) _tile_loadd(1, from, bytes);
  if constexpr (kTile == 2) _tile_loadd(2, from, bytes);
  if constexpr (kTile == 3) _tile_loadd(3, from, bytes);
}

template <int kTile>
LOCKSTEP_AMX inline void clear_tile() {
  if constexpr (kTile == 0) _tile_zero(0);
  if constexpr (kTile == 1) _tile_zero(1);
  if constexpr (kTile == 2) _tile_zero(2);
  if constexpr (kTile == 3) _tile_zero(3);
}

// Stores one of the four tiles of sums, and starts the next product's.
template <int kTile>
LOCKSTEP_AMX inline void change_sums(const Held& held, const PanelProduct& p) {
  constexpr std::int64_t kRow = kTile / 2 * kTileRows;
  constexpr std::int64_t kColumn = kTile % 2 * kTileRows;
  if (held.sums != nullptr) store_tile<kTile>(held.sums + kRow * held.stride + kColumn, held.stride * 4);
  if (p.add) {
    load_tile<kTile>(p.sums + kRow * p.stride + kColumn, p.stride * 4);
  } else {
    clear_tile<kTile>();
  }
}

// Loads two tiles of a into tiles 4 and 5, and two of b into 6 and 7. The operand that does not stay is loaded with a
// hint that bypasses the L1 cache: 1.2 to 1.4 times as fast if both together exceed it.
template <bool kStays>
LOCKSTEP_AMX inline void load_a(const PanelProduct& p, const core::BFloat16* a) {
  if constexpr (kStays) {
    _tile_loadd(4, a, p.a_row * 2);
    _tile_loadd(5, a + p.a_half, p.a_row * 2);
  } else {
    _tile_stream_loadd(4, a, p.a_row * 2);
    _tile_stream_loadd(5, a + p.a_half, p.a_row * 2);
  }
}

template <bool kStays>
LOCKSTEP_AMX inline void load_b(const core::BFloat16* b) {
  if constexpr (kStays) {
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTileElems, 64);
  } else {
    _tile_stream_loadd(6, b, 64);
    _tile_stream_loadd(7, b + kTileElems, 64);
  }
}

LOCKSTEP_AMX inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// The first step of a product: each tile of sums is exchanged just before it is used.
LOCKSTEP_AMX inline void multiply_first_tiles(const Held& held, const PanelProduct& p) {
  change_sums<0>(held, p);
  _tile_dpbf16ps(0, 4, 6);
  change_sums<1>(held, p);
  _tile_dpbf16ps(1, 4, 7);
  change_sums<2>(held, p);
  _tile_dpbf16ps(2, 5, 6);
  change_sums<3>(held, p);
  _tile_dpbf16ps(3, 5, 7);
}

// The six products of f32's parts that matter, small ones first. The other three are below 2^-24 of the largest.
template <bool kAStays, bool kFirst>
LOCKSTEP_AMX inline void multiply_parts(const Held& held, const PanelProduct& p, const core::BFloat16* a,
                                        const core::BFloat16* b) {
  constexpr std::int64_t kPart = 2 * kTileElems;
  load_a<kAStays>(p, a + 2 * kPart);
  load_b<!kAStays>(b);
  if constexpr (kFirst) {
    multiply_first_tiles(held, p);
  } else {
    multiply_tiles();
  }
  load_a<kAStays>(p, a + kPart);
  multiply_tiles();
  load_b<!kAStays>(b + kPart);
  multiply_tiles();
  load_a<kAStays>(p, a);
  multiply_tiles();
  load_b<!kAStays>(b + 2 * kPart);
  multiply_tiles();
  load_b<!kAStays>(b);
  multiply_tiles();
}

template <bool kAStays, int kParts, bool kFirst>
LOCKSTEP_AMX inline void multiply_step(const Held& held, const PanelProduct& p, const core::BFloat16* a,
                                       const core::BFloat16* b) {
  if constexpr (kParts == 3) {
    multiply_parts<kAStays, kFirst>(held, p, a, b);
  } else {
    load_a<kAStays>(p, a);
    load_b<!kAStays>(b);
    if constexpr (kFirst) {
      multiply_first_tiles(held, p);
    } else {
      multiply_tiles();
    }
  }
}

template <bool kAStays, int kParts, class Finisher>
LOCKSTEP_AMX void multiply(const Held& held, const StagedTile& tile, const Prefetches& prefetches,
                           const PanelProduct& p) {
  const core::BFloat16* a = p.a;
  const core::BFloat16* b = p.b;
  order_memory();
  multiply_step<kAStays, kParts, true>(held, p, a, b);
  order_memory();
  const Finisher finisher(tile);
  const std::int64_t share = p.steps > 1 ? (kPanel + p.steps - 2) / (p.steps - 1) : kPanel;
  std::int64_t row = 0;
  for (std::int64_t step = 1; step < p.steps; ++step) {
    a += p.a_step;
    b += 2 * kTileElems * kParts;
    multiply_step<kAStays, kParts, false>(held, p, a, b);
    const std::int64_t end = std::min(row + share, kPanel);
    if (row < tile.rows) finisher.rows(row, std::min(end, tile.rows));
    ask_for(prefetches, row, end);
    row = end;
  }
  if (row < tile.rows) finisher.rows(row, tile.rows);
  order_memory();
}

template <bool kAStays, int kParts>
void multiply_and_finish(const Held& held, const StagedTile& tile, const Prefetches& prefetches,
                         const PanelProduct& p) {
  if (tile.sums == nullptr) return multiply<kAStays, kParts, NoFinish>(held, tile, prefetches, p);
  if (StoreAsBf16::can(tile.c)) return multiply<kAStays, kParts, StoreAsBf16>(held, tile, prefetches, p);
  multiply<kAStays, kParts, FinishSums>(held, tile, prefetches, p);
}

LOCKSTEP_AMX void store_sums(const Held& held) {
  float* const low = held.sums + kTileRows * held.stride;
  order_memory();
  _tile_stored(0, held.sums, held.stride * 4);
  _tile_stored(1, held.sums + kTileRows, held.stride * 4);
  _tile_stored(2, low, held.stride * 4);
  _tile_stored(3, low + kTileRows, held.stride * 4);
  order_memory();
}

}  // namespace

bool amx_usable() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  constexpr long kTileData = 18;               // state component of tiles
  return cpu_has_amx() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

TileShapes::TileShapes() {
  load_shapes();
}

TileShapes::~TileShapes() {
  release_tiles();
}

void PanelMultiplier::multiply(const PanelProduct& p, const StagedTile& then, const Prefetches& prefetches) {
  const Held held{held_, held_stride_};
  const bool split = p.parts > 1;
  auto* const work = p.a_stays ? (split ? multiply_and_finish<true, 3> : multiply_and_finish<true, 1>)
                               : (split ? multiply_and_finish<false, 3> : multiply_and_finish<false, 1>);
  work(held, then_, prefetches, p);
  held_ = p.sums;
  held_stride_ = p.stride;
  then_ = then;
}

void PanelMultiplier::flush() {
  if (held_ != nullptr) store_sums({held_, held_stride_});
  held_ = nullptr;
  if (then_.sums != nullptr) {
    finish_sums(then_.c, then_.sums, then_.stride, then_.rows, then_.columns);
  }
  then_ = {};
}

}  // namespace lockstep::kernels
