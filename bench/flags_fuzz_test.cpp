// Command lines of all programs, changed at random (testing/core/fuzz.h): each is taken, or refused in one line.
#include <gtest/gtest.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/collective_perf/flags.h"
#include "bench/data_parallel/ddp.h"
#include "bench/data_parallel/zero.h"
#include "bench/kernels_bench/flags.h"
#include "bench/mini_train/flags.h"
#include "bench/moe_bench/moe.h"
#include "bench/pipeline_perf/cases.h"
#include "bench/pipeline_perf/overlap.h"
#include "bench/scaling/scaling.h"
#include "bench/seqpar_bench/seqpar.h"
#include "bench/simulate/simulate.h"
#include "bench/tp_linear_bench/tp_linear.h"
#include "core/error.h"
#include "testing/core/fuzz.h"

namespace lockstep {
namespace {

using Parse = void (*)(int argc, const char* const* argv);

struct Program {
  const char* name;
  std::vector<std::string> lines;  // valid; the fuzz changes words and characters
  Parse parse;
};

std::vector<const char*> pointers_of(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return pointers;
}

// Words are separated by line ends, so that a word may hold anything else.
std::vector<std::string> words_of(const std::string& program, const std::string& text) {
  std::vector<std::string> words{program};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void read(const Program& program, const std::string& text) {
  const std::vector<std::string> words = words_of(program.name, text);
  const std::vector<const char*> argv = pointers_of(words);
  try {
    program.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const program::TextRequested&) {  // no refusal
  } catch (const core::Error& error) {
    const bool is_usage = error.failure() == core::Failure::usage;
    const std::string_view refusal = error.what();  // as "--layout requires --model" does
    const bool states_it = refusal.find("allowed") != refusal.npos || refusal.find(" requires ") != refusal.npos;
    if (is_usage && !states_it) {
      throw std::runtime_error(std::string("does not state what is allowed: ") + error.what());
    }
    throw;
  }
}

// Names of the flags that take a value, from the help.
std::vector<std::string> flags_of(const Program& program) {
  std::string help;
  try {
    const char* const argv[] = {program.name, "--help"};
    program.parse(2, argv);
  } catch (const program::HelpRequested& requested) {
    help = requested.text;
  }
  std::vector<std::string> flags;
  for (std::size_t at = help.find("\n  -"); at != std::string::npos; at = help.find("\n  -", at + 1)) {
    const std::string names = help.substr(at + 3, help.find(' ', at + 3) - at - 3);
    flags.push_back(names.substr(names.rfind(',') + 1));  // of "-b,--minbytes" the long one
  }
  return flags;
}

std::vector<Program> programs() {
  return {
      {"all_reduce_perf",
       {"--ranks\n4\n-b\n8\n-e\n16M\n-f\n64\n--algo\nring,double_tree\n--explain",
        "--transport\nsimulated\n--machine\ndgx-h100\n--ranks\n8,512\n--algo\nall", "--link\nlatency_us=20,gbps=1.25"},
       [](int argc, const char* const* argv) {
         sweep::parse_sweep_flags(collectives::Kind::all_reduce, argc, argv, "local");
       }},
      {"kernels_bench",
       {"--threads\n1,2\n--cache\nwarm,cold", "--model\nnano\n--layout\ndp=2;tp=2"},
       [](int argc, const char* const* argv) { kernel_bench::parse_bench_flags(argc, argv); }},
      {"pipeline_perf",
       {"--schedule\n1f1b,zb_v\n--stages\n4\n--microbatches\n8,16\n--fill\na=4,b=4,invert=20,layers=3"},
       [](int argc, const char* const* argv) { pipeline::parse_pipeline_flags(argc, argv); }},
      {"overlap_perf",
       {"--ranks\n4\n--zero\n0,1,3\n--bucket-cap-mb\n1,25\n--link\nlatency_us=20,gbps=12.5"},
       [](int argc, const char* const* argv) { pipeline::parse_overlap_flags(argc, argv); }},
      {"ddp_overlap_bench",
       {"--dp\n2,4\n--bucket-cap-mb\n0,0.25\n--link\nnone;latency_us=5,gbps=2"},
       [](int argc, const char* const* argv) { parallel_bench::parse_ddp_flags(argc, argv); }},
      {"zero_bench",
       {"--zero\n0,1,2,3\n--microbatches\n2\n--offload\nnone,host\n--compression\nnone,int8"},
       [](int argc, const char* const* argv) { parallel_bench::parse_zero_flags(argc, argv); }},
      {"tp_linear_bench",
       {"--tp\n2\n--hidden\n64\n--heads\n4\n--tiles\n1,2", "--grid\n2x2"},
       [](int argc, const char* const* argv) { tp_linear::parse_tp_linear_flags(argc, argv); }},
      {"seqpar_bench",
       {"--cp\n2\n--length\n64\n--way\nring,ulysses"},
       [](int argc, const char* const* argv) { context_bench::parse_context_flags(argc, argv); }},
      {"moe_bench",
       {"--experts\n4,8\n--top-k\n1,2\n--ep\n1,2\n--skew\n0,2\n--capacity\n0,1.25"},
       [](int argc, const char* const* argv) {
         experts_bench::cases_of(experts_bench::parse_experts_flags(argc, argv));
       }},
      {"simulate",
       {"--model\ngpt3-175b\n--machine\ndgx-a100\n--layout\ntp=8,pp=8,dp=4,batch=64\n--sweep\ntp=2:4,model.sequence="
        "2048"},
       [](int argc, const char* const* argv) { simulate::parse_simulate_flags(argc, argv); }},
      {"mini_train",
       {"--dp\n2\n--pp\n2\n--zero\n1\n--schedule\nzb_h1\n--steps\n20", "--model\nnano,layers=2\n--layout\ntp=2,sp=yes",
        "--sync\ndiloco:every=2\n--straggler\nreplica=1,factor=3\n--compression\ntopk:density=0.01"},
       [](int argc, const char* const* argv) { mini_train::parse_train_flags(argc, argv); }},
      {"scaling",
       {"--mode\nweak\n--layouts\ndp=2,zero=1;pp=2,microbatches=4\n--simulate\ndp=8",
        "--ranks\n1,2,4\n--mode\nweak,strong\n--simulate-to\n64\n--machine\ndgx-h100\n--rounds\n6"},
       [](int argc, const char* const* argv) { scaling::parse_scaling_flags(argc, argv); }},
  };
}

class Flags : public testing::TestWithParam<Program> {};

TEST_P(Flags, AreTakenOrRefusedInOneLine) {
  const Program& program = GetParam();
  const std::vector<std::string> flags = flags_of(program);
  ASSERT_GT(flags.size(), 5U);
  core::FuzzOptions options = core::fuzz_options();
  const core::FuzzResult result =
      core::fuzz({program.name, program.lines, flags, [&](const std::string& text) { read(program, text); }}, options);
  std::printf("%s: %lld taken, %lld refused\n", program.name, static_cast<long long>(result.taken),
              static_cast<long long>(result.refused));
  for (const std::string& finding : result.findings) ADD_FAILURE() << finding;
}

INSTANTIATE_TEST_SUITE_P(Programs, Flags, testing::ValuesIn(programs()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep
