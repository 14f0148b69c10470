#include "kernels/gemm/gemm_choice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <limits>
#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kGrain = 32;  // rows or columns: no thread gets fewer
// Measures all candidates in alternating rounds; the minimum time of each counts, because noise only adds.
constexpr int kMostRounds = 50;
constexpr int kLeastRounds = 3;
constexpr double kSeconds = 0.05;  // after this time, kLeastRounds are enough

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns part number `part` of `parts` of [0, count), in whole grains.
std::pair<std::int64_t, std::int64_t> range_of(std::int64_t count, int part, int parts) {
  const std::int64_t grains = (count + kGrain - 1) / kGrain;
  return {grains * part / parts * kGrain, std::min(count, grains * (part + 1) / parts * kGrain)};
}

void run_parts(GemmImplementation& implementation, Split split, const Product& product, ThreadPool& pool) {
  const std::int64_t count = split == Split::rows ? product.m : product.n;
  if (pool.size() == 1 || count <= kGrain) {
    implementation.run(product, pool, 0);
    return;
  }
  pool.on_each_thread([&](int thread) {
    const auto [begin, end] = range_of(count, thread, pool.size());
    if (begin >= end) return;
    implementation.run(split == Split::rows ? product.rows(begin, end) : product.columns(begin, end), pool, thread);
  });
}

double work_of(const Product& product) {
  return static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
}

std::int64_t rounded_up(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
}

// Returns the rows of c, in whole grains, that this much work computes; none or all if the work belongs to another
// product.
std::int64_t rows_before(const Product& product, double work) {
  const double rows = work / (static_cast<double>(product.n) * static_cast<double>(product.k));
  const auto grains = static_cast<std::int64_t>(std::clamp(rows, 0.0, static_cast<double>(product.m)) / kGrain);
  return rows >= static_cast<double>(product.m) ? product.m : grains * kGrain;
}

// Returns a product that can be measured repeatedly: sums that are added go to separate memory.
Product repeatable(const Product& product, std::vector<float>& memory) {
  Product repeated = product;
  if (product.c.finish != Finish::add) return repeated;
  memory.resize(static_cast<std::size_t>(product.batch * product.m * product.c.row_stride));
  repeated.c.data = memory.data();
  return repeated;
}

void check_name(std::string_view name, const std::vector<std::string>& allowed) {
  if (name.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end()) return;
  throw core::Error(core::Failure::usage, fmt::format("gemm: implementation '{}' is not available; allowed: {}", name,
                                                      fmt::join(allowed, ", ")));
}

}  // namespace

GemmChoice::GemmChoice(int num_threads) : num_threads_(num_threads) {
  implementations_.push_back(make_packed_gemm());
  if (auto implementation = make_onednn_gemm(num_threads)) implementations_.push_back(std::move(implementation));
}

GemmChoice& GemmChoice::of(ThreadPool& pool) {
  return pool.kept<GemmChoice>();
}

std::vector<std::string> GemmChoice::names() const {
  std::vector<std::string> names;
  for (const auto& implementation : implementations_) names.emplace_back(implementation->name());
  return names;
}

std::vector<std::string> GemmChoice::names(core::DType dtype) const {
  std::vector<std::string> names;
  for (const auto& implementation : implementations_) {
    if (implementation->can(dtype)) names.emplace_back(implementation->name());
  }
  return names;
}

void GemmChoice::choose_by_rule(std::string_view first) {
  check_name(first, names());
  first_ = first;
  by_rule_ = true;
  plans_.clear();
}

std::vector<GemmChoice::Plan> GemmChoice::candidates(const Product& product) const {
  std::vector<Plan> plans;
  for (const auto& implementation : implementations_) {
    if (!implementation->can(product.a.dtype)) continue;
    plans.push_back({implementation.get(), Split::rows});
    if (num_threads_ > 1 && product.batch == 1) plans.push_back({implementation.get(), Split::columns});
  }
  std::stable_partition(plans.begin(), plans.end(),
                        [this](const Plan& plan) { return plan.implementation->name() == first_; });
  return plans;
}

void GemmChoice::run_plan(const Plan& plan, const Product& product, ThreadPool& pool) {
  if (product.batch >= pool.size() && product.batch > 1) {
    pool.for_pieces(product.batch, [&](std::int64_t index, int thread) {
      plan.implementation->run(product.entry(index), pool, thread);
    });
    return;
  }
  for (std::int64_t index = 0; index < product.batch; ++index) {
    run_parts(*plan.implementation, plan.split, product.batch == 1 ? product : product.entry(index), pool);
  }
}

GemmChoice::Plan GemmChoice::fastest(const std::vector<Plan>& plans, const Product& product, ThreadPool& pool) {
  if (plans.size() == 1) return plans.front();
  std::vector<float> memory;
  const Product repeated = repeatable(product, memory);
  std::vector<double> least(plans.size(), std::numeric_limits<double>::infinity());
  for (const Plan& plan : plans) run_plan(plan, repeated, pool);  // prepares code and memory
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < kMostRounds && (round < kLeastRounds || seconds_since(begin) < kSeconds); ++round) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      run_plan(plans[i], repeated, pool);  // not timed: removes what another candidate left in the caches
      const auto start = std::chrono::steady_clock::now();
      run_plan(plans[i], repeated, pool);
      least[i] = std::min(least[i], seconds_since(start));
    }
  }
  return plans[static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin())];
}

// candidates() returns the preferred implementation first, then the fixed order, and rows before columns. Each thread
// packs its part of the factor that is split and all of the other factor, so the larger side is split, unless that
// leaves one thread much more than its share. Packing an element counts as much as its
// products with kGrain others.
GemmChoice::Plan GemmChoice::by_rule(const std::vector<Plan>& plans, const Product& product) const {
  if (plans.size() == 1 || plans[1].split == Split::rows) return plans.front();
  const auto cost = [&](std::int64_t split, std::int64_t whole) {  // work of the thread that has most, in grains
    const std::int64_t most = ((split + kGrain - 1) / kGrain + num_threads_ - 1) / num_threads_;
    const std::int64_t all = (whole + kGrain - 1) / kGrain;
    return most * all + most + all;
  };
  return cost(product.n, product.m) < cost(product.m, product.n) ? plans[1] : plans[0];
}

const GemmChoice::Plan& GemmChoice::plan_for(const Product& product, const Product::Key& of, ThreadPool& pool) {
  const auto known = plans_.find(of);
  if (known != plans_.end()) return known->second;
  const std::vector<Plan> plans = candidates(product);
  const Plan chosen = by_rule_ ? by_rule(plans, product) : fastest(plans, product, pool);
  return plans_.emplace(of, chosen).first->second;
}

void GemmChoice::run(const Product& product, ThreadPool& pool) {
  run_plan(plan_for(product, product.key(), pool), product, pool);
}

void GemmChoice::run_ragged(std::span<const Product> products, ThreadPool& pool) {
  if (products.empty()) return;
  if (products.size() == 1) return run(products.front(), pool);
  const Product& largest = *std::max_element(
      products.begin(), products.end(), [](const Product& a, const Product& b) { return work_of(a) < work_of(b); });
  Product rounded = largest;
  rounded.m = rounded_up(largest.m);
  rounded.k = rounded_up(largest.k);
  GemmImplementation& implementation = *plan_for(largest, rounded.key(), pool).implementation;
  std::vector<double> begins{0};  // beginning of each product, in work
  for (const Product& product : products) begins.push_back(begins.back() + work_of(product));
  pool.on_each_thread([&](int thread) {
    const double share = begins.back() / pool.size();
    for (std::size_t i = 0; i < products.size(); ++i) {
      const std::int64_t first = rows_before(products[i], share * thread - begins[i]);
      const std::int64_t last =
          thread + 1 == pool.size() ? products[i].m : rows_before(products[i], share * (thread + 1) - begins[i]);
      if (first < last) implementation.run(products[i].rows(first, last), pool, thread);
    }
  });
}

std::string GemmChoice::chosen(const Product& product) const {
  const auto known = plans_.find(product.key());
  if (known == plans_.end()) return "";
  return fmt::format("{} by {}", known->second.implementation->name(),
                     known->second.split == Split::rows ? "rows" : "columns");
}

namespace {

constexpr std::size_t kProbeLeastRounds = 5;
constexpr std::size_t kProbeMostRounds = 15;
constexpr double kProbeSeconds = 0.04;  // for all rounds together; after this time, kProbeLeastRounds are enough
constexpr double kHopeless = 8;         // times the fastest in the first round: dropped
constexpr double kAsFast = 1.05;        // times the fastest: counts as equal
constexpr std::int64_t kInputs = 256;
constexpr std::int64_t kOutputs = 768;
constexpr std::int64_t kRowsPerThread = 128;

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
  Layer layer(dtype, kRowsPerThread * threads);
  return time_in_turn(names, [&](std::size_t i) {
    choose_gemms_by_rule(where, names[i]);
    const auto start = std::chrono::steady_clock::now();
    layer.run(where);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
}

}  // namespace lockstep::kernels
