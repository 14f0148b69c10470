#include "bench/kernels_bench/flags.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/kernels_bench/benchmarks.h"
#include "bench/kernels_bench/roofline.h"
#include "bench/kernels_bench/timed_device.h"
#include "bench/program/program.h"
#include "core/device.h"
#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/registry.h"

namespace lockstep::kernel_bench {
namespace {

BenchFlags parse(std::vector<const char*> words) {
  words.insert(words.begin(), "/somewhere/kernels_bench");
  return parse_bench_flags(static_cast<int>(words.size()), words.data());
}

TEST(KernelBenchFlags, OursAreReadAndGoogleBenchmarksAreLeft) {
  const BenchFlags flags =
      parse({"--threads", "1", "--benchmark_filter=gelu", "--cache", "cold", "--check", "0", "--gemm", "packed"});
  EXPECT_EQ(flags.threads, std::vector<int>{1});
  EXPECT_EQ(flags.caches, std::vector<Cache>{Cache::cold});
  EXPECT_FALSE(flags.check);
  EXPECT_EQ(flags.gemm, "packed");
  EXPECT_EQ(flags.for_benchmark, (std::vector<std::string>{"kernels_bench", "--benchmark_filter=gelu"}));
  EXPECT_EQ(flags.command.front(), "kernels_bench");
}

TEST(KernelBenchFlags, TheFileOfGoogleBenchmarksResultsIsOurs) {
  const BenchFlags flags = parse({"--benchmark_out=k.json", "--benchmark_out_format=json", "--benchmark_filter=gelu"});
  EXPECT_EQ(flags.benchmark_out, "k.json");
  EXPECT_EQ(flags.for_benchmark, (std::vector<std::string>{"kernels_bench", "--benchmark_filter=gelu"}));
  EXPECT_THROW(parse({"--benchmark_out="}), core::Error);
  EXPECT_THROW(parse({"--benchmark_out_format=csv"}), core::Error);
}

TEST(KernelBenchFlags, DefaultsAreBothCachesAndAChecked) {
  const BenchFlags flags = parse({});
  EXPECT_EQ(flags.caches, (std::vector<Cache>{Cache::warm, Cache::cold}));
  EXPECT_EQ(flags.threads.front(), 1);
  EXPECT_TRUE(flags.check);
  EXPECT_TRUE(flags.ceilings);
}

TEST(KernelBenchFlags, WhatIsNotUnderstoodStopsTheProgram) {
  EXPECT_THROW(parse({"--threads", "0"}), core::Error);
  EXPECT_THROW(parse({"--cache", "hot"}), core::Error);
  EXPECT_THROW(parse({"--device", "tpu"}), core::Error);
  EXPECT_THROW(parse({"--gemm", "cublas"}), core::Error);
  EXPECT_THROW(parse({"--device", "cuda", "--attention", "flash"}), core::Error);
  EXPECT_THROW(parse({"--attention", "wgmma"}), core::Error);
  EXPECT_EQ(parse({"--device", "cuda", "--attention", "wgmma"}).choices.attention, "wgmma");
  EXPECT_EQ(parse({"--device", "cuda", "--experts", "wgmma"}).choices.experts, "wgmma");
  EXPECT_THROW(parse({"--experts", "wgmma"}), core::Error);
  EXPECT_THROW(parse({"--device", "cuda", "--experts", "mma"}), core::Error);
  EXPECT_EQ(kernels::attention_refusal("wgmma", 80),
            "attention wgmma: the device has compute capability 8.0; allowed: 9.0, or mma");
  EXPECT_EQ(kernels::wgmma_refusal("experts", 100, "cublaslt"),
            "experts wgmma: the device has compute capability 10.0; allowed: 9.0, or cublaslt");
  for (const int capability : {80, 90, 100}) EXPECT_FALSE(kernels::attention_refusal("mma", capability));
  EXPECT_FALSE(kernels::attention_refusal("wgmma", 90));
  EXPECT_TRUE(kernels::attention_refusal("wgmma", 100));
  for (const char* const choice : {"", "auto", "wgmma"}) {
    EXPECT_EQ(kernels::attention_kernels(choice, 90, core::DType::bf16, 64), "wgmma") << choice;
    EXPECT_EQ(kernels::attention_kernels(choice, 90, core::DType::f16, 96), "mma") << choice;
  }
  EXPECT_EQ(kernels::attention_kernels("mma", 90, core::DType::bf16, 64), "mma");
  EXPECT_EQ(kernels::attention_kernels("auto", 80, core::DType::bf16, 64), "mma");
  EXPECT_EQ(kernels::attention_kernels("auto", 90, core::DType::f32, 64), "multiply-add");
  EXPECT_EQ(kernels::attention_kernels("auto", 90, core::DType::bf16, 256), "multiply-add");
  EXPECT_TRUE(kernels::wgmma_takes(core::DType::bf16, 128) && kernels::wgmma_takes(core::DType::f16, 64));
  EXPECT_FALSE(kernels::wgmma_takes(core::DType::f32, 64) || kernels::wgmma_takes(core::DType::bf16, 96));
  EXPECT_THROW(parse({"--benchmarkfilter=x"}), core::Error);
  EXPECT_THROW(parse({"gelu"}), core::Error);
}

TEST(KernelBenchFlags, HelpListsOurFlags) {
  try {
    parse({"--help"});
    ADD_FAILURE() << "no help";
  } catch (const program::HelpRequested& help) {
    EXPECT_NE(help.text.find("--cache"), std::string::npos);
  }
}

// Two cases of each of two kernels, each with 1 and 2 threads, warm and cold.
TEST(TimeBudget, OneOfEachKernelComesFirstInTheMainWay) {
  Bench bench{parse({"--threads", "1"}), {}, {}};
  bench.flags.threads = {1, 2};
  for (const char* kernel : {"gemm_fwd", "adamw"}) {
    for (const char* shape : {"first", "second"}) {
      bench.cases.emplace_back();
      bench.cases.back().kernel = kernel;
      bench.cases.back().shape = shape;
    }
  }
  make_instances(bench);
  std::vector<Instance*> order;
  for (Instance& instance : bench.instances) order.push_back(&instance);
  ASSERT_EQ(order.size(), 16U);
  EXPECT_EQ(every_kernel_first(order), 2U);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i]->one->kernel, i % 2 == 0 ? "gemm_fwd" : "adamw");
    EXPECT_EQ(order[i]->one->shape, i < 8 ? "first" : "second");
    EXPECT_EQ(order[i]->setting.threads, i % 8 < 4 ? 2 : 1);
    EXPECT_EQ(order[i]->setting.cache, i % 4 < 2 ? Cache::cold : Cache::warm);
  }
}

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

// Where bf16 is computed by slower products than f32 has, no share refers to the peak of f32.
TEST(Roofline, APeakOfTheOwnDtypeCountsThoughThatOfF32IsHigher) {
  Ceilings all = kCeilings;
  all.push_back(ceiling(CeilingKind::gemm, {}, DType::f16, 20));
  const Work work{1e9, 1e6, 1e6, 0.5, DType::f16};
  EXPECT_DOUBLE_EQ(bound_of(work, {"cpu", 1, Cache::cold}, all, kCaches)->us, 5e4);
  all.push_back(ceiling(CeilingKind::fma, {}, DType::f16, 40));
  EXPECT_DOUBLE_EQ(bound_of(work, {"cpu", 1, Cache::cold}, all, kCaches)->us, 2.5e4) << "the higher of two of its own";
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
  kernels::KernelCase kernel_case;
  kernel_case.dtype = DType::f32;
  kernel_case.cost.bytes = declared_bytes;
  kernel_case.operands = {{"ids", kernels::Access::read, DType::i32, 10, {}, 1},
                          {"table", kernels::Access::read, DType::f32, 1'000'000, {}, 1},
                          {"y", kernels::Access::write, DType::f32, 100, {}, 1}};
  return kernel_case;
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
  kernels::KernelCase kernel_case = reading(40 + 2 * 300 + 300);
  kernel_case.operands[1].access = kernels::Access::update;
  kernel_case.operands[2].access = kernels::Access::read;
  kernel_case.operands[2].elems = 75;
  const Work work = work_of(kernel_case);
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

struct Fixture {
  std::unique_ptr<core::Device> device = core::make_cpu_device();
  Arena arena{*device};
  kernels::KernelCase one = kernels::activation_test_cases().front();  // one element
  kernels::ReferenceData<double> inputs = kernels::draw_inputs(one, 1);
  Patterns patterns = exact_patterns(one, 1);
};

TEST(OperandSets, WarmOperandsAreAlwaysTheSame) {
  Fixture f;
  OperandSets sets(f.arena, f.one, f.patterns, 0);
  EXPECT_EQ(sets.number(), 1u);
  void* const first = sets.next()[0];
  EXPECT_EQ(sets.next()[0], first);
}

TEST(OperandSets, ColdOperandsComeBackOnlyAfterAllOthers) {
  Fixture f;
  for (double least_bytes : {1e3, 1e4, 1e5, 123456.0}) {
    OperandSets sets(f.arena, f.one, f.patterns, least_bytes);
    std::set<void*> seen;
    for (std::size_t i = 0; i < sets.number(); ++i) seen.insert(sets.next()[0]);
    EXPECT_EQ(seen.size(), sets.number()) << least_bytes;
    const std::ptrdiff_t reach = static_cast<std::byte*>(*seen.rbegin()) - static_cast<std::byte*>(*seen.begin());
    EXPECT_GE(static_cast<double>(reach), least_bytes - 2000);
  }
}

TEST(OperandSets, EverySetHoldsTheInputsApartFromEachOther) {
  Fixture f;
  OperandSets sets(f.arena, f.one, f.patterns, 1e4);
  for (std::size_t i = 0; i < sets.number(); ++i) {
    const auto pointers = sets.next();
    EXPECT_EQ(kernels::load(f.one.operands[0].dtype, pointers[0], 1), f.inputs.arrays()[0].second);
    EXPECT_NE(pointers[0], pointers[1]);
  }
}

TEST(OperandSets, ATableIsThereOnceAndEachSetNamesOtherRows) {
  Fixture f;
  const std::int64_t rows = 1000;
  const kernels::KernelCase kernel_case =
      kernels::make_case(kernels::EmbeddingForward{.tokens = 4, .rows = rows, .columns = 64},
                         {.shape = "V1000", .draws = {{"ids", {.kind = kernels::Draw::Kind::index, .below = rows}}}});
  OperandSets sets(f.arena, kernel_case, exact_patterns(kernel_case, 1), 1e5);
  EXPECT_GT(sets.number(), 20u) << "as many as touch 1e5 bytes";
  std::set<void*> tables;
  std::set<void*> outputs;
  std::set<double> first_ids;
  for (std::size_t i = 0; i < sets.number(); ++i) {
    const auto pointers = sets.next();
    tables.insert(pointers[1]);
    outputs.insert(pointers[2]);
    for (double id : kernels::load(core::DType::i32, pointers[0], 4)) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, rows);
    }
    first_ids.insert(kernels::load(core::DType::i32, pointers[0], 1)[0]);
  }
  EXPECT_EQ(tables.size(), 1u);
  EXPECT_EQ(outputs.size(), sets.number());
  EXPECT_EQ(first_ids.size(), sets.number());
}

TEST(OperandSets, LongOperandsRepeatAPatternOfTheSameKind) {
  Fixture f;
  for (kernels::KernelCase& bench_case : kernels::activation_bench_cases()) {
    const Patterns patterns = short_patterns(bench_case, 1);
    OperandSets sets(f.arena, bench_case, patterns, 0);
    const kernels::CaseOperand& x = bench_case.operands[0];
    const std::vector<double> values = kernels::load(x.dtype, sets.next()[0], x.elems);
    EXPECT_LT(patterns[0].size(), x.bytes());
    EXPECT_EQ(values[5], values[5 + (1 << 18)]);
    EXPECT_NE(values[5], values[6]);
    EXPECT_NE(values.back(), 0) << "filled to the end";
  }
}

}  // namespace
}  // namespace lockstep::kernel_bench
