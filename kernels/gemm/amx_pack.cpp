#include "kernels/gemm/amx_pack.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/gemm/amx_target.h"

namespace lockstep::kernels {
namespace {

// Sixteen rows of 16 pairs turned: out[pair][row]. In stages of 1, 2, 4 and 8 pairs.
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
  // u[4 g + j]: in each quarter q pair 4 q + j of rows 4 g to 4 g + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i even01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x88);  // quarters 0, 2 of either
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

// A tile's numbers on their way: where they begin, and how many there are. A whole tile misses none, which spares the
// masks.
template <class T>
struct Corner {
  const T* x;
  std::int64_t stride;  // of what is not next to each other
  std::int64_t lines;
  std::int64_t depth;
};

// 16 lines of 32 depths from memory in which depth runs.
template <bool kWhole>
LOCKSTEP_AMX inline bool load_lines(const Corner<core::BFloat16>& from, __m512i (*out)[16]) {
  const __mmask32 mask = first_bits(from.depth);
  for (std::int64_t r = 0; r < 16; ++r) {
    const core::BFloat16* const at = from.x + r * from.stride;
    if constexpr (kWhole) {
      out[0][r] = _mm512_loadu_si512(at);
    } else {
      out[0][r] = r < from.lines ? _mm512_maskz_loadu_epi16(mask, at) : _mm512_setzero_si512();
    }
  }
  return true;
}

template <bool kWhole>
LOCKSTEP_AMX inline __m512i load_16(__mmask16 mask, const core::BFloat16* from) {
  if constexpr (kWhole) return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
}

// 16 pairs of depths from memory in which lines run side by side: out[pair] has line by line the pair's two.
template <bool kWhole>
LOCKSTEP_AMX inline bool load_pairs(const Corner<core::BFloat16>& from, __m512i (*out)[16]) {
  const auto mask = static_cast<__mmask16>(first_bits(from.lines < 16 ? from.lines : 16));
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    const core::BFloat16* const at = from.x + 2 * pair * from.stride;
    const __m512i low = load_16<kWhole>(2 * pair < from.depth ? mask : static_cast<__mmask16>(0), at);
    const __m512i high =
        load_16<kWhole>(2 * pair + 1 < from.depth ? mask : static_cast<__mmask16>(0), at + from.stride);
    out[0][pair] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
  return true;
}

// f32 numbers as three parts, each in the upper halves of its lanes: rounded to 8 significant bits, what is left of it
// rounded, and what is left of that, which has no more than 8.
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
  const __m512 last = _mm512_sub_ps(rest, _mm512_castsi512_ps(second));
  return {{first, second, _mm512_and_si512(_mm512_castps_si512(last), upper_half())}};
}

// Infinity minus itself is NaN, so that it and what rounds to it show in the last part.
LOCKSTEP_AMX inline __mmask16 not_finite(const Parts& x) {
  const __m512 last = _mm512_castsi512_ps(x.part[2]);
  return _mm512_cmp_ps_mask(last, last, _CMP_UNORD_Q);
}

template <bool kWhole>
LOCKSTEP_AMX inline __m512 load_16(__mmask16 mask, const float* from) {
  if constexpr (kWhole) return _mm512_loadu_ps(from);
  return _mm512_maskz_loadu_ps(mask, from);
}

template <bool kWhole>
LOCKSTEP_AMX inline bool load_lines(const Corner<float>& from, __m512i (*out)[16]) {
  // The upper halves of 16 lanes, then those of 16 more.
  alignas(64) static constexpr std::uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                           23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                           45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i upper = _mm512_load_si512(kUpper);
  const std::uint32_t mask = first_bits(from.depth);
  __mmask16 bad = 0;
  for (std::int64_t r = 0; r < 16; ++r) {
    const std::uint32_t present = r < from.lines ? mask : 0;
    const float* const at = from.x + r * from.stride;
    const Parts low = parts_of(load_16<kWhole>(static_cast<__mmask16>(present & 0xffff), at));
    const Parts high = parts_of(load_16<kWhole>(static_cast<__mmask16>(present >> 16), at + 16));
    for (int p = 0; p < 3; ++p) out[p][r] = _mm512_permutex2var_epi16(low.part[p], upper, high.part[p]);
    bad = static_cast<__mmask16>(bad | not_finite(low) | not_finite(high));
  }
  return bad == 0;
}

template <bool kWhole>
LOCKSTEP_AMX inline bool load_pairs(const Corner<float>& from, __m512i (*out)[16]) {
  const auto mask = static_cast<__mmask16>(first_bits(from.lines < 16 ? from.lines : 16));
  __mmask16 bad = 0;
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    const float* const at = from.x + 2 * pair * from.stride;
    const Parts even = parts_of(load_16<kWhole>(2 * pair < from.depth ? mask : static_cast<__mmask16>(0), at));
    const Parts odd =
        parts_of(load_16<kWhole>(2 * pair + 1 < from.depth ? mask : static_cast<__mmask16>(0), at + from.stride));
    for (int p = 0; p < 3; ++p) out[p][pair] = _mm512_or_si512(_mm512_srli_epi32(even.part[p], 16), odd.part[p]);
    bad = static_cast<__mmask16>(bad | not_finite(even) | not_finite(odd));
  }
  return bad == 0;
}

template <bool kWhole, class T>
LOCKSTEP_AMX bool pack(const PanelSource& panel, const Corner<T>& from, core::BFloat16* out) {
  constexpr int kParts = sizeof(T) == 2 ? 1 : 3;
  const bool depth_runs = panel.depth_stride == 1;
  __m512i loaded[kParts][16];
  const bool finite = depth_runs ? load_lines<kWhole>(from, loaded) : load_pairs<kWhole>(from, loaded);
  for (int p = 0; p < kParts; ++p, out += 2 * kTileElems) {
    if (panel.of_a == depth_runs) {
      store_rows(loaded[p], out);
    } else {
      turn_16x16(loaded[p], out);
    }
  }
  return finite;
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
  if (from.lines >= kTileRows && from.depth >= kTileDepth) return pack<true>(panel, from, to);
  return pack<false>(panel, from, to);
}

void prefetch_tile(const PanelSource& from, std::int64_t tile) {
  const auto size = static_cast<std::int64_t>(core::size_of(from.dtype));
  const bool depth_runs = from.depth_stride == 1;
  const std::int64_t line = tile % 2 * kTileRows;
  const std::int64_t begin = tile / 2 * kTileDepth;
  const auto* const at =
      static_cast<const char*>(from.data) + (line * from.line_stride + begin * from.depth_stride) * size;
  const std::int64_t stride = (depth_runs ? from.line_stride : from.depth_stride) * size;
  const std::int64_t rows =
      depth_runs ? std::min(kTileRows, from.lines - line) : std::min(kTileDepth, from.depth - begin);
  if (!depth_runs && size == 2 && line > 0) return;  // a cache line holds both halves
  for (std::int64_t r = 0; r < rows; ++r) {
    _mm_prefetch(at + r * stride, _MM_HINT_T1);
    if (depth_runs && size == 4) _mm_prefetch(at + r * stride + 64, _MM_HINT_T1);
  }
}

template <class T>
bool pack_panel_of(const PanelSource& from, const PanelSource& ahead, core::BFloat16* out) {
  bool finite = true;
  const std::int64_t tiles = from.tiles();
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    if (ahead.data != nullptr) prefetch_tile(ahead, tile);
    finite &= pack_as<T>(from, tile, out);
  }
  return finite;
}

}  // namespace

bool pack_panel(const PanelSource& from, const PanelSource& ahead, core::BFloat16* out) {
  if (from.dtype == core::DType::bf16) return pack_panel_of<core::BFloat16>(from, ahead, out);
  return pack_panel_of<float>(from, ahead, out);
}

void prefetch_panel(const PanelSource& from, std::int64_t begin, std::int64_t end) {
  for (std::int64_t tile = begin; tile < end; ++tile) prefetch_tile(from, tile);
}

}  // namespace lockstep::kernels
