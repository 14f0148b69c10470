// Predicted times of matrix products beside published ones (product_cases.json), and the table of both. They test how
// the time depends on the shape: two numbers of each sweep are fitted to a quarter of its products.
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
  std::string table;  // of the page: a row of "products"
  std::string source;
  std::string machine;  // as load_machine() takes it
  double share = 1;     // of the peak, that full waves reach on a GPU that does nothing else; in place of the machine's
  double other_us = 0;  // launch and what the timing adds; in place of the machine's launch_us
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

// The sweep with the share and the other time that fit best.
ProductSweep refitted(ProductSweep sweep);

struct Score;
Score score_of(std::span<const ValidatedProduct> all);
// A row for each sweep.
std::string product_table(std::span<const ProductSweep> sweeps);

}  // namespace lockstep::simulator
