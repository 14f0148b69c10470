#include "simulator/prices/product_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::simulator {
namespace {

struct Tile {
  double m;
  double n;
  // Multiply-adds of a step along k, plus the cost of its loads.
  double work() const { return m * n + kLoad * (m + n); }

  static constexpr double kLoad = 19.2;
};

// Tile sizes of cuBLAS (the guide, section 2.3), the largest first.
constexpr std::array kTiles{Tile{256, 128}, Tile{128, 256}, Tile{128, 128}, Tile{256, 64},
                            Tile{64, 256},  Tile{128, 64},  Tile{64, 128},  Tile{64, 64}};
constexpr std::array kSplits{1.0, 2.0, 4.0, 8.0};
constexpr double kShortestSplit = 512;  // fewest steps along k per part

// Between the chosen numbers a fit to published products on H100 and one on A100 differ little (docs/validation.md).
constexpr double kTileUs = 1.0;   // loads before the first multiply-add, and the tile's store to memory
constexpr double kSplitUs = 1.5;  // summing the parts

}  // namespace

double product_us(const DeviceSpec& device, const workload::Product& product, double tflops) {
  const double multiprocessors = device.multiprocessors;
  const Tile& largest = kTiles.front();
  const double share_of_loads = largest.m * largest.n / largest.work();
  const double works_a_us = tflops * 1e6 / 2 / multiprocessors / share_of_loads;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(product.m / tile.m) * std::ceil(product.n / tile.n);
    for (const double split : kSplits) {
      if (split > 1 && product.k / split < kShortestSplit) continue;
      const double waves = std::ceil(tiles * split / multiprocessors);
      const double tile_us = kTileUs + tile.work() * product.k / split / works_a_us;
      fastest = std::min(fastest, waves * tile_us + (split > 1 ? kSplitUs : 0));
    }
  }
  return fastest;
}

}  // namespace lockstep::simulator
