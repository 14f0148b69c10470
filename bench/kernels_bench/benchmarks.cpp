#include "bench/kernels_bench/benchmarks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/device_cuda.h"
#include "core/statistics.h"
#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/copy/copy.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/registry.h"
#include "kernels/residual/residual.h"
#include "kernels/rotary/rotary.h"
#include "workload/build_step.h"

namespace lockstep::kernel_bench {
namespace {

using kernels::case_of;
using kernels::KernelCase;

std::optional<KernelCase> case_of_call(const workload::KernelCall& call, const workload::Model& model,
                                       const workload::Layout& layout) {
  return std::visit(
      [&](const auto& args) -> std::optional<KernelCase> {
        using Args = std::decay_t<decltype(args)>;
        if constexpr (std::is_same_v<Args, workload::OtherKernel>) {
          return std::nullopt;
        } else if constexpr (std::is_same_v<Args, kernels::EmbeddingForward> ||
                             std::is_same_v<Args, kernels::EmbeddingBackward>) {
          return case_of(args, model.vocabulary);
        } else if constexpr (std::is_same_v<Args, kernels::CrossEntropyStats>) {
          return case_of(args, layout.tp);
        } else {
          return case_of(args);
        }
      },
      call.arguments);
}

}  // namespace

std::vector<KernelCase> cases_of_step(const workload::Model& model, const workload::Layout& layout) {
  std::vector<KernelCase> cases;
  std::set<std::string> names;
  // Pricing a step asks for the price of each of its kernels, which are collected here.
  const auto take = [&](const workload::KernelCall& call) -> std::int64_t {
    std::optional<KernelCase> kernel_case = case_of_call(call, model, layout);
    if (kernel_case && names.insert(kernel_case->name()).second) cases.push_back(std::move(*kernel_case));
    return 0;
  };
  works_of(model, layout, schedule_of(layout), {.kernel = take});
  return cases;
}

namespace {

constexpr std::int64_t kMostSamples = 200;  // per trial; a sample is then a batch of calls
// Where a time budget leaves little for each benchmark: a single sample may have been taken while another program ran.
constexpr std::size_t kFewestSamples = 5;
constexpr double kFewestSamplesS = 0.25;

void count(benchmark::State& state, const Bench& bench, const Instance& instance) {
  const double median_us = core::median(instance.outcome.trials.back().samples_us);
  const kernels::Cost& cost = instance.one->cost;
  state.counters["median_us"] = median_us;  // the other results follow from it; Google Benchmark itself shows a mean
  state.counters["GB/s"] = cost.bytes / median_us / 1e3;
  state.counters["GFLOP/s"] = cost.flops / median_us / 1e3;
  const std::string unchecked = instance.outcome.checked ? "" : " unchecked";
  if (const auto bound = bench.bound_of_instance(instance)) {
    state.counters["%roofline"] = 100 * bound->us / median_us;
    state.SetLabel(bound->name + unchecked);
  } else {
    state.SetLabel(unchecked);
  }
}

// Google Benchmark runs a trial's samples once. Those that a change of clocks spoils are re-measured afterwards, so
// that its own mean, which we do not record, still covers the first.
void time_instance(benchmark::State& state, const Bench& bench, Instance& instance, Workbench& workbench) {
  const std::int64_t calls = (state.max_iterations + kMostSamples - 1) / kMostSamples;
  Trial trial;
  const auto take_sample = [&] {
    trial.samples_us.push_back(workbench.us_of_call(calls));
    return trial.samples_us.back() * static_cast<double>(calls) / 1e6;
  };
  core::SteadyClocks clocks(bench.look);
  clocks.begin();
  double seconds = 0;
  while (state.KeepRunningBatch(calls)) state.SetIterationTime(seconds = take_sample());
  while (trial.samples_us.size() < kFewestSamples && seconds < kFewestSamplesS) seconds += take_sample();
  while (clocks.again()) {
    const std::size_t samples = std::exchange(trial.samples_us, {}).size();
    clocks.begin();
    for (std::size_t s = 0; s < samples; ++s) take_sample();
  }
  trial.iterations = calls * static_cast<std::int64_t>(trial.samples_us.size());
  instance.outcome.trials.push_back(std::move(trial));
  instance.outcome.gpu_states = clocks.after();
  instance.outcome.gpu_clocks = clocks.record();
}

// `always`: also when the time budget is over.
void run(benchmark::State& state, const Bench& bench, Instance& instance, Workbench& workbench, bool always) {
  Outcome& outcome = instance.outcome;
  if (!always && outcome.trials.empty() && bench.seconds_left().value_or(1) <= 0) {
    outcome.status = "left_out";
    state.SkipWithError("left out");
    return;
  }
  try {
    workbench.prepare(instance);
    if (outcome.status == "ok") {
      time_instance(state, bench, instance, workbench);
      workbench.end(instance);
      count(state, bench, instance);
    }
  } catch (const std::exception& error) {
    outcome.status = "failed";
    outcome.error = error.what();
  }
  if (outcome.status != "ok") state.SkipWithError((outcome.status + ": " + outcome.error).c_str());
}

// True for the names that --benchmark_filter chooses. The endings that Google Benchmark's JSON adds to names are not
// part of a name.
std::function<bool(const std::string& name)> benchmark_filter() {
  std::string filter = benchmark::GetBenchmarkFilter();
  for (const std::string ending : {"/min_time:", "/manual_time"}) {
    for (std::size_t at = filter.find(ending); at != std::string::npos; at = filter.find(ending)) {
      filter.erase(at, std::min(filter.find_first_not_of("0123456789.", at + ending.size()), filter.size()) - at);
    }
  }
  if (filter.empty() || filter == "all") return [](const std::string&) { return true; };
  const bool negative = filter.front() == '-';
  return [negative, found = program::name_filter(filter.substr(negative ? 1 : 0))](const std::string& name) {
    return found(name) != negative;
  };
}

// Seconds to fill the operands through which cold calls rotate; the time of a check is unknown.
double seconds_to_prepare(const Instance& instance, double cold_bytes) {
  constexpr double kFilledBytesASecond = 2e9;
  return instance.setting.cache == Cache::cold ? cold_bytes / kFilledBytesASecond : 0;
}

// Google Benchmark needs about as much time again to find the number of iterations.
double seconds_each(Bench& bench, double seconds_left) {
  constexpr double kTimedShare = 0.4;
  constexpr double kLeast = 1e-2;
  const double cold_bytes = bench.cold_bytes();
  double left = seconds_left;
  const std::vector<Instance*> chosen = chosen_instances(bench);
  for (const Instance* instance : chosen) left -= seconds_to_prepare(*instance, cold_bytes);
  return std::max(kTimedShare * left / std::max(static_cast<double>(chosen.size()), 1.0), kLeast);
}

}  // namespace

std::optional<double> Bench::seconds_left() const {
  if (flags.time_budget_s <= 0) return std::nullopt;
  return flags.time_budget_s - std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Bench::cold_bytes() const {
  if (flags.device == "cpu") return footprint_of(Level::memory, 1, machine.caches);
  const std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  return gpus.empty() ? 0 : cold_bytes_of_gpu(gpus.front().l2_bytes);
}

void make_instances(Bench& bench) {
  const std::vector<int> threads = bench.flags.device == "cpu" ? bench.flags.threads : std::vector<int>{1};
  for (const kernels::KernelCase& bench_case : bench.cases) {
    for (int number : threads) {
      for (const std::string& timing : timings_of(bench.flags.device)) {
        for (Cache cache : bench.flags.caches) {
          for (int copies : bench.flags.copies) {
            bench.instances.push_back({&bench_case, {bench.flags.device, number, cache, copies}, timing});
          }
        }
      }
    }
  }
}

std::vector<Instance*> chosen_instances(Bench& bench) {
  const auto is_chosen = benchmark_filter();
  std::vector<Instance*> chosen;
  for (Instance& instance : bench.instances) {
    if (is_chosen(instance.name())) chosen.push_back(&instance);
  }
  return chosen;
}

std::size_t every_kernel_first(std::vector<Instance*>& instances) {
  const auto of_case = [](const Instance* instance) {  // cases are in one vector, in the order of the list
    return std::tuple(instance->one, -instance->setting.threads, instance->setting.cache != Cache::cold);
  };
  std::stable_sort(instances.begin(), instances.end(),
                   [&](const Instance* a, const Instance* b) { return of_case(a) < of_case(b); });
  std::map<std::string, int> met;  // instances of each kernel
  std::map<const Instance*, int> round;
  for (const Instance* instance : instances) round[instance] = met[instance->one->kernel]++;
  std::stable_sort(instances.begin(), instances.end(),
                   [&](const Instance* a, const Instance* b) { return round.at(a) < round.at(b); });
  return met.size();
}

void register_benchmarks(Bench& bench, Workbench& workbench) {
  std::vector<Instance*> chosen = chosen_instances(bench);
  const std::optional<double> left = bench.seconds_left();
  const double seconds = left ? seconds_each(bench, *left) : 0;
  const std::size_t always = left ? every_kernel_first(chosen) : 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    Instance& instance = *chosen[i];
    const bool is_first = i < always;
    auto* const benchmark = benchmark::RegisterBenchmark(
        instance.name().c_str(), [&bench, &instance, &workbench, is_first](benchmark::State& state) {
          run(state, bench, instance, workbench, is_first);
        });
    benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
    if (seconds > 0) benchmark->MinTime(seconds);
  }
}

}  // namespace lockstep::kernel_bench
