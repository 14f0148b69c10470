// Our own products on AMX tiles, with sums in f32: 32 x 32 sums at a time, two by two tiles.
//
// One factor's panels of 32 rows or columns pass one by one through the L1 cache; the other factor's panels stay packed
// in the L2 cache. Rows of bf16 with contiguous depth are read in place; everything else is packed. f32 is split into
// three parts of bf16 whose sum it is exactly: six products of parts replace one, and their error is below the error of
// a sum in f32 (Henry, Tang, Heinecke 2019, Leveraging the bfloat16 Artificial Intelligence Datatype For
// Higher-Precision Computations, arXiv 1904.06376). The sums of an element of c are added in the same order whatever
// part of c a thread computes. Subnormal numbers count as zero, as in TDPBF16PS, so f32 below 2^-109 loses bits.
#include <algorithm>

#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {
namespace {

using core::BFloat16;

constexpr std::int64_t kSumsElems = kPanel * kPanel;
constexpr std::int64_t kSumsBytes = kSumsElems * std::int64_t{sizeof(float)};

// Block sizes: of depth, such that sums seldom go through memory, and that a packed panel of bf16 leaves half of the L1
// cache to others; of panels that stay, half of the L2 cache, or three quarters for parts of f32, because those are
// packed again for each block of the other factor; of sums between blocks of depth.
constexpr std::int64_t kDepth = 1024;
constexpr std::int64_t kPackedDepth = 512;
constexpr std::int64_t kPartsDepth = 768;
constexpr std::int64_t kStayingBytes = 1 << 20;
constexpr std::int64_t kStayingPartsBytes = 3 << 19;
constexpr std::int64_t kPartialBytes = 1 << 20;

std::int64_t ceil_div(std::int64_t count, std::int64_t grain) {
  return (count + grain - 1) / grain;
}

std::int64_t round_up(std::int64_t count, std::int64_t grain) {
  return ceil_div(count, grain) * grain;
}

std::int64_t steps_of(std::int64_t depth) {
  return ceil_div(depth, kTileDepth);
}

// Returns the size of equal blocks of whole steps.
std::int64_t block_of(std::int64_t depth, std::int64_t most) {
  return round_up(ceil_div(depth, ceil_div(depth, most)), kTileDepth);
}

// One thread's product, block by block.
class AmxProduct {
 public:
  AmxProduct(const Product& product, ThreadPool& pool, int thread)
      : p_(product),
        parts_(parts_of(product.a.dtype)),
        c_size_(static_cast<std::int64_t>(core::size_of(product.c.dtype))),
        a_in_place_(parts_ == 1 && product.a.column_stride == 1),
        a_passes_(a_in_place_ || product.m >= product.n),
        adds_(product.c.finish == Finish::add),
        deep_(block_of(product.k, parts_ == 1 ? kDepth : kPartsDepth)),
        depth_(block_of(deep_, parts_ == 1 && !a_in_place_ ? kPackedDepth : kDepth)),
        one_pass_(adds_ || deep_ >= product.k),
        passing_(ceil_div(a_passes_ ? p_.m : p_.n, kPanel)),
        staying_(ceil_div(a_passes_ ? p_.n : p_.m, kPanel)) {
    const std::int64_t panel_bytes = kPanel * deep_ * parts_ * std::int64_t{sizeof(BFloat16)};
    most_staying_ =
        std::clamp<std::int64_t>((parts_ == 1 ? kStayingBytes : kStayingPartsBytes) / panel_bytes, 1, staying_);
    most_passing_ =
        one_pass_ ? passing_ : std::clamp<std::int64_t>(kPartialBytes / (most_staying_ * kSumsBytes), 1, passing_);
    const std::int64_t sums_bytes = (1 + most_staying_ * (one_pass_ ? 1 : most_passing_)) * kSumsBytes;
    const std::int64_t panels_bytes = (1 + most_staying_) * panel_bytes;
    std::byte* const memory = pool.scratch(thread, static_cast<std::size_t>(panels_bytes + sums_bytes + most_staying_));
    passing_panel_ = reinterpret_cast<BFloat16*>(memory);
    staying_panels_ = reinterpret_cast<BFloat16*>(memory + panel_bytes);
    sums_ = reinterpret_cast<float*>(memory + panels_bytes);
    finite_ = reinterpret_cast<bool*>(memory + panels_bytes + sums_bytes);
  }

  void run() {
    for (std::int64_t s = 0; s < staying_; s += most_staying_) {
      for (std::int64_t o = 0; o < passing_; o += most_passing_) {
        for (std::int64_t begin = 0; begin < p_.k; begin += deep_) {
          block({o, std::min(most_passing_, passing_ - o), s, std::min(most_staying_, staying_ - s), begin,
                 std::min(deep_, p_.k - begin)});
        }
      }
    }
    tiles_.flush();
  }

 private:
  // A block of panels and depths.
  struct Block {
    std::int64_t passing, num_passing, staying, num_staying, begin, depth;
  };
  // Some of a block's depths; `at` is the first.
  struct Layer {
    std::int64_t at, depth;
    bool first, last;  // true in the first and the last of the layers that are summed before the sums are finished
  };
  struct Passing {
    const BFloat16* data;
    bool in_place;
    bool finite;
    Ahead next;
  };
  // A tile of 32 x 32 elements of c, or fewer at the edge.
  struct TileOfC {
    std::int64_t row, column, rows, columns;
  };

  // Returns a panel of a or of b.
  PanelSource source(bool of_a, std::int64_t panel, std::int64_t begin, std::int64_t depth) const {
    const Factor& x = of_a ? p_.a : p_.b;
    const std::int64_t line = panel * kPanel;
    return {.data = (of_a ? x.from(line, begin) : x.from(begin, line)).data,
            .dtype = x.dtype,
            .of_a = of_a,
            .line_stride = of_a ? x.row_stride : x.column_stride,
            .depth_stride = of_a ? x.column_stride : x.row_stride,
            .lines = std::min(kPanel, (of_a ? p_.m : p_.n) - line),
            .depth = depth};
  }

  void block(const Block& b) {
    for (std::int64_t o = 0; o < b.num_passing; ++o) {
      Passing passing = passing_panel(b, o);
      for (std::int64_t at = 0; at < b.depth; at += depth_) {
        const std::int64_t depth = std::min(depth_, b.depth - at);
        const bool first = at == 0 && (one_pass_ || b.begin == 0);
        const bool last = at + depth == b.depth && (one_pass_ || b.begin + b.depth == p_.k);
        multiply_layer(b, {at, depth, first, last}, o, passing);
      }
    }
  }

  Passing passing_panel(const Block& b, std::int64_t o) {
    const PanelSource from = source(a_passes_, b.passing + o, b.begin, b.depth);
    Ahead next;
    if (o + 1 < b.num_passing) {
      next = ahead_of(source(a_passes_, b.passing + o + 1, b.begin, b.depth), b.num_staying * steps_of(b.depth));
    }
    if (a_in_place_ && from.lines == kPanel && b.depth % kTileDepth == 0) {
      const bool follows = from.line_stride == b.depth;  // in memory, so that the hardware prefetcher loads it
      return {static_cast<const BFloat16*>(from.data), true, true, follows ? Ahead{} : next};
    }
    return {passing_panel_, false, pack_panel(from, passing_panel_), next};
  }

  // Multiplies a passing panel with all panels that stay.
  void multiply_layer(const Block& b, const Layer& layer, std::int64_t o, Passing& passing) {
    PanelProduct panels{};
    panels.a_row = passing.in_place ? p_.a.row_stride : kTileDepth;
    panels.a_half = panels.a_row * kTileRows;
    panels.a_step = passing.in_place ? kTileDepth : 2 * kTileElems * parts_;
    panels.parts = parts_;
    panels.steps = steps_of(layer.depth);
    panels.a_stays = a_passes_;
    const BFloat16* const passed = passing.data + layer.at * (passing.in_place ? 1 : kPanel * parts_);
    BFloat16* stayed = staying_panels_ + layer.at * kPanel * parts_ * b.num_staying;
    for (std::int64_t s = 0; s < b.num_staying; ++s, stayed += panels.steps * 2 * kTileElems * parts_) {
      Ahead staying;
      if (o == 0) {
        finite_[s] = pack_panel(staying_source(b, layer, s), stayed);
        if (s + 1 < b.num_staying) staying = ahead_of(staying_source(b, layer, s + 1), panels.steps);
      }
      panels.a = a_passes_ ? passed : stayed;
      panels.b = a_passes_ ? stayed : passed;
      multiply_tile(b, layer, o, s, passing.finite && finite_[s], panels,
                    {.passing = &passing.next, .staying = &staying});
    }
  }

  PanelSource staying_source(const Block& b, const Layer& layer, std::int64_t s) const {
    return source(!a_passes_, b.staying + s, b.begin + layer.at, layer.depth);
  }

  static Ahead ahead_of(const PanelSource& panel, std::int64_t steps) {
    const bool depth_runs = panel.depth_stride == 1;
    const auto size = static_cast<std::int64_t>(core::size_of(panel.dtype));
    return {panel.data, (depth_runs ? panel.line_stride : panel.depth_stride) * size,
            (depth_runs ? panel.depth : panel.lines) * size, depth_runs ? panel.lines : panel.depth, steps};
  }

  TileOfC tile_of_c(const Block& b, std::int64_t o, std::int64_t s) const {
    const std::int64_t row = (a_passes_ ? b.passing + o : b.staying + s) * kPanel;
    const std::int64_t column = (a_passes_ ? b.staying + s : b.passing + o) * kPanel;
    return {row, column, std::min(kPanel, p_.m - row), std::min(kPanel, p_.n - column)};
  }

  void multiply_tile(const Block& b, const Layer& layer, std::int64_t o, std::int64_t s, bool finite,
                     PanelProduct& panels, Prefetches prefetches) {
    const TileOfC here = tile_of_c(b, o, s);
    const Sums c = p_.c.from(here.row, here.column);
    StagedTile then;
    prefetches.stride_bytes = c.row_stride * c_size_;
    prefetches.row_bytes = kPanel * c_size_;
    if (adds_ && here.rows == kPanel && here.columns == kPanel) {
      panels.add = true;
      panels.sums = c.as<float>();
      panels.stride = c.row_stride;
      // The next product usually adds here.
      prefetches.written = c.as<char>() + kPanel * (a_passes_ ? c_size_ : prefetches.stride_bytes);
    } else {
      const bool alone = layer.first && layer.last && one_pass_;
      panels.add = !layer.first;
      panels.sums = sums_ + kSumsElems * (alone ? 0 : 1 + (one_pass_ ? s : o * b.num_staying + s));
      panels.stride = kPanel;
      if (layer.last) {
        then = {c, panels.sums, panels.stride, here.rows, here.columns};
        prefetches.written = c.as<char>();
        prefetches.also = static_cast<char*>(c.pre_written != nullptr ? c.pre_written : const_cast<void*>(c.pre_read));
      }
    }
    if (finite) return tiles_.multiply(panels, then, prefetches);
    tiles_.flush();
    multiply_plainly(here, b.begin + layer.at, layer.depth, panels);
    if (then.sums != nullptr) finish_sums(then.c, then.sums, then.stride, then.rows, then.columns);
  }

  using Square = float[kPanel][kPanel];

  static void copy(const Factor& from, std::int64_t rows, std::int64_t columns, Square& to) {
    const auto* const x = from.as<float>();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) to[r][c] = x[r * from.row_stride + c * from.column_stride];
    }
  }

  // For f32 numbers that are not the sum of their parts: about twenty times as slow.
  void multiply_plainly(const TileOfC& here, std::int64_t begin, std::int64_t depth, const PanelProduct& panels) const {
    Square a{};
    Square b{};
    for (std::int64_t r = 0; r < here.rows && !panels.add; ++r) {
      std::fill_n(panels.sums + r * panels.stride, here.columns, 0.0F);
    }
    for (std::int64_t at = begin; at < begin + depth; at += kPanel) {
      const std::int64_t steps = std::min(kPanel, begin + depth - at);
      copy(p_.a.from(here.row, at), here.rows, steps, a);
      copy(p_.b.from(at, here.column), steps, here.columns, b);
      for (std::int64_t r = 0; r < here.rows; ++r) {
        float* const to = panels.sums + r * panels.stride;
        float sums[kPanel] = {};
        std::copy_n(to, here.columns, sums);
        for (std::int64_t t = 0; t < steps; ++t) {
          for (std::int64_t c = 0; c < kPanel; ++c) sums[c] += a[r][t] * b[t][c];
        }
        std::copy_n(sums, here.columns, to);
      }
    }
  }

  const Product& p_;
  const std::int64_t parts_;
  const std::int64_t c_size_;  // bytes per element
  const bool a_in_place_;      // except for rows and depths at the edge
  const bool a_passes_;        // otherwise b does
  const bool adds_;
  const std::int64_t deep_;               // depth of a block
  const std::int64_t depth_;              // depth of a layer; for f32 there is one layer per block
  const bool one_pass_;                   // each block of depth is finished at once
  const std::int64_t passing_, staying_;  // number of panels
  std::int64_t most_passing_, most_staying_;
  BFloat16* passing_panel_;
  BFloat16* staying_panels_;
  float* sums_;   // for one tile; then for each panel that stays, or for all tiles of a block
  bool* finite_;  // [panel that stays]
  PanelMultiplier tiles_;
};

class AmxGemm : public GemmImplementation {
 public:
  std::string_view name() const override { return "amx"; }
  bool can(core::DType dtype) const override { return dtype != core::DType::f16; }
  void run(const Product& product, ThreadPool& pool, int thread) override { AmxProduct(product, pool, thread).run(); }
};

}  // namespace

std::unique_ptr<GemmImplementation> make_amx_gemm() {
  if (!amx_usable()) return nullptr;
  return std::make_unique<AmxGemm>();
}

}  // namespace lockstep::kernels
