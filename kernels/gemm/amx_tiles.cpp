#include "kernels/gemm/amx_tiles.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

// Functions below are compiled for instructions that the build's baseline lacks.
#define LOCKSTEP_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")))

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

// Sixteen rows of 16 pairs, whose first is at `x`, turned: out[pair][row]. In stages of 1, 2, 4 and 8 pairs.
LOCKSTEP_AMX inline void turn_16x16(const __m512i* rows, std::uint32_t* out) {
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
    _mm512_storeu_si512(out + 16 * j, _mm512_shuffle_i32x4(even01, even23, 0x88));
    _mm512_storeu_si512(out + 16 * (4 + j), _mm512_shuffle_i32x4(odd01, odd23, 0x88));
    _mm512_storeu_si512(out + 16 * (8 + j), _mm512_shuffle_i32x4(even01, even23, 0xdd));
    _mm512_storeu_si512(out + 16 * (12 + j), _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
  }
}

constexpr std::uint32_t first_bits(std::int64_t count) {
  return count >= 32 ? 0xffffffffu : (1u << static_cast<unsigned>(count < 0 ? 0 : count)) - 1u;
}

// 16 rows of 32 depths from memory in which depth runs; rows and depths that are missing are zero.
LOCKSTEP_AMX inline void load_rows(const core::BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                                   __m512i* out) {
  const __mmask32 mask = first_bits(depth);
  for (std::int64_t r = 0; r < 16; ++r) {
    out[r] = r < rows ? _mm512_maskz_loadu_epi16(mask, x + r * stride) : _mm512_setzero_si512();
  }
}

// 16 pairs of depths from memory in which 16 columns run: out[pair] has column by column the pair's two.
LOCKSTEP_AMX inline void load_pairs(const core::BFloat16* x, std::int64_t stride, std::int64_t columns,
                                    std::int64_t depth, __m512i* out) {
  const auto mask = static_cast<__mmask16>(first_bits(columns < 16 ? columns : 16));
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    const core::BFloat16* const at = x + 2 * pair * stride;
    const __mmask16 first = 2 * pair < depth ? mask : static_cast<__mmask16>(0);
    const __mmask16 second = 2 * pair + 1 < depth ? mask : static_cast<__mmask16>(0);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, at));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, at + stride));
    out[pair] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
}

LOCKSTEP_AMX inline void store_rows(const __m512i* rows, core::BFloat16* out, std::int64_t stride) {
  for (std::int64_t r = 0; r < 16; ++r) _mm512_storeu_si512(out + r * stride, rows[r]);
}

LOCKSTEP_AMX void a_tile(const Factor& a, std::int64_t rows, std::int64_t depth, core::BFloat16* out,
                         std::int64_t stride) {
  __m512i loaded[16];
  if (a.column_stride == 1) {
    load_rows(a.as<core::BFloat16>(), a.row_stride, rows, depth, loaded);
    return store_rows(loaded, out, stride);
  }
  alignas(64) std::uint32_t turned[16 * 16];
  load_pairs(a.as<core::BFloat16>(), a.column_stride, rows, depth, loaded);
  turn_16x16(loaded, turned);
  for (std::int64_t r = 0; r < 16; ++r) {
    _mm512_storeu_si512(out + r * stride, _mm512_load_si512(turned + 16 * r));
  }
}

LOCKSTEP_AMX void b_tile(const Factor& b, std::int64_t columns, std::int64_t depth, core::BFloat16* out) {
  __m512i loaded[16];
  if (b.column_stride == 1) {
    load_pairs(b.as<core::BFloat16>(), b.row_stride, columns, depth, loaded);
    return store_rows(loaded, out, kTileDepth);
  }
  load_rows(b.as<core::BFloat16>(), b.column_stride, columns, depth, loaded);
  turn_16x16(loaded, reinterpret_cast<std::uint32_t*>(out));
}

LOCKSTEP_AMX void load_shapes() {
  static constexpr TileConfig kShapes;  // not on the stack: g++ 12 believes that only 8 bytes of it are read
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
  return (b & avx512) == avx512 && (d & amx) == amx;
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

// g++ 12 does not know that tile loads read memory: nothing here, and nothing inlined here, may write what they load.
LOCKSTEP_AMX void multiply_panels(const PanelProduct& p) {
  const std::int64_t sums_bytes = p.stride * 4;
  float* const low = p.sums + kTileRows * p.stride;
  if (p.add) {
    _tile_loadd(0, p.sums, sums_bytes);
    _tile_loadd(1, p.sums + kTileRows, sums_bytes);
    _tile_loadd(2, low, sums_bytes);
    _tile_loadd(3, low + kTileRows, sums_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
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
  }
  _tile_stored(0, p.sums, sums_bytes);
  _tile_stored(1, p.sums + kTileRows, sums_bytes);
  _tile_stored(2, low, sums_bytes);
  _tile_stored(3, low + kTileRows, sums_bytes);
}

}  // namespace lockstep::kernels
