// The text that tp_linear_bench prints.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/tp_linear/flags.h"
#include "bench/tp_linear/run.h"

namespace lockstep::tp_linear {

std::string heading_text(const TpLinearFlags& flags);
std::string row_text(const TpLinearFlags& flags, const Case& one, const Form& form);

// Sums over all rows, for the closing line.
struct Totals {
  int rows = 0;
  int wrong_rows = 0;
  // With one tile, by way; and with the fastest number of tiles of each layer.
  std::array<double, kNumWays> in_one_us = {};
  double in_best_us = 0;
};
void add_to(Totals& totals, const std::vector<Form>& forms);
std::string ending_text(const Totals& totals);

}  // namespace lockstep::tp_linear
