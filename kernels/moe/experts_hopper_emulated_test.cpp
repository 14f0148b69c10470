// Runs the unchanged Hopper kernel of experts' products on a model of a Hopper block (emulated_hopper.h), and tests how
// it divides groups into tiles. cuda_kernels_gpu_test runs it on a device.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <typeinfo>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "kernels/moe/experts_hopper.cuh"
#include "kernels/registry.h"
#include "testing/emulated_cuda/emulated_hopper.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using Rows = std::vector<std::int64_t>;

std::vector<std::int32_t> first_rows_of(const Rows& rows) {
  std::vector<std::int32_t> first{0};
  for (const std::int64_t count : rows) first.push_back(first.back() + static_cast<std::int32_t>(count));
  return first;
}

// ---- tiles

using TileStart = std::array<int, 3>;  // group, row, column

// Compares the tiles of all blocks of a grid with those that the groups' elements of c need.
template <class Tiles>
void expect_each_tile_once(const Rows& rows, int rows_of_c, int columns, int blocks) {
  constexpr int kDepth = 100;
  const std::vector<std::int32_t> first_rows = first_rows_of(rows);
  const GroupedSizes sizes{static_cast<int>(rows.size()), rows_of_c, columns, kDepth};
  std::vector<int> first_tiles{0};
  std::map<TileStart, TileRange> wanted;
  for (int g = 0; g < sizes.groups; ++g) {
    const int begin = first_rows.at(static_cast<std::size_t>(g));
    const int past = first_rows.at(static_cast<std::size_t>(g) + 1);
    first_tiles.push_back(first_tiles.back() + tiles_of_group<Tiles>(sizes, past - begin));
    if (begin == past) continue;
    const int past_row = Tiles::kRowsAreDepth ? rows_of_c : past;
    for (int row = Tiles::kRowsAreDepth ? 0 : begin; row < past_row; row += Tiles::kRows) {
      for (int column = 0; column < columns; column += Tiles::kColumns) {
        wanted[{g, row, column}] = Tiles::kRowsAreDepth ? TileRange{g, row, past_row, column, begin, past}
                                                        : TileRange{g, row, past_row, column, 0, kDepth};
      }
    }
  }
  const auto first_tile = [&](int g) { return first_tiles.at(static_cast<std::size_t>(g)); };
  const auto first_row = [&](int g) { return first_rows.at(static_cast<std::size_t>(g)); };
  for (int block = 0; block < blocks; ++block) {
    for (int tile = block; tile < first_tiles.back(); tile += blocks) {
      const TileRange range = range_of_tile<Tiles>(tile, sizes, first_tile, first_row);
      const auto found = wanted.find({range.group, range.row, range.column});
      ASSERT_NE(found, wanted.end()) << "tile " << tile << " is computed twice, or nobody needs it";
      ASSERT_EQ((std::array{range.past_row, range.depth, range.past_depth}),
                (std::array{found->second.past_row, found->second.depth, found->second.past_depth}));
      wanted.erase(found);
    }
  }
  ASSERT_TRUE(wanted.empty()) << "nobody computes row " << wanted.begin()->first[1];
}

TEST(ExpertsHopper, EachTileIsComputedOnce) {
  constexpr std::array<std::int64_t, 7> kRows{0, 1, 127, 128, 129, 256, 300};
  using Forward = ExpertTiles<core::BFloat16, Direction::forward, 128>;
  using Weights = ExpertTiles<core::BFloat16, Direction::weight_gradient, 256>;
  for (const std::int64_t a : kRows) {
    for (const std::int64_t b : kRows) {
      for (const std::int64_t c : kRows) {
        for (const std::int64_t d : kRows) {
          const int blocks = static_cast<int>((a + 2 * b + 3 * c + d) % 5) + 1;
          expect_each_tile_once<Forward>({a, b, c, d}, 0, 264, blocks);
          expect_each_tile_once<Weights>({a, b, c, d}, 136, 264, blocks);
        }
      }
    }
  }
  Rows many(kMostGroups, 0);
  expect_each_tile_once<Forward>(many, 0, 8, 3);
  for (std::size_t g = 0; g < many.size(); ++g) many[g] = static_cast<std::int64_t>(g * 37 % 200);
  expect_each_tile_once<Forward>(many, 0, 8, 132);
  expect_each_tile_once<Weights>(many, 8, 8, 132);
}

TEST(ExpertsHopper, NoRowsHaveMoreTilesThanTheGridIsMadeFor) {
  using Tiles = ExpertTiles<core::BFloat16, Direction::forward, 256>;
  for (const Rows& rows : {Rows{0, 0, 1}, Rows{129, 1, 1, 1}, Rows{128, 256, 0}, Rows{127, 127, 127}}) {
    int tiles = 0;
    for (const std::int64_t count : rows) {
      tiles += tiles_of_group<Tiles>({static_cast<int>(rows.size()), 0, 264, 8}, static_cast<int>(count));
    }
    EXPECT_LE(tiles, most_tiles<Tiles>({rows, 8, 264}, {0, static_cast<int>(rows.size())}));
  }
}

// ---- results

// Corresponds to the launches of experts_hopper.cu, with fewer groups per launch.
template <class Lane, class Tiles, class Args>
void run_tiles(const Args& args, std::uint64_t seed) {
  constexpr std::size_t kGroupsOfALaunch = 3;
  constexpr int kBlocks = 3;
  const std::vector<std::int32_t> first_rows = first_rows_of(args.shape.rows);
  for (std::size_t first = 0; first < args.shape.groups(); first += kGroupsOfALaunch) {
    const GroupRange range{first, static_cast<int>(std::min(kGroupsOfALaunch, args.shape.groups() - first))};
    const auto operands = operands_of_groups<Tiles, HeadTensor>(args, range, first_rows.data(),
                                                                [](const HeadTensor& tensor) { return tensor; });
    EmulatedHopperBlock::run_grid<Lane>(
        kBlocks, 1, {.threads = kHopperThreads, .shared_bytes = GroupedShared<Tiles>::kBytes, .seed = seed + first},
        [&](Lane& lane, std::int64_t block) {
          grouped_block<Tiles>(lane, operands, static_cast<int>(block), kBlocks);
        });
  }
}

constexpr Direction direction_of(const GroupedGemmForward& /*args*/) {
  return Direction::forward;
}
constexpr Direction direction_of(const GroupedGemmInputGradient& /*args*/) {
  return Direction::input_gradient;
}
constexpr Direction direction_of(const GroupedGemmWeightGradient& /*args*/) {
  return Direction::weight_gradient;
}

// Returns what is wrong with the result, or what the model refused. Each run has another order of threads, copies and
// products.
template <class Lane, class T, int kColumns, class Args>
std::string errors_of(const Args& shape, std::uint64_t first_seed = 0) {
  const core::DType dtype = std::is_same_v<T, core::Float16> ? core::DType::f16 : core::DType::bf16;
  const Args args = shaped(shape, dtype);
  KernelCase kernel_case = case_of(args, "emulated");
  kernel_case.deterministic = true;
  kernel_case.run = [args, seed = first_seed](std::span<void* const> memory, const Context& /*where*/) mutable {
    const Args bound = with_memory(args, memory);
    run_tiles<Lane, ExpertTiles<T, direction_of(Args{}), kColumns>>(bound, seed += 100);
  };
  const auto device = core::make_cpu_device();
  ThreadPool pool(1);
  const Context context(pool);
  const CaseRunner runner{*device, context};
  try {
    const std::string errors = result_errors(kernel_case, 1, runner);
    return errors.empty() ? determinism_errors(kernel_case, 3, {runner}) : errors;
  } catch (const core::Error& error) {
    return error.what();
  }
}

// Groups that are empty (even all groups of a launch), end within a tile, fill one, or need several; inputs and outputs
// that end within a tile and within a panel, on either side.
const GroupedShape kRagged{{0, 130, 0, 0, 0, 0, 70, 1}, 72, 136};
const GroupedShape kWide{{64, 129}, 136, 264};

template <class T, int kColumns>
void expect_right(const GroupedShape& shape) {
  const auto errors = [](const auto& args) { return errors_of<EmulatedHopperLane, T, kColumns>(args); };
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
    EXPECT_EQ(errors(GroupedGemmForward{.shape = shape, .epilogue = epilogue}), "");
  }
  for (const bool through_gelu : {false, true}) {
    EXPECT_EQ(errors(GroupedGemmInputGradient{.shape = shape, .through_gelu = through_gelu}), "");
  }
  EXPECT_EQ(errors(GroupedGemmWeightGradient{.shape = shape}), "");
}

TEST(ExpertsHopper, Bf16InNarrowTiles) {
  expect_right<core::BFloat16, 128>(kRagged);
}
TEST(ExpertsHopper, Bf16InWideTiles) {
  expect_right<core::BFloat16, 256>(kWide);
}
TEST(ExpertsHopper, F16) {
  expect_right<core::Float16, 128>(kWide);
}

// Rows of the next group lie in the same tiles, but must not reach this one's results, not even by 0 times NaN.
TEST(ExpertsHopper, WhatIsWrongInAGroupStaysThere) {
  constexpr std::int64_t kColumns = 64;
  constexpr auto kElems = static_cast<std::size_t>(kColumns * kColumns);
  const GroupedShape shape{{70, 50}, kColumns, kColumns};
  std::vector<core::BFloat16> x(120 * kColumns, core::to_bfloat16(1));
  std::fill(x.begin() + 70 * kColumns, x.end(), core::to_bfloat16(std::numeric_limits<float>::quiet_NaN()));
  const std::vector<core::BFloat16> w(kElems, core::to_bfloat16(1));
  std::vector<core::BFloat16> y(x.size());
  std::array<std::vector<float>, 2> dw{std::vector<float>(kElems, 0.5F), std::vector<float>(kElems, 0.5F)};
  const auto elems = static_cast<std::int64_t>(x.size());
  const In rows{x.data(), core::DType::bf16, elems};
  const In weights{w.data(), core::DType::bf16, kColumns * kColumns};
  run_tiles<EmulatedHopperLane, ExpertTiles<core::BFloat16, Direction::forward, 128>>(
      GroupedGemmForward{.shape = shape, .x = rows, .w = {weights, weights}, .y = {y.data(), core::DType::bf16, elems}},
      1);
  run_tiles<EmulatedHopperLane, ExpertTiles<core::BFloat16, Direction::weight_gradient, 128>>(
      GroupedGemmWeightGradient{.shape = shape,
                                .x = rows,
                                .dy = rows,
                                .dw = {{dw[0].data(), core::DType::f32, kColumns * kColumns},
                                       {dw[1].data(), core::DType::f32, kColumns * kColumns}}},
      1);
  for (std::size_t i = 0; i < 70 * kColumns; ++i) ASSERT_EQ(core::to_float(y[i]), kColumns) << i;
  for (std::size_t i = 0; i < kElems; ++i) ASSERT_EQ(dw[0][i], 70.5F) << i;
  EXPECT_TRUE(std::isnan(core::to_float(y[70 * kColumns])) && std::isnan(dw[1][0]));
}

// ---- mistakes

struct NothingIsCleared : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  static void clear_sixteen(std::uint32_t /*to*/) {}
};
// The depth of the second factor lies in the other direction.
struct FactorsAreNotTransposed : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  template <class T, bool kTransposedA, bool kTransposedB, int kBlocks>
  void multiply(float (&d)[kBlocks][4], std::uint64_t a, std::uint64_t b, int add) {
    EmulatedHopperLane::multiply<T, kTransposedA, !kTransposedB>(d, a, b, add);
  }
};
struct WordsAreNotTransposed : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  static std::uint32_t from_partner(std::uint32_t word, int /*mask*/) { return word; }
};

// Shapes whose ring is filled more than twice, with rows that end within a tile.
const GroupedGemmForward kLong{.shape = {{70, 130}, 456, 72}};
const GroupedGemmWeightGradient kLongGradient{.shape = {{456, 430}, 72, 136}};

// The mistake must be detected in at least one of four orders.
template <class Lane, class Args>
void expect_seen(const Args& args, const std::string& what = "") {
  std::string errors;
  for (std::uint64_t seed = 0; seed < 4 && errors.empty(); ++seed) {
    errors = errors_of<Lane, core::BFloat16, 128>(args, seed);
  }
  EXPECT_NE(errors, "") << "not seen: " << typeid(Lane).name();
  EXPECT_NE(errors.find(what), std::string::npos) << errors.substr(0, 200) << "\ninstead of: " << what;
}

TEST(ExpertsHopper, FaultsAreSeen) {
  expect_seen<ConsumersDoNotWait>(kLong);
  expect_seen<ProducerDoesNotWait>(kLong);
  expect_seen<ConsumersTakeTheWrongPhase>(kLong);
  expect_seen<ProducerTakesTheWrongPhase>(kLong, "never comes");
  expect_seen<ExpectsHalfOfTheBytes>(kLong, "more bytes at a barrier than are expected");
  expect_seen<OneWarpReleasesNothing>(kLong, "never comes");
  expect_seen<OneWarpReleasesTwice>(kLong);
  expect_seen<DoesNotWaitForProducts>(kLong);
  expect_seen<WaitsForOneGroupLess>(kLong);
  expect_seen<ProductsAreNotBegun>(kLong, "without begin_products()");
  expect_seen<NobodyGivesRegisters>(kLong, "never comes");
  expect_seen<WrongStride>(kLong);
  expect_seen<FactorsAreNotTransposed>(kLong);
  expect_seen<WordsAreNotTransposed>(kLong, "y[");
}

TEST(ExpertsHopper, FaultsOfTheWeightGradientAreSeen) {
  expect_seen<NothingIsCleared>(kLongGradient, "dw0[");
  expect_seen<StoresAreNotPublished>(kLongGradient, "stores that are not published");
  expect_seen<ConsumersDoNotMeet>(kLongGradient);
  expect_seen<ConsumersDoNotWait>(kLongGradient);
  expect_seen<WrongStride>(kLongGradient);
  expect_seen<FactorsAreNotTransposed>(kLongGradient);
}

}  // namespace
}  // namespace lockstep::kernels
