#include "bench/kernels/roofline.h"

#include <gtest/gtest.h>

namespace lockstep::kernel_bench {
namespace {

using core::DType;

const core::Caches kCaches{32 << 10, 1 << 20, 32 << 20};

Ceiling ceiling(CeilingKind kind, std::optional<Level> level, std::optional<DType> dtype, double value) {
  return {kind, "cpu", 1, level, dtype, {value}};
}

const Ceilings kCeilings{
    ceiling(CeilingKind::copy, Level::l1, {}, 100),    ceiling(CeilingKind::copy, Level::memory, {}, 10),
    ceiling(CeilingKind::read, Level::memory, {}, 20), ceiling(CeilingKind::triad, Level::memory, {}, 15),
    ceiling(CeilingKind::fma, {}, DType::f32, 50),     ceiling(CeilingKind::fma, {}, DType::bf16, 1000),
    ceiling(CeilingKind::launch, {}, {}, 0.5),
};

std::optional<Bound> bound(const Work& work, Cache cache) {
  return bound_of(work, {"cpu", 1, cache}, kCeilings, kCaches);
}

TEST(Roofline, ColdKernelsAreBoundByMemory) {
  const auto found = bound({1e3, 1e6, 1e6, 0.5, DType::f32}, Cache::cold);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "memory");
  EXPECT_DOUBLE_EQ(found->us, 100);  // 1 MB at 10 GB/s
}

TEST(Roofline, TheStreamWithTheNearestMixCounts) {
  EXPECT_DOUBLE_EQ(bound({0, 1e6, 1e6, 0.0, DType::f32}, Cache::cold)->us, 50);
  EXPECT_DOUBLE_EQ(bound({0, 1e6, 1e6, 0.3, DType::f32}, Cache::cold)->us, 1e3 / 15);
  EXPECT_DOUBLE_EQ(bound({0, 1e6, 1e6, 1.0, DType::f32}, Cache::cold)->us, 100);
}

// A GPU's kernels are held against its memory, warm or cold, by the stream that is like them.
TEST(Roofline, OnAGpuTheStreamWithTheNearestMixCounts) {
  const auto on_gpu = [](CeilingKind kind, double value) {
    return Ceiling{kind, "cuda", 1, Level::memory, std::nullopt, {value}};
  };
  const Ceilings all{on_gpu(CeilingKind::copy, 10), on_gpu(CeilingKind::read, 20), on_gpu(CeilingKind::triad, 15)};
  const auto us_of = [&](double written_share, const Ceilings& ceilings) {
    return bound_of({0, 1e6, 1e6, written_share, DType::f32}, {"cuda", 1, Cache::warm}, ceilings, kCaches)->us;
  };
  EXPECT_DOUBLE_EQ(us_of(0.01, all), 50);
  EXPECT_DOUBLE_EQ(us_of(0.3, all), 1e3 / 15);
  EXPECT_DOUBLE_EQ(us_of(0.5, all), 100);
  EXPECT_DOUBLE_EQ(us_of(0.01, {all.front()}), 100) << "records of before have a copy alone";
}

TEST(Roofline, AWarmKernelIsHeldAgainstTheCacheThatHoldsIt) {
  const auto found = bound({0, 1e5, 3e4, 0.5, DType::f32}, Cache::warm);
  EXPECT_EQ(found->name, "memory");
  EXPECT_DOUBLE_EQ(found->us, 1);  // 100 kB at 100 GB/s
}

TEST(Roofline, MuchArithmeticIsBoundByThePeakOfItsDtype) {
  EXPECT_EQ(bound({1e9, 1e6, 1e6, 0.5, DType::f32}, Cache::cold)->name, "compute");
  EXPECT_DOUBLE_EQ(bound({1e9, 1e6, 1e6, 0.5, DType::f32}, Cache::cold)->us, 2e4);
  EXPECT_DOUBLE_EQ(bound({1e9, 1e6, 1e6, 0.5, DType::bf16}, Cache::cold)->us, 1e3);
  EXPECT_DOUBLE_EQ(bound({1e9, 1e6, 1e6, 0.5, DType::f16}, Cache::cold)->us, 2e4) << "f32 in its place";
}

TEST(Roofline, TinyKernelsAreBoundByTheLaunch) {
  const auto found = bound({8, 64, 64, 0.5, DType::f32}, Cache::cold);
  EXPECT_EQ(found->name, "launch");
  EXPECT_DOUBLE_EQ(found->us, 0.5);
}

TEST(Roofline, WithoutCeilingsThereIsNoBound) {
  EXPECT_FALSE(bound_of({1, 1, 1, 0.5, DType::f32}, {"cpu", 1, Cache::cold}, {}, kCaches));
  EXPECT_FALSE(bound_of({1, 1, 1, 0.5, DType::f32}, {"cpu", 2, Cache::cold}, kCeilings, kCaches)) << "other threads";
}

kernels::KernelCase reading(double declared_bytes) {
  kernels::KernelCase one;
  one.dtype = DType::f32;
  one.cost.bytes = declared_bytes;
  one.operands = {{"ids", kernels::Access::read, DType::i32, 10, {}, 1},
                  {"table", kernels::Access::read, DType::f32, 1'000'000, {}, 1},
                  {"y", kernels::Access::write, DType::f32, 100, {}, 1}};
  return one;
}

TEST(Roofline, OfATableOnlyTheRowsThatAreNamedCount) {
  const Work work = work_of(reading(40 + 400 + 400));
  EXPECT_DOUBLE_EQ(work.footprint_bytes, 840);
  EXPECT_DOUBLE_EQ(work.written_share, 400.0 / 840);
}

TEST(Roofline, OperandsThatAreTouchedWhollyCountWholly) {
  const Work work = work_of(reading(40 + 4e6 + 400));
  EXPECT_DOUBLE_EQ(work.footprint_bytes, 40 + 4e6 + 400);
  EXPECT_DOUBLE_EQ(work.written_share, 400 / (40 + 4e6 + 400));
}

TEST(Roofline, AnUpdateIsTwoPassesOverOneFootprint) {
  kernels::KernelCase one = reading(40 + 2 * 300 + 300);
  one.operands[1].access = kernels::Access::update;
  one.operands[2].access = kernels::Access::read;
  one.operands[2].elems = 75;
  const Work work = work_of(one);
  EXPECT_DOUBLE_EQ(work.footprint_bytes, 40 + 300 + 300);
  EXPECT_DOUBLE_EQ(work.written_share, 300.0 / 940);
}

TEST(Roofline, LevelsGoByTheThreadsCachesAndHalfOfTheSharedOne) {
  EXPECT_EQ(level_of(32 << 10, 1, kCaches), Level::l1);
  EXPECT_EQ(level_of(33 << 10, 1, kCaches), Level::l2);
  EXPECT_EQ(level_of(33 << 10, 2, kCaches), Level::l1);
  EXPECT_EQ(level_of(16 << 20, 2, kCaches), Level::l3);
  EXPECT_EQ(level_of(17 << 20, 2, kCaches), Level::memory);
  for (Level level : {Level::l1, Level::l2, Level::l3, Level::memory}) {
    for (int threads : {1, 2}) EXPECT_EQ(level_of(footprint_of(level, threads, kCaches), threads, kCaches), level);
  }
}

TEST(Roofline, ColdIsPastTheSecondCacheOfAGpuAlsoWhereItIsNotTold) {
  EXPECT_DOUBLE_EQ(cold_bytes_of_gpu(std::size_t{50} << 20), 100 << 20);
  EXPECT_GT(cold_bytes_of_gpu(0), cold_bytes_of_gpu(std::size_t{120} << 20));
}

}  // namespace
}  // namespace lockstep::kernel_bench
