// The text that tp_linear_bench prints.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/parallel_layers/flags.h"
#include "bench/parallel_layers/run.h"

namespace lockstep::layer_bench {

std::string heading_text(const LayerFlags& flags);
std::string row_text(const LayerFlags& flags, const Case& one, const Form& form);

// Sums over all rows, for the closing line.
struct Totals {
  int rows = 0;
  int wrong_rows = 0;
  // One tile: of each way; and of each layer the number of tiles that is fastest.
  std::array<double, kNumWays> in_one_us = {};
  double in_best_us = 0;
};
void add_to(Totals& totals, const std::vector<Form>& forms);
std::string ending_text(const Totals& totals);

}  // namespace lockstep::layer_bench
