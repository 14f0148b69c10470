// Which implementation computes a product: the fastest of those that can, measured when a pool first meets its shape.
//
// A pool keeps its choices (ThreadPool::kept), so that there is nothing global and nothing to lock: a pool is used by
// one thread at a time, and the number of threads, on which the choice depends, is the pool's.
#pragma once

#include <map>
#include <memory>
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
  std::vector<std::string> names() const;

  // From now on the choice follows from the product alone, and so repeats in every process of the same machine: ours
  // before oneDNN, AMX before the others, and split so that threads compute and pack the least. Else it is measured.
  void choose_by_rule() { by_rule_ = true; }

  // Where the choice is open, runs the product several times to measure.
  void run(const Product& product, ThreadPool& pool);
  // What computes it: "onednn by rows". For reports; empty if the product was not met yet.
  std::string chosen(const Product& product) const;

 private:
  struct Plan {
    GemmImplementation* implementation;
    Split split;
  };
  std::vector<Plan> candidates(const Product& product) const;
  const Plan& plan_for(const Product& product, ThreadPool& pool);
  static void run_plan(const Plan& plan, const Product& product, ThreadPool& pool);
  Plan by_rule(const std::vector<Plan>& plans, const Product& product) const;
  static Plan fastest(const std::vector<Plan>& plans, const Product& product, ThreadPool& pool);

  int num_threads_;
  std::vector<std::unique_ptr<GemmImplementation>> implementations_;
  std::string forced_;
  bool by_rule_ = false;
  std::map<std::pair<std::string, Product::Key>, Plan> plans_;  // by what was forced, and the product
};

}  // namespace lockstep::kernels
