#include "bench/collective_perf/flags.h"

#include <cstdlib>
#include <sstream>

#include <gtest/gtest.h>

#include "core/error.h"
#include "testing/core/thrown.h"

namespace lockstep::sweep {
namespace {

using collectives::Kind;
using core::DType;
using core::ReduceOp;

SweepFlags parsed(const std::string& arguments, Kind kind) {
  std::vector<std::string> words{"/some/folder/all_reduce_perf"};
  std::istringstream stream(arguments);
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_sweep_flags(kind, static_cast<int>(argv.size()), argv.data());
}

SweepFlags flags_of(const std::string& arguments, Kind kind = Kind::all_reduce) {
  return parsed(arguments, kind);
}

// Returns the text of the usage error.
std::string refusal_of(const std::string& arguments, Kind kind = Kind::all_reduce) {
  return core::refusal_of([&] { parsed(arguments, kind); });
}

TEST(Flags, DefaultsAreNcclTests) {
  const SweepFlags flags = flags_of("");
  EXPECT_EQ(flags.sizes.min_bytes, 33554432);
  EXPECT_EQ(flags.sizes.max_bytes, 33554432);
  EXPECT_EQ(flags.sizes.step_bytes, 1048576);
  EXPECT_EQ(flags.sizes.step_factor, 1);
  EXPECT_EQ(flags.iterations, 20);
  EXPECT_EQ(flags.warmup_iterations, 1);
  EXPECT_EQ(flags.calls_per_iteration, 1);
  EXPECT_EQ(flags.run_cycles, 1);
  EXPECT_EQ(flags.time_of, TimeOf::mean);
  EXPECT_EQ(flags.ops, std::vector{ReduceOp::sum});
  EXPECT_EQ(flags.dtypes, std::vector{DType::f32});
  EXPECT_EQ(flags.roots, std::vector{0});
  EXPECT_TRUE(flags.check);
  EXPECT_FALSE(flags.per_iteration_timing);
  EXPECT_FALSE(flags.timestamps);
}

TEST(Flags, ProgramsNameTheirCollective) {
  for (const Kind kind : collectives::all_kinds()) EXPECT_EQ(kind_of_program(program_of_kind(kind)), kind);
  EXPECT_TRUE(core::has(core::refusal_of([] { kind_of_program("collective_perf"); }),
                        "called as \"collective_perf\", an unknown program name; allowed: all_re"));
}

TEST(Flags, OwnDefaults) {
  const SweepFlags flags = flags_of("");
  EXPECT_EQ(flags.ranks, std::vector{4});
  EXPECT_FALSE(flags.ranks_given);
  EXPECT_EQ(flags.algorithms, std::vector<std::string>{"auto"});
  EXPECT_EQ(flags.transports, std::vector<std::string>{"local"});
  EXPECT_EQ(flags.timeout_s, 60);
  EXPECT_EQ(flags.seed, 1u);
  EXPECT_EQ(flags.json_file, "");
  EXPECT_EQ(flags.link, "");
  EXPECT_EQ(flags.time_budget_s, 0);
  EXPECT_FALSE(flags.processes || flags.explain || flags.stats);
  EXPECT_EQ(flags.program, "all_reduce_perf");
  EXPECT_EQ(flags.command, std::vector<std::string>{"all_reduce_perf"});
}

TEST(Flags, ShortNames) {
  const SweepFlags flags = flags_of("-b 8 -e 64M -f 2 -n 5 -w 0 -m 3 -N 2 -a 3 -c 0 -I 1 -K 2 -S 1 -T 9 -u 1 -i 4K");
  EXPECT_EQ(flags.sizes.min_bytes, 8);
  EXPECT_EQ(flags.sizes.max_bytes, 64 << 20);
  EXPECT_EQ(flags.sizes.step_factor, 2);
  EXPECT_EQ(flags.sizes.step_bytes, 4096);
  EXPECT_EQ(flags.iterations, 5);
  EXPECT_EQ(flags.warmup_iterations, 0);
  EXPECT_EQ(flags.calls_per_iteration, 3);
  EXPECT_EQ(flags.run_cycles, 2);
  EXPECT_EQ(flags.time_of, TimeOf::max);
  EXPECT_FALSE(flags.check);
  EXPECT_TRUE(flags.per_iteration_timing);
  EXPECT_EQ(flags.per_iteration_skip, 2);
  EXPECT_TRUE(flags.timestamps);
  EXPECT_EQ(flags.timeout_s, 9);
  EXPECT_EQ(flags.unalign_elems, 1);
}

TEST(Flags, LongNamesAndGluedValues) {
  const SweepFlags flags = flags_of(
      "--minbytes=1K --maxbytes 1M --stepfactor 4 --iters=7 --warmup_iters 2 --agg_iters 2 --op max --datatype half "
      "--check 1 --per_iter_timing 0 --average 0 --timeout 30 -n8");
  EXPECT_EQ(flags.sizes.min_bytes, 1024);
  EXPECT_EQ(flags.iterations, 8);  // the last one wins
  EXPECT_EQ(flags.ops, std::vector{ReduceOp::max});
  EXPECT_EQ(flags.dtypes, std::vector{DType::f16});
  EXPECT_EQ(flags.time_of, TimeOf::rank0);
  EXPECT_EQ(flags.timeout_s, 30);
}

TEST(Flags, TimeoutZeroIsTheDefaultAsNothingWaitsForever) {
  EXPECT_EQ(flags_of("-T 0").timeout_s, 60);
}

TEST(Flags, SeveralValues) {
  const SweepFlags flags =
      flags_of("-d float,bf16 -o sum,max -r 0,1 --ranks 2,4,8 --algo ring:lanes=2,double_tree --transport local,mpi",
               Kind::reduce);
  EXPECT_EQ(flags.dtypes, (std::vector{DType::f32, DType::bf16}));
  EXPECT_EQ(flags.ops, (std::vector{ReduceOp::sum, ReduceOp::max}));
  EXPECT_EQ(flags.roots, (std::vector{0, 1}));
  EXPECT_EQ(flags.ranks, (std::vector{2, 4, 8}));
  EXPECT_EQ(flags.algorithms, (std::vector<std::string>{"ring:lanes=2", "double_tree"}));
  EXPECT_EQ(flags.transports, (std::vector<std::string>{"local", "mpi"}));
}

TEST(Flags, All) {
  const SweepFlags flags = flags_of("-d all -o all -r -1", Kind::reduce);
  EXPECT_EQ(flags.dtypes.size(), 12u);
  EXPECT_EQ(flags.ops.size(), 5u);
  EXPECT_EQ(roots_at(flags, 3), (std::vector{0, 1, 2}));
  EXPECT_EQ(roots_at(flags_of("-r all", Kind::broadcast), 2), (std::vector{0, 1}));
  EXPECT_EQ(roots_at(flags_of("--root=-1", Kind::broadcast), 2), (std::vector{0, 1}));
}

TEST(Flags, OperationsAndRootsOfCollectivesWithoutThemAreOneRow) {
  EXPECT_EQ(flags_of("-o all", Kind::broadcast).ops, std::vector{ReduceOp::sum});
  EXPECT_EQ(flags_of("-r -1", Kind::all_reduce).roots, std::vector{0});
}

TEST(Flags, RanksAreThreadsTimesGpus) {
  EXPECT_EQ(flags_of("-t 3").ranks, std::vector{3});
  EXPECT_EQ(flags_of("-g 8").ranks, std::vector{8});
  EXPECT_EQ(flags_of("-t 2 -g 4").ranks, std::vector{8});
  EXPECT_TRUE(flags_of("-t 1").ranks_given);
}

TEST(Flags, Own) {
  const SweepFlags flags = flags_of(
      "--processes --explain --stats --json out/r.jsonl --time-budget 2.5 --link latency_us=10,gbps=1 --seed 77");
  EXPECT_TRUE(flags.processes && flags.explain && flags.stats);
  EXPECT_EQ(flags.json_file, "out/r.jsonl");
  EXPECT_EQ(flags.time_budget_s, 2.5);
  EXPECT_EQ(flags.link, "latency_us=10,gbps=1");
  EXPECT_EQ(flags.seed, 77u);
  EXPECT_EQ(flags.command.size(), 12u);
}

TEST(Flags, HelpListsEveryFlag) {
  std::string text;
  try {
    parsed("--help", Kind::all_reduce);
  } catch (const program::HelpRequested& help) {
    text = help.text;
  }
  std::istringstream names(
      "--nthreads --ngpus --minbytes --maxbytes --stepbytes --stepfactor --iters --agg_iters --run_cycles "
      "--warmup_iters --average --op --datatype --root --parallel_init --check --blocking --cudagraph --report_cputime "
      "--per_iter_timing --per_iter_skip --local_register --cta_policy --device_implementation --device_cta_count "
      "--report_timestamps --output_file --timeout --memory --unalign --stream_null --min-ctas --max-ctas "
      "--cga-cluster-size --net --split-share --ranks --processes --algo --transport --explain --stats --json "
      "--time-budget --link --seed");
  for (std::string name; names >> name;) {
    EXPECT_TRUE(core::has(text, name)) << name;
  }
}

TEST(Flags, WhatHasNoMeaningIsAcceptedAtItsDefault) {
  flags_of("-p 0 -z 0 -G 0 -C 0 -R 0 -x 0 -D 0 -V 16 -M 0 -y 0");
  flags_of(
      "--parallel_init 0 --blocking 0 --cudagraph 0 --report_cputime 0 --local_register 0 --cta_policy 0 "
      "--device_implementation 0 --device_cta_count 16 --memory 0 --stream_null 0");
}

struct Refusal {
  const char* arguments;
  const char* text;
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NameFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(refusal_of(GetParam().arguments), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    WithoutMeaningHere, Refusals,
    testing::Values(Refusal{"-D 1",
                            "-D,--device_implementation 1: it selects nccl-tests' own kernels on NCCL's device API; "
                            "use --transport cuda for Lockstep's kernels; allowed: 0"},
                    Refusal{"-V 8",
                            "-V,--device_cta_count 8: it sets the thread blocks of -D's kernels; --blocks limits "
                            "Lockstep's, --max-ctas NCCL's; allowed: 16"}));

INSTANTIATE_TEST_SUITE_P(
    WithoutMeaningForATransport, Refusals,
    testing::Values(
        Refusal{"-R 2 --transport cuda,nccl",
                "-R,--local_register with --transport cuda: it has no buffer registration; allowed: 0, or --transport "
                "nccl"},
        Refusal{"-m 257 --transport nccl",
                "-m,--agg_iters 257 with --transport nccl: a GPU's queue cannot hold that many calls; allowed: 1 to "
                "256, or -G"},
        Refusal{
            "-M 1",
            "-M,--memory with --transport local: it reports memory of GPUs; allowed: 0, or --transport cuda or nccl"},
        Refusal{
            "-y 1 --transport cuda,local",
            "-y,--stream_null with --transport local: there are no CUDA streams; allowed: 0, or --transport cuda or "
            "nccl"},
        Refusal{"-y 1 -G 2 --transport nccl",
                "-y,--stream_null with -G: CUDA captures no work of the NULL stream into a graph; allowed: one of the "
                "two"},
        Refusal{"-x 2 --transport cuda",
                "-x,--cta_policy with --transport cuda: it configures NCCL's communicators; allowed: 0, or --transport "
                "nccl"},
        Refusal{"-x 3 --transport nccl", "-x,--cta_policy 3: out of range; allowed: an integer from 0 to 2"},
        Refusal{"--min-ctas 4 --transport cuda,nccl",
                "--min-ctas with --transport cuda: it configures NCCL's communicators; allowed: without it, or "
                "--transport nccl"},
        Refusal{"--max-ctas 4",
                "--max-ctas with --transport local: it configures NCCL's communicators; allowed: without it, or "
                "--transport nccl"},
        Refusal{
            "--cga-cluster-size 0",
            "--cga-cluster-size with --transport local: it configures NCCL's communicators; allowed: without it, or "
            "--transport nccl"},
        Refusal{"--split-share 0",
                "--split-share with --transport local: it configures NCCL's communicators; allowed: without it, or "
                "--transport nccl"},
        Refusal{"--net IB",
                "--net with --transport local: it configures NCCL's communicators; allowed: without it, or --transport "
                "nccl"},
        Refusal{"--min-ctas 8 --max-ctas 4 --transport nccl",
                "--min-ctas 8 is above --max-ctas 4; allowed: at most that"},
        Refusal{"--max-ctas 65 --transport nccl", "--max-ctas 65: out of range; allowed: an integer from 1 to 64"},
        Refusal{"--cga-cluster-size 9 --transport nccl",
                "--cga-cluster-size 9: out of range; allowed: an integer from 0 to 8"},
        Refusal{"--net nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn --transport nccl",
                "--net nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn: not a network's name; "
                "allowed: 1 to 64 characters without blanks, such as Socket or IB"},
        Refusal{"--split-share 2 --transport nccl", "--split-share 2: expected 0 or 1; allowed: 0 1 no yes"},
        Refusal{"-G 4",
                "-G,--cudagraph with --transport local: calls are not captured into CUDA graphs; allowed: 0, or "
                "--transport cuda or nccl"},
        Refusal{"-G 4 --transport cuda,mpi",
                "-G,--cudagraph with --transport mpi: calls are not captured into CUDA graphs; allowed: 0, or "
                "--transport cuda or nccl"},
        Refusal{"-C 1",
                "-C,--report_cputime with --transport local: its calls enqueue no work; allowed: 0, or --transport "
                "cuda or nccl"},
        Refusal{"-z 1",
                "-z,--blocking with --transport local: every call is waited for and timed by itself already; allowed: "
                "0, or --transport cuda or nccl"},
        Refusal{"--protocol packets --transport cuda,nccl",
                "--protocol with --transport nccl: its protocols cannot be chosen here; allowed: auto, or --transport "
                "cuda"},
        Refusal{"--blocks 16 --transport nccl",
                "--blocks with --transport nccl: its collectives are not Lockstep's kernels; allowed: 0, or "
                "--transport cuda"},
        Refusal{"--protocol ll128", "--protocol ll128: not known; allowed: auto simple packets"},
        Refusal{"-z 2 -G 1 --transport cuda",
                "-z,--blocking with -G: a replayed graph has no calls to wait for; allowed: one of the two"},
        Refusal{"-z 2 -C 1 --transport cuda",
                "-z,--blocking with -C: the host's time would include the wait; allowed: one of the two"},
        Refusal{"-I 1 -G 1 --transport cuda",
                "-I,--per_iter_timing with -G: a graph's iterations are timed together; allowed: one of the two"},
        Refusal{"-R 3", "-R,--local_register 3: out of range; allowed: an integer from 0 to 2"},
        Refusal{"-z 4", "-z,--blocking 4: out of range; allowed: an integer from 0 to 3"},
        Refusal{"--processes --transport cuda",
                "--processes forks local ranks; allowed with --transport local, others have mpirun's"}));

TEST(Flags, ConfigureNcclsCommunicators) {
  EXPECT_EQ(flags_of("--transport nccl -x 0").device.nccl, libraries::NcclConfig{}) << "NCCL's own defaults";
  const libraries::NcclConfig config =
      flags_of("--transport nccl --min-ctas 2 --max-ctas 16 --cga-cluster-size 4 --net Socket --split-share 1 -x 2")
          .device.nccl;
  EXPECT_EQ(config, (libraries::NcclConfig{2, 16, 4, 2, 1, "Socket"}));
  EXPECT_EQ(flags_of("--transport nccl --cga-cluster-size 0 --split-share 0").device.nccl,
            (libraries::NcclConfig{{}, {}, 0, {}, 0, ""}));
  const SweepFlags flags = flags_of("--transport cuda,nccl -M 1 -y 1");
  EXPECT_TRUE(flags.device.reports_memory && flags.device.null_stream);
}

TEST(Flags, ATransportThatIsNotNamedIsTheCallers) {
  const char* const words[] = {"all_reduce_perf", "-t", "2", "-g", "3", "-r", "7"};
  const SweepFlags flags = parse_sweep_flags(Kind::broadcast, 7, words, "mpi");
  EXPECT_EQ(flags.transports, std::vector<std::string>{"mpi"});
  EXPECT_EQ(flags.ranks_per_process(), 6) << "and how many processes there are is known later, as whether 7 is a rank";
  EXPECT_EQ(flags_of("").ranks_per_process(), 1);
  EXPECT_EQ(flags_of("--ranks 8").ranks_per_process(), 1);
}

TEST(Flags, OnGpus) {
  const SweepFlags flags = flags_of("--transport cuda,nccl -G 3 -C 1 -p 1 -t 2 -g 4");
  EXPECT_EQ(flags.device.graph_launches, 3);
  EXPECT_TRUE(flags.device.report_cpu_time);
  EXPECT_EQ(flags.threads, 2);
  EXPECT_EQ(flags.gpus_per_thread, 4);
  EXPECT_EQ(flags_of("--transport nccl -R 2").device.registration, 2);
  EXPECT_EQ(flags_of("--transport nccl -m 256").calls_per_iteration, 256);
  EXPECT_EQ(flags_of("--transport nccl -m 300 -G 1").calls_per_iteration, 300);
  EXPECT_EQ(flags_of("-m 300").calls_per_iteration, 300);
  EXPECT_EQ(flags_of("--transport nccl -z 3").device.blocking, Blocking::iteration);
  EXPECT_EQ(flags_of("--transport cuda --protocol packets").device.protocol, "packets");
  EXPECT_EQ(flags_of("--transport cuda --blocks 24").device.blocks, 24);
}

INSTANTIATE_TEST_SUITE_P(
    BadValues, Refusals,
    testing::Values(
        Refusal{"-J a.txt", "-J,--output_file a.txt: not the name of a JSON file; allowed: a name that ends in .json"},
        Refusal{"-b 12Q", "-b,--minbytes 12Q: not a size; allowed: bytes, or a number with K, M or G (1024-based)"},
        Refusal{"-e -5", "-e,--maxbytes -5: not a size; allowed: bytes, or a number with K, M or G (1024-based)"},
        Refusal{"-b 2M -e 1M", "-b,--minbytes 2097152 is above -e,--maxbytes 1048576; allowed: at most that"},
        Refusal{"-b 0 -e 8 -f 2",
                "-b,--minbytes 0: multiplying by -f never leaves it; allowed: above 0, or -i without -f"},
        Refusal{"-b 4 -e 8 -i 0", "-i,--stepbytes 0: the sizes would never end; allowed: above 0, or -f above 1"},
        Refusal{"-f 0", "-f,--stepfactor 0: out of range; allowed: an integer from 1 to 1048576"},
        Refusal{"-n 0", "-n,--iters 0: out of range; allowed: an integer from 1 to 1000000000"},
        Refusal{"-n ten", "-n,--iters ten: not an integer; allowed: an integer from 1 to 1000000000"},
        Refusal{"-a 4", "-a,--average 4: out of range; allowed: an integer from 0 to 3"},
        Refusal{"-I 2", "-I,--per_iter_timing 2: expected 0 or 1; allowed: 0 1 no yes"},
        Refusal{"-K 20", "-K,--per_iter_skip 20: leaves none of 20 iterations; allowed: 0 to 19"},
        Refusal{"-T -1", "-T,--timeout -1: out of range; allowed: an integer from 0 to 86400"},
        Refusal{"-o mulsum", "-o,--op mulsum: unknown operation 'mulsum'; allowed: sum prod max min avg all"},
        Refusal{"-o sum,,max", "-o,--op sum,,max: an empty item; allowed: items with a single , between them"},
        Refusal{"-d float,f12",
                "-d,--datatype f12: unknown datatype 'f12'; allowed: int8 uint8 int32 uint32 int64 uint64 half float "
                "double bfloat16 f8e4m3 f8e5m2 all"},
        Refusal{"--ranks 0", "--ranks 0: out of range; allowed: an integer from 1 to 4096"},
        Refusal{"--ranks 2,x", "--ranks x: not an integer; allowed: an integer from 1 to 4096"},
        Refusal{"--ranks 2 -t 2", "--ranks together with -t or -g; allowed: one of the two ways"},
        Refusal{"-t 100 -g 100", "-t times -g is 10000 ranks; allowed: at most 1024"},
        Refusal{"--transport tcp", "--transport tcp: not known; allowed: local mpi cuda nccl simulated"},
        Refusal{"--time-budget -3", "--time-budget -3: out of range; allowed: a number above 0, at most 1e+09"},
        Refusal{"--seed -1", "--seed -1: out of range; allowed: an integer from 0 to 9223372036854775807"},
        Refusal{"--frobnicate 3", "unknown argument '--frobnicate'; allowed: what --help lists"},
        Refusal{"-b 8 stray", "unknown argument 'stray'; allowed: what --help lists"},
        Refusal{"--minbytes", "--minbytes: 1 required VALUE missing; allowed: what --help lists"}));

TEST(Flags, ARootThatIsNoRankIsRefused) {
  EXPECT_EQ(refusal_of("--ranks 4,2 -r 0,2", Kind::broadcast),
            "-r,--root 2: there is no such rank among 2; allowed: 0 to 1, -1 for all");
  EXPECT_EQ(refusal_of("-r -2", Kind::broadcast), "-r,--root -2: out of range; allowed: an integer from 0 to 4095");
  // Under MPI the number of ranks is known only later; roots_at() then refuses.
  const SweepFlags flags = flags_of("--transport mpi -r 7", Kind::broadcast);
  EXPECT_THROW(roots_at(flags, 4), core::Error);
  EXPECT_EQ(roots_at(flags, 8), std::vector{7});
}

class Environment : public testing::Test {
 protected:
  void TearDown() override { unsetenv("NCCL_TESTS_MIN_BW"); }
};

TEST_F(Environment, MinimumBandwidth) {
  EXPECT_EQ(min_busbw_of_environment(), std::nullopt);
  setenv("NCCL_TESTS_MIN_BW", "12.5", 1);
  EXPECT_EQ(min_busbw_of_environment(), 12.5);
  setenv("NCCL_TESTS_MIN_BW", "much", 1);
  EXPECT_EQ(core::refusal_of([] { min_busbw_of_environment(); }),
            "NCCL_TESTS_MIN_BW much: not a number; allowed: a number above 0, at most 1e+09");
}

TEST(Sizes, Factor) {
  EXPECT_EQ(sizes_of({8, 64, 1, 2}), (std::vector<std::int64_t>{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({8, 100, 1, 4}), (std::vector<std::int64_t>{8, 32}));
}

TEST(Sizes, StepOnlyWithoutFactor) {
  EXPECT_EQ(sizes_of({8, 20, 5, 1}), (std::vector<std::int64_t>{8, 13, 18}));
  EXPECT_EQ(sizes_of({0, 10, 5, 1}), (std::vector<std::int64_t>{0, 5, 10}));
  EXPECT_EQ(sizes_of({8, 20, 5, 2}), (std::vector<std::int64_t>{8, 16}));
}

TEST(Sizes, OneSizeNeedsNoStep) {
  EXPECT_EQ(sizes_of({64, 64, 0, 1}), std::vector<std::int64_t>{64});
  EXPECT_EQ(sizes_of({0, 0, 0, 2}), std::vector<std::int64_t>{0});
  EXPECT_THROW(sizes_of({0, 8, 1, 2}), core::Error);
}

TEST(BlockCount, IsTheWholeMessageWithOneBlock) {
  EXPECT_EQ(block_count(Kind::all_reduce, 10, DType::f32, 4), 2);
  EXPECT_EQ(block_count(Kind::broadcast, 64, DType::f64, 4), 8);
  EXPECT_EQ(block_count(Kind::send_recv, 7, DType::i8, 4), 7);
}

TEST(BlockCount, IsRoundedDownTo16BytesWithABlockARank) {
  for (Kind kind :
       {Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all, Kind::gather, Kind::scatter, Kind::hypercube}) {
    EXPECT_EQ(block_count(kind, 63, DType::f32, 4), 0);
    EXPECT_EQ(block_count(kind, 64, DType::f32, 4), 4);
    EXPECT_EQ(block_count(kind, 127, DType::f32, 4), 4);
    EXPECT_EQ(block_count(kind, 100, DType::i8, 3), 32);
    EXPECT_EQ(block_count(kind, 100, DType::f64, 3), 4);
  }
}

}  // namespace
}  // namespace lockstep::sweep
