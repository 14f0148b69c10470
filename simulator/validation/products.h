// Validation of predicted times of matrix products against published ones (product_cases.json), and its table. It tests
// the dependence on the shape: two numbers of each sweep are fitted to a quarter of its products.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workload/kernel_call.h"

namespace lockstep::simulator {

struct PublishedProduct {
  workload::Product shape;
  double tflops = 0;
  double us() const { return shape.flops() / tflops / 1e6; }
};

struct ProductSweep {
  std::string table;  // row of the page's table "products"
  std::string source;
  std::string machine;  // argument of load_machine()
  double share = 1;     // share of the peak that full waves reach on an otherwise idle GPU; replaces the machine's
  double other_us = 0;  // launch and overhead of the timing; replaces the machine's launch_us
  std::vector<PublishedProduct> products;
};
// Throws a usage Error that names `where` and the field.
std::vector<ProductSweep> parse_product_sweeps(std::string_view json, const std::string& where);

struct ValidatedProduct {
  std::string table;
  PublishedProduct of;
  double us = 0;
  bool fitted = false;  // share and other_us were fitted to it
  double error() const { return us / of.us() - 1; }
};
std::vector<ValidatedProduct> validate(std::span<const ProductSweep> sweeps);

// The sweep with `share` and `other_us` fitted anew.
ProductSweep refitted(ProductSweep sweep);

struct Score;
Score score_of(std::span<const ValidatedProduct> all);
// The table, with a row per sweep.
std::string product_table(std::span<const ProductSweep> sweeps);

}  // namespace lockstep::simulator
