// Our own product of bf16 matrices on AMX tiles, summed in f32: 32 x 32 sums at a time, two by two tiles. b is packed
// block by block; a is read where it is if depth runs along its memory in whole tiles, else packed too. The sums of an
// element of c are taken in the same order whatever part of c a thread computes. Subnormal numbers count as zero, as
// TDPBF16PS has it.
#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/gemm_implementation.h"

namespace lockstep::kernels {
namespace {

using core::BFloat16;

// Blocks, in elements: of depth, so that sums seldom go through memory; of b, little enough that packing and
// multiplying it leaves a in the second-level cache (128 KiB was 5 to 11 % faster than 1 MiB for 256 rows); of a, as
// many rows as are packed at a time.
constexpr std::int64_t kDepth = 1024;
constexpr std::int64_t kPackedB = 65536;
constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kPartialColumns = 1024;  // where sums do go through memory

std::int64_t round_up(std::int64_t count, std::int64_t grain) {
  return (count + grain - 1) / grain * grain;
}

// Whether store_as_bf16 is its finish.
bool is_quick(const Sums& c) {
  return (c.finish == Finish::store && c.alpha == 1) || c.finish == Finish::bias;
}

// One thread's product, block by block.
class AmxProduct {
 public:
  AmxProduct(const Product& product, ThreadPool& pool, int thread)
      : p_(product),
        depth_(round_up(std::min(product.k, kDepth), kTileDepth)),
        one_pass_(product.k <= kDepth || product.c.finish == Finish::add),
        a_in_place_(product.a.column_stride == 1 && product.k % kTileDepth == 0),
        b_columns_(std::min(round_up(product.n, kPanel), kPackedB / depth_ / kPanel * kPanel)),
        outer_columns_(one_pass_ ? product.n : std::min(product.n, kPartialColumns)) {
    const std::int64_t rows = round_up(std::min(product.m, kRows), kPanel);
    partial_stride_ = one_pass_ ? kPanel : round_up(outer_columns_, kPanel);
    const auto a_elems = static_cast<std::size_t>((a_in_place_ ? kPanel : rows) * depth_);
    const auto b_elems = static_cast<std::size_t>(b_columns_ * depth_);
    const auto partial = static_cast<std::size_t>((one_pass_ ? kPanel : rows) * partial_stride_);
    std::byte* const memory = pool.scratch(thread, (a_elems + b_elems) * sizeof(BFloat16) + partial * sizeof(float));
    a_ = reinterpret_cast<BFloat16*>(memory);
    b_ = a_ + a_elems;
    partial_ = reinterpret_cast<float*>(b_ + b_elems);
  }

  void run() {
    for (std::int64_t column = 0; column < p_.n; column += outer_columns_) {
      for (std::int64_t row = 0; row < p_.m; row += kRows) {
        outer_block(row, std::min(kRows, p_.m - row), column, std::min(outer_columns_, p_.n - column));
      }
    }
  }

 private:
  struct Block {
    std::int64_t row, rows, column, columns, begin, depth;
    std::int64_t outer_column;
    std::int64_t padded_depth() const { return round_up(depth, kTileDepth); }
  };

  void outer_block(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    for (std::int64_t begin = 0; begin < p_.k; begin += kDepth) {
      Block block{row, rows, column, columns, begin, std::min(kDepth, p_.k - begin), column};
      if (!a_in_place_) pack_a(block);
      for (std::int64_t inner = 0; inner < columns; inner += b_columns_) {
        block.column = column + inner;
        block.columns = std::min(b_columns_, columns - inner);
        inner_block(block);
      }
    }
  }

  void pack_a(const Block& block) {
    for (std::int64_t r = 0; r < block.rows; r += kPanel) {
      pack_a_panel(p_.a.from(block.row + r, block.begin), std::min(kPanel, block.rows - r), block.depth,
                   a_ + r * block.padded_depth());
    }
  }

  void inner_block(const Block& block) {
    for (std::int64_t c = 0; c < block.columns; c += kPanel) {
      pack_b_panel(p_.b.from(block.begin, block.column + c), std::min(kPanel, block.columns - c), block.depth,
                   b_ + c * block.padded_depth());
    }
    for (std::int64_t r = 0; r < block.rows; r += kPanel) row_of_panels(block, r);
    finish_pending();
  }

  void row_of_panels(const Block& block, std::int64_t r) {
    const std::int64_t rows = std::min(kPanel, block.rows - r);
    PanelProduct panels;
    panels.steps = block.padded_depth() / kTileDepth;
    panels.add = !one_pass_ && block.begin > 0;
    panels.stride = partial_stride_;
    panels.next_sums = nullptr;
    panels.before = nullptr;
    const Factor a = p_.a.from(block.row + r, block.begin);
    const bool in_place = a_in_place_ && rows == kPanel;
    if (a_in_place_ && !in_place) pack_a_panel(a, rows, block.depth, a_);
    panels.a = in_place ? a.as<BFloat16>() : a_in_place_ ? a_ : a_ + r * block.padded_depth();
    panels.a_stride = in_place ? a.row_stride : block.padded_depth();
    for (std::int64_t c = 0; c < block.columns; c += kPanel) {
      panels.b = b_ + c * block.padded_depth();
      tile(block, r, c, rows, panels);
    }
  }

  void tile(const Block& block, std::int64_t r, std::int64_t c, std::int64_t rows, PanelProduct panels) {
    const std::int64_t columns = std::min(kPanel, block.columns - c);
    const Sums result = p_.c.from(block.row + r, block.column + c);
    if (result.finish == Finish::add && rows == kPanel && columns == kPanel) {
      panels.add = true;
      panels.sums = result.as<float>();
      panels.stride = result.row_stride;
      panels.next_sums = panels.sums + kPanel;
      return multiply_panels(panels);
    }
    panels.sums = one_pass_ ? partial_ : partial_ + r * partial_stride_ + block.column + c - block.outer_column;
    const bool last = one_pass_ || block.begin + block.depth == p_.k;
    const bool quick = is_quick(result);
    panels.before = pending_.sums == nullptr ? nullptr : &pending_;
    multiply_panels(panels);
    pending_.sums = nullptr;
    if (!last) return;
    if (quick) {
      pending_ = {result, panels.sums, panels.stride, rows, columns};
    } else {
      finish_sums(result, panels.sums, panels.stride, rows, columns);
    }
  }

  void finish_pending() {
    if (pending_.sums != nullptr) store_as_bf16(pending_, 0, pending_.rows);
    pending_.sums = nullptr;
  }

  const Product& p_;
  const std::int64_t depth_;
  const bool one_pass_;  // each block of depth is finished at once
  const bool a_in_place_;
  const std::int64_t b_columns_;
  const std::int64_t outer_columns_;
  std::int64_t partial_stride_;
  BFloat16* a_;
  BFloat16* b_;
  float* partial_;  // a tile, or the sums of all rows and columns between passes
  // A tile whose sums are finished while the next is multiplied.
  StagedTile pending_{};
};

class AmxGemm : public GemmImplementation {
 public:
  std::string_view name() const override { return "amx"; }
  bool can(const Product& product) const override { return product.a.dtype == core::DType::bf16; }
  void run(const Product& product, ThreadPool& pool, int thread) override {
    const TileShapes shapes;
    AmxProduct(product, pool, thread).run();
  }
};

}  // namespace

std::unique_ptr<GemmImplementation> make_amx_gemm() {
  if (!amx_usable()) return nullptr;
  return std::make_unique<AmxGemm>();
}

}  // namespace lockstep::kernels
