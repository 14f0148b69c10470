// Chooses the implementation of a product: the fastest of those that can compute it, measured when a pool first needs
// its shape.
//
// A pool keeps its choices (ThreadPool::kept), so there is no global state and no lock: a pool is used by one thread at
// a time, and the choice depends on the pool's number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

enum class Split : std::uint8_t { rows, columns };  // how c is divided among the pool's threads

class GemmChoice {
 public:
  explicit GemmChoice(int num_threads);
  static GemmChoice& of(ThreadPool& pool);

  // Names of all implementations available here, in the fixed order: ours, oneDNN.
  std::vector<std::string> names() const;
  std::vector<std::string> names(core::DType dtype) const;  // those that multiply this dtype

  // From now on the choice depends only on the product, and so repeats in every process on the same machine: the
  // implementation called `first` or, if it cannot compute the product or `first` is empty, the first of names() that
  // can; split such that threads compute and pack the least. Otherwise the choice is measured. Throws a usage Error if
  // there is no such implementation.
  void choose_by_rule(std::string_view first);

  // If the choice has not been made, runs the product several times to measure.
  void run(const Product& product, ThreadPool& pool);
  // Computes products that differ only in m or k (groups of rows with different lengths) concurrently, with equal work
  // for each thread. One implementation computes all; if the choice has not been made, it is measured on the largest
  // product, once for all lengths up to the same power of two.
  void run_ragged(std::span<const Product> products, ThreadPool& pool);
  // The implementation that computes it: "onednn by rows". For reports; empty if the product has not occurred yet.
  std::string chosen(const Product& product) const;

 private:
  struct Plan {
    GemmImplementation* implementation;
    Split split;
  };
  std::vector<Plan> candidates(const Product& product) const;
  const Plan& plan_for(const Product& product, const Product::Key& key, ThreadPool& pool);
  static void run_plan(const Plan& plan, const Product& product, ThreadPool& pool);
  Plan by_rule(const std::vector<Plan>& plans, const Product& product) const;
  static Plan fastest(const std::vector<Plan>& plans, const Product& product, ThreadPool& pool);

  int num_threads_;
  std::vector<std::unique_ptr<GemmImplementation>> implementations_;
  bool by_rule_ = false;
  std::string first_;  // for choose_by_rule
  std::map<Product::Key, Plan> plans_;
};

// Chooses the implementation of all products of a run by one short probe of those available.
//
// Which one is fastest also depends on the moment: on a matrix unit such as AMX, which belongs to a physical core,
// oneDNN runs at a third of its speed while another program on that core uses it. But a run must keep to one
// implementation, because last bits differ between them. So the probe runs once, before the ranks start, and its result
// is a name that all ranks get (choose_gemms_by_rule), that a record can hold and a flag can repeat.

// An implementation's time for one round of the probe's products: the minimum of its rounds, because other programs on
// its cores only add time; a program that uses the core's matrix unit does so for seconds, longer than all rounds.
// Infinite if the first round was too slow to continue.
struct GemmTime {
  std::string name;
  double seconds = 0;
};

// Times all implementations in alternating rounds, so that drift affects them equally. `run_s(i)` runs one round of
// names[i] and returns its seconds. The first round is a warm-up and drops those that take more than eight times as
// long as the fastest. Ends after five rounds if they took 40 ms together, and after 15 at the latest.
std::vector<GemmTime> time_in_turn(std::span<const std::string> names, const std::function<double(std::size_t)>& run_s);

// Returns the fastest; among those within 5 % of it, the first, so that repeated probes on one machine agree.
std::string fastest_gemm(std::span<const GemmTime> times);

// All implementations in the fixed order: ours, oneDNN.
inline constexpr std::array kGemmNames{"packed", "onednn"};
// Those that are built in and can compute products of this dtype here.
std::vector<std::string> gemm_implementations(core::DType dtype);

// Times these with this many threads: a layer of 256 inputs and 768 outputs, its forward and both gradients, with 128
// rows per thread; takes about 40 ms.
std::vector<GemmTime> probe_gemms(std::span<const std::string> names, core::DType dtype, int threads);

}  // namespace lockstep::kernels
