#include "kernels/gemm/amx_tiles.h"

#include <immintrin.h>

#include <algorithm>

namespace lockstep::kernels {
namespace {

// Transposes sixteen rows of 16 pairs: out[pair][row]. In stages of 1, 2, 4 and 8 pairs.
LOCKSTEP_AMX inline void turn_16x16(const __m512i* rows, core::BFloat16* to) {
  __m512i t[16];
  __m512i u[16];
  auto* const out = reinterpret_cast<__m512i*>(to);
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
  // u[4 g + j] holds in each quarter q pair 4 q + j of rows 4 g to 4 g + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i even01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x88);  // quarters 0 and 2 of both
    const __m512i odd01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0xdd);
    _mm512_storeu_si512(out + j, _mm512_shuffle_i32x4(even01, even23, 0x88));
    _mm512_storeu_si512(out + 4 + j, _mm512_shuffle_i32x4(odd01, odd23, 0x88));
    _mm512_storeu_si512(out + 8 + j, _mm512_shuffle_i32x4(even01, even23, 0xdd));
    _mm512_storeu_si512(out + 12 + j, _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
  }
}

LOCKSTEP_AMX inline void store_rows(const __m512i* rows, core::BFloat16* out) {
  for (std::int64_t r = 0; r < 16; ++r) _mm512_storeu_si512(out + r * kTileDepth, rows[r]);
}

constexpr std::uint32_t first_bits(std::int64_t count) {
  return count >= 32 ? 0xffffffffu : (1u << static_cast<unsigned>(count < 0 ? 0 : count)) - 1u;
}

// Position and number of a tile's elements in memory. A whole tile lacks none, which makes masks unnecessary.
template <class T>
struct Corner {
  const T* x;
  std::int64_t stride;  // between elements that are not adjacent
  std::int64_t lines;
  std::int64_t depth;
};

// Packs 16 lines of 32 depths from memory in which depth is contiguous.
template <bool kWhole>
LOCKSTEP_AMX inline void load_lines(const Corner<core::BFloat16>& from, __m512i* out) {
  const __mmask32 mask = first_bits(from.depth);
  for (std::int64_t r = 0; r < 16; ++r) {
    const core::BFloat16* const at = from.x + r * from.stride;
    if constexpr (kWhole) {
      out[r] = _mm512_loadu_si512(at);
    } else {
      out[r] = r < from.lines ? _mm512_maskz_loadu_epi16(mask, at) : _mm512_setzero_si512();
    }
  }
}

template <bool kWhole>
LOCKSTEP_AMX inline __m512i load_16(__mmask16 mask, const core::BFloat16* from) {
  if constexpr (kWhole) return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
}

// Packs 16 pairs of depths from memory in which lines are contiguous: out[pair] has each line's two depths.
template <bool kWhole>
LOCKSTEP_AMX inline void load_pairs(const Corner<core::BFloat16>& from, __m512i* out) {
  const auto mask = static_cast<__mmask16>(first_bits(from.lines < 16 ? from.lines : 16));
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    const core::BFloat16* const at = from.x + 2 * pair * from.stride;
    const __m512i low = load_16<kWhole>(2 * pair < from.depth ? mask : static_cast<__mmask16>(0), at);
    const __m512i high =
        load_16<kWhole>(2 * pair + 1 < from.depth ? mask : static_cast<__mmask16>(0), at + from.stride);
    out[pair] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
}

// Splits f32 numbers into three parts, each in the upper halves of its lanes: the number rounded to 8 significant bits,
// the remainder rounded likewise, and the rest, which has at most 8 bits (lower bits only if subnormal).
struct Parts {
  __m512i part[3];
};

LOCKSTEP_AMX inline __m512i upper_half() {
  return _mm512_set1_epi32(static_cast<int>(0xffff0000));
}

LOCKSTEP_AMX inline __m512i upper_rounded(__m512 x) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_and_si512(bits, upper_half());
}

LOCKSTEP_AMX inline Parts parts_of(__m512 x) {
  const __m512i first = upper_rounded(x);
  const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(first));
  const __m512i second = upper_rounded(rest);
  return {{first, second, _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(second)))}};
}

// Loads four rows of 16 numbers; the first is at `at`.
LOCKSTEP_AMX inline void load_rows(const float* at, std::int64_t stride, __m512* out) {
  for (std::int64_t r = 0; r < 4; ++r) out[r] = _mm512_loadu_ps(at + r * stride);
}

// Loads four numbers each of row r and every fourth row after it.
LOCKSTEP_AMX inline __m512 load_quarters(const float* at, std::int64_t stride) {
  __m512 rows = _mm512_castps128_ps512(_mm_loadu_ps(at));
  rows = _mm512_insertf32x4(rows, _mm_loadu_ps(at + 4 * stride), 1);
  rows = _mm512_insertf32x4(rows, _mm_loadu_ps(at + 8 * stride), 2);
  return _mm512_insertf32x4(rows, _mm_loadu_ps(at + 12 * stride), 3);
}

// Loads four columns of 16 numbers; the first is at `at`. Loads place the quarters, which saves half of the shuffles.
LOCKSTEP_AMX inline void load_columns(const float* at, std::int64_t stride, __m512* out) {
  __m512 rows[4];
  for (std::int64_t r = 0; r < 4; ++r) rows[r] = load_quarters(at + r * stride, stride);
  const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(rows[0], rows[1]));
  const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(rows[2], rows[3]));
  const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(rows[0], rows[1]));
  const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(rows[2], rows[3]));
  out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
  out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
  out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
  out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
}

// Packs a whole tile of each part, four of its rows at a time. The two depths of a pair are 16 apart instead of
// adjacent, which avoids moving halves between lanes; both factors use this order.
template <bool kTurned>
LOCKSTEP_AMX bool pack_parts(const float* x, std::int64_t stride, std::int64_t depth_stride, core::BFloat16* out) {
  constexpr std::int64_t kPart = 2 * kTileElems;
  __m512 check[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (std::int64_t row = 0; row < kTileRows; row += 4) {
    const float* const at = x + (kTurned ? row : row * stride);
    __m512 low[4];
    __m512 high[4];
    if constexpr (kTurned) {
      load_columns(at, stride, low);
      load_columns(at + 16 * depth_stride, stride, high);
    } else {
      load_rows(at, stride, low);
      load_rows(at + 16 * depth_stride, stride, high);
    }
    for (std::int64_t r = 0; r < 4; ++r) {
      const Parts even = parts_of(low[r]);
      const Parts odd = parts_of(high[r]);
      for (std::int64_t p = 0; p < 3; ++p) {
        constexpr int kFirstOrSecondAndThird = 0xf8;
        const __m512i pairs = _mm512_ternarylogic_epi32(_mm512_srli_epi32(even.part[p], 16), odd.part[p], upper_half(),
                                                        kFirstOrSecondAndThird);
        _mm512_storeu_si512(out + p * kPart + (row + r) * kTileDepth, pairs);
      }
      // Infinity minus itself is NaN, so infinity, and numbers that round to it, show in the last part.
      check[0] = _mm512_add_ps(check[0], _mm512_castsi512_ps(even.part[2]));
      check[1] = _mm512_add_ps(check[1], _mm512_castsi512_ps(odd.part[2]));
    }
  }
  return _mm512_cmp_ps_mask(check[0], check[1], _CMP_UNORD_Q) == 0;
}

template <bool kWhole>
LOCKSTEP_AMX void pack_bf16(const PanelSource& panel, const Corner<core::BFloat16>& from, core::BFloat16* out) {
  const bool depth_runs = panel.depth_stride == 1;
  __m512i loaded[16];
  if (depth_runs) {
    load_lines<kWhole>(from, loaded);
  } else {
    load_pairs<kWhole>(from, loaded);
  }
  if (panel.of_a == depth_runs) {
    store_rows(loaded, out);
  } else {
    turn_16x16(loaded, out);
  }
}

bool pack(const PanelSource& panel, const Corner<core::BFloat16>& from, core::BFloat16* out) {
  if (from.lines >= kTileRows && from.depth >= kTileDepth) {
    pack_bf16<true>(panel, from, out);
  } else {
    pack_bf16<false>(panel, from, out);
  }
  return true;
}

bool pack(const PanelSource& panel, const Corner<float>& from, core::BFloat16* out) {
  const bool depth_runs = panel.depth_stride == 1;
  const auto pack_whole = [&](const float* x, std::int64_t stride) {
    const std::int64_t depth_stride = depth_runs ? 1 : stride;
    return panel.of_a == depth_runs ? pack_parts<false>(x, stride, depth_stride, out)
                                    : pack_parts<true>(x, stride, depth_stride, out);
  };
  if (from.lines >= kTileRows && from.depth >= kTileDepth) return pack_whole(from.x, from.stride);
  alignas(64) float whole[kTileElems] = {};
  const std::int64_t lines = std::min(from.lines, kTileRows);
  const std::int64_t depth = std::min(from.depth, kTileDepth);
  const std::int64_t stride = depth_runs ? kTileDepth : kTileRows;
  for (std::int64_t r = 0; r < (depth_runs ? lines : depth); ++r) {
    std::copy_n(from.x + r * from.stride, depth_runs ? depth : lines, whole + r * stride);
  }
  return pack_whole(whole, stride);
}

template <class T>
bool pack_as(const PanelSource& panel, std::int64_t tile, core::BFloat16* out) {
  constexpr std::int64_t kParts = sizeof(T) == 2 ? 1 : 3;
  const std::int64_t line = tile % 2 * kTileRows;
  const std::int64_t begin = tile / 2 * kTileDepth;
  const T* const x = static_cast<const T*>(panel.data) + line * panel.line_stride + begin * panel.depth_stride;
  const Corner<T> from{x, panel.depth_stride == 1 ? panel.line_stride : panel.depth_stride, panel.lines - line,
                       panel.depth - begin};
  core::BFloat16* const to = out + (tile / 2 * kParts * 2 + tile % 2) * kTileElems;
  return pack(panel, from, to);
}

template <class T>
bool pack_panel_of(const PanelSource& from, core::BFloat16* out) {
  bool finite = true;
  const std::int64_t tiles = from.tiles();
  for (std::int64_t tile = 0; tile < tiles; ++tile) finite &= pack_as<T>(from, tile, out);
  return finite;
}

}  // namespace

bool pack_panel(const PanelSource& from, core::BFloat16* out) {
  if (from.dtype == core::DType::bf16) return pack_panel_of<core::BFloat16>(from, out);
  return pack_panel_of<float>(from, out);
}

}  // namespace lockstep::kernels
