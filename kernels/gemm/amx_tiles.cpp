#include "kernels/gemm/amx_tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

// Functions below are compiled for instructions that the build's baseline lacks.
#define LOCKSTEP_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kTileElems = kTileRows * kTileDepth;

struct alignas(64) TileConfig {  // what LDTILECFG reads
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Sixteen rows of 16 pairs turned: out[pair][row], `stride` pairs apart. In stages of 1, 2, 4 and 8 pairs.
LOCKSTEP_AMX inline void turn_16x16(const __m512i* rows, std::uint32_t* out, std::int64_t stride) {
  __m512i t[16];
  __m512i u[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // u[4 g + j]: in each quarter q pair 4 q + j of rows 4 g to 4 g + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i even01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x88);  // quarters 0, 2 of either
    const __m512i odd01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0xdd);
    _mm512_storeu_si512(out + stride * j, _mm512_shuffle_i32x4(even01, even23, 0x88));
    _mm512_storeu_si512(out + stride * (4 + j), _mm512_shuffle_i32x4(odd01, odd23, 0x88));
    _mm512_storeu_si512(out + stride * (8 + j), _mm512_shuffle_i32x4(even01, even23, 0xdd));
    _mm512_storeu_si512(out + stride * (12 + j), _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
  }
}

constexpr std::uint32_t first_bits(std::int64_t count) {
  return count >= 32 ? 0xffffffffu : (1u << static_cast<unsigned>(count < 0 ? 0 : count)) - 1u;
}

// 16 rows of 32 depths from memory in which depth runs. Rows and depths that are missing are zero; a whole tile misses
// none, which spares the masks.
template <bool kWhole>
LOCKSTEP_AMX inline void load_rows(const core::BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                                   __m512i* out) {
  const __mmask32 mask = first_bits(depth);
  for (std::int64_t r = 0; r < 16; ++r) {
    if constexpr (kWhole) {
      out[r] = _mm512_loadu_si512(x + r * stride);
    } else {
      out[r] = r < rows ? _mm512_maskz_loadu_epi16(mask, x + r * stride) : _mm512_setzero_si512();
    }
  }
}

template <bool kWhole>
LOCKSTEP_AMX inline __m512i load_16(__mmask16 mask, const core::BFloat16* from) {
  if constexpr (kWhole) return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
}

// 16 pairs of depths from memory in which 16 columns run: out[pair] has column by column the pair's two.
template <bool kWhole>
LOCKSTEP_AMX inline void load_pairs(const core::BFloat16* x, std::int64_t stride, std::int64_t columns,
                                    std::int64_t depth, __m512i* out) {
  const auto mask = static_cast<__mmask16>(first_bits(columns < 16 ? columns : 16));
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    const core::BFloat16* const at = x + 2 * pair * stride;
    const __m512i low = load_16<kWhole>(2 * pair < depth ? mask : static_cast<__mmask16>(0), at);
    const __m512i high = load_16<kWhole>(2 * pair + 1 < depth ? mask : static_cast<__mmask16>(0), at + stride);
    out[pair] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
}

LOCKSTEP_AMX inline void store_rows(const __m512i* rows, core::BFloat16* out, std::int64_t stride) {
  for (std::int64_t r = 0; r < 16; ++r) _mm512_storeu_si512(out + r * stride, rows[r]);
}

template <bool kWhole>
LOCKSTEP_AMX void a_tile_of(const Factor& a, std::int64_t rows, std::int64_t depth, core::BFloat16* out,
                            std::int64_t stride) {
  __m512i loaded[16];
  if (a.column_stride == 1) {
    load_rows<kWhole>(a.as<core::BFloat16>(), a.row_stride, rows, depth, loaded);
    return store_rows(loaded, out, stride);
  }
  load_pairs<kWhole>(a.as<core::BFloat16>(), a.column_stride, rows, depth, loaded);
  turn_16x16(loaded, reinterpret_cast<std::uint32_t*>(out), stride / 2);
}

template <bool kWhole>
LOCKSTEP_AMX void b_tile_of(const Factor& b, std::int64_t columns, std::int64_t depth, core::BFloat16* out) {
  __m512i loaded[16];
  if (b.column_stride == 1) {
    load_pairs<kWhole>(b.as<core::BFloat16>(), b.row_stride, columns, depth, loaded);
    return store_rows(loaded, out, kTileDepth);
  }
  load_rows<kWhole>(b.as<core::BFloat16>(), b.column_stride, columns, depth, loaded);
  turn_16x16(loaded, reinterpret_cast<std::uint32_t*>(out), kTileRows);
}

void a_tile(const Factor& a, std::int64_t rows, std::int64_t depth, core::BFloat16* out, std::int64_t stride) {
  if (rows >= kTileRows && depth >= kTileDepth) return a_tile_of<true>(a, rows, depth, out, stride);
  a_tile_of<false>(a, rows, depth, out, stride);
}

void b_tile(const Factor& b, std::int64_t columns, std::int64_t depth, core::BFloat16* out) {
  if (columns >= kTileRows && depth >= kTileDepth) return b_tile_of<true>(b, columns, depth, out);
  b_tile_of<false>(b, columns, depth, out);
}

LOCKSTEP_AMX void load_shapes() {
  static constexpr TileConfig kShapes;  // not on the stack: g++ 12 believes that only 8 bytes of it are read
  _tile_loadconfig(&kShapes);
}

LOCKSTEP_AMX void release_tiles() {
  _tile_release();
}

// 32 numbers of bf16, widened; those that the mask leaves out are zero.
LOCKSTEP_AMX inline void load_32(__mmask32 mask, const core::BFloat16* from, __m512& low, __m512& high) {
  const __m512i bits = _mm512_maskz_loadu_epi16(mask, from);
  const __m512i low_bits = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
  const __m512i high_bits = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1));
  low = _mm512_castsi512_ps(_mm512_slli_epi32(low_bits, 16));
  high = _mm512_castsi512_ps(_mm512_slli_epi32(high_bits, 16));
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

}  // namespace

bool amx_usable() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  constexpr long kTileData = 18;               // the state component of tiles
  return cpu_has_amx() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

TileShapes::TileShapes() {
  load_shapes();
}

TileShapes::~TileShapes() {
  release_tiles();
}

void pack_a_panel(const Factor& a, std::int64_t rows, std::int64_t depth, core::BFloat16* out) {
  const std::int64_t stride = (depth + kTileDepth - 1) / kTileDepth * kTileDepth;
  for (std::int64_t t = 0; t < depth; t += kTileDepth) {
    for (std::int64_t r = 0; r < kPanel; r += kTileRows) {
      a_tile(a.from(r, t), rows - r, depth - t, out + r * stride + t, stride);
    }
  }
}

void pack_b_panel(const Factor& b, std::int64_t columns, std::int64_t depth, core::BFloat16* out) {
  for (std::int64_t t = 0; t < depth; t += kTileDepth) {
    for (std::int64_t c = 0; c < kPanel; c += kTileRows, out += kTileElems) {
      b_tile(b.from(t, c), columns - c, depth - t, out);
    }
  }
}

LOCKSTEP_AMX void store_as_bf16(const StagedTile& tile, std::int64_t begin, std::int64_t end) {
  const __mmask32 mask = first_bits(tile.columns);
  __m512 low_bias = _mm512_setzero_ps();
  __m512 high_bias = _mm512_setzero_ps();
  if (tile.c.bias != nullptr) load_32(mask, static_cast<const core::BFloat16*>(tile.c.bias), low_bias, high_bias);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* const sums = tile.sums + r * tile.stride;
    const __m512 low = _mm512_add_ps(_mm512_loadu_ps(sums), low_bias);
    const __m512 high = _mm512_add_ps(_mm512_loadu_ps(sums + kTileRows), high_bias);
    const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    _mm512_mask_storeu_epi16(tile.c.as<core::BFloat16>() + r * tile.c.row_stride, mask, rounded);
  }
}

namespace {

LOCKSTEP_AMX inline void load_sums(const PanelProduct& p) {
  const std::int64_t bytes = p.stride * 4;
  const float* const low = p.sums + kTileRows * p.stride;
  _tile_loadd(0, p.sums, bytes);
  _tile_loadd(1, p.sums + kTileRows, bytes);
  _tile_loadd(2, low, bytes);
  _tile_loadd(3, low + kTileRows, bytes);
}

LOCKSTEP_AMX inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

LOCKSTEP_AMX inline void store_sums(const PanelProduct& p) {
  const std::int64_t bytes = p.stride * 4;
  float* const low = p.sums + kTileRows * p.stride;
  _tile_stored(0, p.sums, bytes);
  _tile_stored(1, p.sums + kTileRows, bytes);
  _tile_stored(2, low, bytes);
  _tile_stored(3, low + kTileRows, bytes);
}

// Cache lines of 16 floats, `begin` to `end` of the 64 that 32 rows of 32 sums are.
LOCKSTEP_AMX inline void prefetch_sums(const float* sums, std::int64_t stride, std::int64_t begin, std::int64_t end) {
  for (std::int64_t line = begin; line < end; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(sums + line / 2 * stride + line % 2 * 16), _MM_HINT_T0);
  }
}

}  // namespace

// g++ 12 does not know that tile loads read memory: nothing here, and nothing inlined here, may write what they load.
LOCKSTEP_AMX void multiply_panels(const PanelProduct& p) {
  if (p.add) {
    load_sums(p);
  } else {
    clear_sums();
  }
  const core::BFloat16* a = p.a;
  const core::BFloat16* b = p.b;
  const std::int64_t a_bytes = p.a_stride * 2;
  for (std::int64_t step = 0; step < p.steps; ++step, a += kTileDepth, b += 2 * kTileElems) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileElems, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileRows * p.a_stride, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    if (p.next_sums != nullptr) {
      prefetch_sums(p.next_sums, p.stride, 64 * step / p.steps, 64 * (step + 1) / p.steps);
    }
    if (p.before != nullptr) {
      store_as_bf16(*p.before, p.before->rows * step / p.steps, p.before->rows * (step + 1) / p.steps);
    }
  }
  store_sums(p);
}

}  // namespace lockstep::kernels
