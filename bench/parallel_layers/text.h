// What tp_linear_bench prints.
#pragma once

#include <string>
#include <vector>

#include "bench/parallel_layers/flags.h"
#include "bench/parallel_layers/run.h"

namespace lockstep::layer_bench {

std::string heading_text(const LayerFlags& flags);
std::string row_text(const Case& one, const Form& form);

// Of all rows, for the closing line.
struct Totals {
  int rows = 0;
  int wrong_rows = 0;
  double communication_us = 0;
  double exposed_in_one_us = 0;    // tile
  double exposed_in_tiles_us = 0;  // the best number of tiles of each layer
};
void add_to(Totals& totals, const std::vector<Form>& forms);
std::string ending_text(const Totals& totals);

}  // namespace lockstep::layer_bench
