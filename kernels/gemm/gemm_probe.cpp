#include "kernels/gemm/gemm_probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <list>

#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_choice.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kProbeLeastRounds = 5;
constexpr std::size_t kProbeMostRounds = 15;
constexpr double kProbeSeconds = 0.04;  // for all rounds together; after this time, kProbeLeastRounds are enough
constexpr double kHopeless = 8;         // times the fastest in the first round: dropped
constexpr double kAsFast = 1.05;        // times the fastest: counts as equal
constexpr std::int64_t kInputs = 256;
constexpr std::int64_t kOutputs = 768;
constexpr std::int64_t kRowsAThread = 128;

constexpr double kNever = std::numeric_limits<double>::infinity();

double fastest_of(std::span<const double> seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

// A layer's three products with their own operands. Zeros take as long as other numbers.
class Layer {
 public:
  Layer(core::DType dtype, std::int64_t rows) : dtype_(dtype), shape_{rows, kInputs, kOutputs} {}

  void run(const Context& where) {
    kernels::run(GemmForward{.shape = shape_, .x = x_.in(), .w = w_.in(), .y = y_.out()}, where);
    kernels::run(GemmInputGradient{.shape = shape_, .dy = y_.in(), .w = w_.in(), .dx = dx_.out()}, where);
    kernels::run(GemmWeightGradient{.shape = shape_, .x = x_.in(), .dy = y_.in(), .dw = dw_}, where);
  }

 private:
  InOut zeros(core::DType dtype, std::int64_t elems) {
    memory_.emplace_back(static_cast<std::size_t>(elems) * core::size_of(dtype));
    return {memory_.back().data(), dtype, elems};
  }

  core::DType dtype_;
  GemmShape shape_;
  std::list<std::vector<std::byte>> memory_;
  InOut x_ = zeros(dtype_, shape_.rows* kInputs);
  InOut w_ = zeros(dtype_, kInputs* kOutputs);
  InOut y_ = zeros(dtype_, shape_.rows* kOutputs);
  InOut dx_ = zeros(dtype_, shape_.rows* kInputs);
  InOut dw_ = zeros(core::DType::f32, kInputs* kOutputs);
};

}  // namespace

std::vector<GemmTime> time_in_turn(std::span<const std::string> names,
                                   const std::function<double(std::size_t)>& run_s) {
  std::vector<double> first;
  for (std::size_t i = 0; i < names.size(); ++i) first.push_back(run_s(i));
  std::vector<std::vector<double>> rounds(names.size());
  double spent = 0;
  for (std::size_t round = 0; round < kProbeMostRounds && (round < kProbeLeastRounds || spent < kProbeSeconds);
       ++round) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (first[i] > kHopeless * fastest_of(first)) continue;
      rounds[i].push_back(run_s(i));
      spent += rounds[i].back();
    }
  }
  std::vector<GemmTime> times;
  for (std::size_t i = 0; i < names.size(); ++i) {
    times.push_back({names[i], rounds[i].empty() ? kNever : fastest_of(rounds[i])});
  }
  return times;
}

std::string fastest_gemm(std::span<const GemmTime> times) {
  LOCKSTEP_CHECK(!times.empty(), "a probe of nothing");
  double fastest = kNever;
  for (const GemmTime& time : times) fastest = std::min(fastest, time.seconds);
  return std::find_if(times.begin(), times.end(), [&](const GemmTime& t) { return t.seconds <= kAsFast * fastest; })
      ->name;
}

std::vector<std::string> gemm_implementations(core::DType dtype) {
  ThreadPool pool(1);
  return GemmChoice::of(pool).names(dtype);
}

std::vector<GemmTime> probe_gemms(std::span<const std::string> names, core::DType dtype, int threads) {
  ThreadPool pool(threads);
  const Context where(pool);
  Layer layer(dtype, kRowsAThread * threads);
  return time_in_turn(names, [&](std::size_t i) {
    choose_gemms_by_rule(where, names[i]);
    const auto start = std::chrono::steady_clock::now();
    layer.run(where);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
}

}  // namespace lockstep::kernels
