// Which implementation computes a product: the fastest of those that can, measured when a pool first meets its shape.
//
// A pool keeps its choices (ThreadPool::kept), so that there is nothing global and nothing to lock: a pool is used by
// one thread at a time, and the number of threads, on which the choice depends, is the pool's.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gemm/gemm_implementation.h"

namespace lockstep::kernels {

enum class Split : std::uint8_t { rows, columns };  // of c, between the pool's threads

class GemmChoice {
 public:
  explicit GemmChoice(int num_threads);
  static GemmChoice& of(ThreadPool& pool);

  // Only the implementation of this name is used from now on, or, for "own", the best of ours; "" lifts that. Throws a
  // usage Error if there is none such; products that it cannot compute throw one, too.
  void force(std::string_view name);
  // All implementations that are here, in the fixed order: AMX, ours for any CPU, oneDNN.
  std::vector<std::string> names() const;
  std::vector<std::string> names(core::DType dtype) const;  // of those, the ones that multiply it

  // From now on the choice follows from the product alone, and so repeats in every process of the same machine: the
  // implementation called `first`, or, where it cannot compute the product or `first` is empty, the first of names()
  // that can; split so that threads compute and pack the least. Otherwise the choice is measured. Throws a usage Error
  // if there is no such implementation.
  void choose_by_rule(std::string_view first);

  // Where the choice is open, runs the product several times to measure.
  void run(const Product& product, ThreadPool& pool);
  // Products that differ in m or k alone (groups of rows of unlike lengths), side by side: each thread gets as much
  // work as the others. One implementation computes all; where the choice is open it is measured on the largest, once
  // for all lengths up to the same power of two.
  void run_ragged(std::span<const Product> products, ThreadPool& pool);
  // The implementation that computes it: "onednn by rows". For reports; empty if the product was not met yet.
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
  std::string forced_;
  bool by_rule_ = false;
  std::string first_;                                           // by rule
  std::map<std::pair<std::string, Product::Key>, Plan> plans_;  // by what was forced, and the product
};

}  // namespace lockstep::kernels
