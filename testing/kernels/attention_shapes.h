// Shapes on which attention is tested, on every device.
#pragma once

#include <array>

#include "kernels/attention/attention.h"

namespace lockstep::kernels {

// Each: batch, heads, queries, keys, head_columns, causal, scale, qkv_stride, kv_heads
// Causal and not, strided and packed, with as many queries as keys and fewer.
inline constexpr std::array kAttentionTestShapes{
    AttentionShape{1, 1, 1, 1, 1},
    AttentionShape{2, 3, 17, 17, 8},
    AttentionShape{1, 2, 64, 64, 64},
    AttentionShape{1, 1, 127, 127, 31},
    AttentionShape{2, 1, 65, 130, 20},
    AttentionShape{1, 2, 3, 77, 40},
    AttentionShape{1, 1, 1, 129, 16},
    AttentionShape{2, 2, 33, 33, 24, true, 0.3F, 144},
    AttentionShape{1, 3, 70, 70, 5, true, 0, 17},
    AttentionShape{1, 1, 130, 67, 33, false},
    AttentionShape{1, 2, 66, 150, 16, false, 1, 40},
    AttentionShape{1, 1, 140, 140, 72},
    AttentionShape{2, 4, 70, 70, 24, true, 0, 192, 2},
    AttentionShape{1, 3, 5, 140, 40, true, 0, 0, 1},
    AttentionShape{1, 6, 67, 66, 9, false, 0, 0, 3},
};

// Shapes that wgmma takes: tails of tiles, several tiles, strides, groups.
inline constexpr std::array kAttentionWgmmaShapes{
    AttentionShape{1, 1, 1, 3, 64},
    AttentionShape{1, 2, 130, 130, 64},
    AttentionShape{1, 1, 257, 300, 128},
    AttentionShape{2, 1, 100, 385, 64, false},
    AttentionShape{1, 4, 70, 140, 128, true, 0, 0, 2},
    AttentionShape{2, 2, 140, 140, 64, true, 0.3F, 384},
};

}  // namespace lockstep::kernels
