#include "bench/kernels/flags.h"

#include <gtest/gtest.h>

#include "bench/program/command_line.h"
#include "core/error.h"
#include "kernels/attention/attention_choice.h"

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
  EXPECT_EQ(parse({"--device", "cuda", "--attention", "wgmma"}).attention, "wgmma");
  EXPECT_EQ(kernels::attention_refusal("wgmma", 80),
            "attention wgmma: the device has compute capability 8.0; allowed: 9.0, or mma");
  for (const int capability : {80, 90, 100}) EXPECT_FALSE(kernels::attention_refusal("mma", capability));
  EXPECT_FALSE(kernels::attention_refusal("wgmma", 90));
  EXPECT_TRUE(kernels::attention_refusal("wgmma", 100));
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

}  // namespace
}  // namespace lockstep::kernel_bench
