// Attention's CPU kernels on any shape, for compare/attention.py. kernels_bench has the trainer's shapes, and holds
// every element against f64, which takes minutes at the lengths that this is for; here a few queries' o and dq are held
// against it. Prints attention_fwd,calls,median_us,min_us and the same of attention_bwd.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

#include "bench/program/program.h"
#include "core/error.h"
#include "core/ranks.h"
#include "core/statistics.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_reference.h"
#include "kernels/base/context.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

struct Flags {
  AttentionShape shape{.batch = 1, .heads = 2, .queries = 1024, .keys = 0, .head_columns = 64, .causal = false};
  core::DType dtype = core::DType::f32;
  int threads = 1;
  double milliseconds = 200;
};

using program::FlagOf;
using program::FlagValue;

constexpr std::int64_t kLargest = 1 << 20;
constexpr auto kFlags = std::to_array<FlagOf<Flags>>({
    {"--dtype", "f32", "dtype of the operands: f32, bf16 or f16",
     [](Flags& flags, const FlagValue& value) {
       flags.dtype = core::parse_dtype(value.one_of(std::array{"f32", "bf16", "f16"}));
     }},
    {"--length", "1024", "number of queries, and of keys",
     [](Flags& flags, const FlagValue& value) { flags.shape.queries = value.integer(1, kLargest); }},
    {"--columns", "64", "columns of a head",
     [](Flags& flags, const FlagValue& value) { flags.shape.head_columns = value.integer(1, kLargest); }},
    {"--heads", "2", "number of heads",
     [](Flags& flags, const FlagValue& value) { flags.shape.heads = value.integer(1, kLargest); }},
    {"--kv-heads", "0", "number of heads of keys and values, a divisor of --heads; 0: as many as --heads",
     [](Flags& flags, const FlagValue& value) { flags.shape.kv_heads = value.integer(0, kLargest); }},
    {"--threads", "1", "number of threads, each bound to its own core",
     [](Flags& flags, const FlagValue& value) { flags.threads = program::integer(value, 1, core::usable_cores()); }},
    {"--milliseconds", "200", "time to spend on each kernel, which is called at least once",
     [](Flags& flags, const FlagValue& value) { flags.milliseconds = value.number_from(0, 600000); }},
});

Flags parse(int argc, char** argv) {
  Flags flags;
  program::CommandLine line("attention_loop: times attention's CPU kernels on one shape");
  declare_all(line, kFlags, "Case");
  line.add_switch("--causal", flags.shape.causal, "each query sees only the keys up to its own position", "Case");
  line.parse(argc, argv);
  read_all(line, kFlags, flags);
  flags.shape.keys = flags.shape.queries;
  return flags;
}

using Arrays = std::vector<std::vector<std::byte>>;

Arrays drawn(const KernelCase& kernel) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Arrays arrays;
  for (const CaseOperand& operand : kernel.operands) {
    std::vector<double> values(static_cast<std::size_t>(operand.elems));
    std::generate(values.begin(), values.end(), [&] { return normal(random); });
    store(values, operand.dtype, arrays.emplace_back(operand.bytes()).data());
  }
  return arrays;
}

ReferenceData<double> read(const KernelCase& kernel, const Arrays& arrays) {
  ReferenceData<double> data;
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    data.add(kernel.operands[k].name, load(kernel.operands[k].dtype, arrays[k].data(), kernel.operands[k].elems));
  }
  return data;
}

// Whether o and dq of the first, a middle and the last query of the last head are right.
bool holds(const AttentionShape& shape, const KernelCase& kernel, const CaseOperand& o, const Arrays& arrays) {
  ReferenceData<double> got = read(kernel, arrays);
  ReferenceData<double> wanted = got;
  std::fill(wanted["dq"].begin(), wanted["dq"].end(), 0.0);
  const AttentionHead head{shape, shape.batch - 1, shape.heads - 1};
  const auto all_near = [&](const char* name, std::int64_t query, const CaseOperand& operand) {
    const auto g = head.packed(got[name], query);
    const auto w = head.packed(wanted[name], query);
    return std::equal(g.begin(), g.end(), w.begin(),
                      [&](double a, double b) { return std::fabs(a - b) <= allowed_error(operand, b, 1.0); });
  };
  const CaseOperand& dq = kernel.operands[6];
  for (const std::int64_t query : {std::int64_t{0}, shape.queries / 2, shape.queries - 1}) {
    backward_query_reference(head, query, wanted);  // from the kernel's o and lse, as the kernel
    forward_query_reference(head, query, wanted);
    if (!all_near("o", query, o) || !all_near("dq", query, dq)) return false;
  }
  return true;
}

void time_calls(const Flags& flags, const KernelCase& kernel, Arrays& arrays, const Context& where) {
  std::vector<void*> pointers;
  for (std::size_t k = 0; k < kernel.operands.size(); ++k) pointers.push_back(arrays[k].data());
  kernel.run(pointers, where);
  std::vector<double> times_us;
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + std::chrono::duration<double, std::milli>(flags.milliseconds);
  for (auto now = begin; now < end || times_us.empty();) {
    kernel.run(pointers, where);
    const auto after = std::chrono::steady_clock::now();
    times_us.push_back(std::chrono::duration<double, std::micro>(after - now).count());
    now = after;
  }
  std::printf("%s,%zu,%.3f,%.3f\n", kernel.kernel.c_str(), times_us.size(), core::median(times_us),
              *std::min_element(times_us.begin(), times_us.end()));
}

void time_and_check(const Flags& flags) {
  const KernelCase forward = case_of(shaped(AttentionForward{.shape = flags.shape}, flags.dtype));
  const KernelCase backward = case_of(shaped(AttentionBackward{.shape = flags.shape}, flags.dtype));
  Arrays arrays = drawn(backward);  // its first operands are the forward's
  ThreadPool pool(flags.threads, 0);
  time_calls(flags, forward, arrays, Context(pool));
  time_calls(flags, backward, arrays, Context(pool));
  if (!holds(flags.shape, backward, forward.operands[3], arrays)) {
    throw core::Error(core::Failure::wrong_data, "o or dq is wrong");
  }
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("attention_loop", [&] {
    lockstep::kernels::time_and_check(lockstep::kernels::parse(argc, argv));
    return 0;
  });
}
