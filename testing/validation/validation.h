// Predictions compared with published measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"
#include "simulator/network/nccl.h"
#include "workload/operations.h"

namespace lockstep::simulator {

struct Score {
  std::size_t count = 0;
  double mean = 0;  // mean absolute relative error
  double max = 0;
};

// Score of those of `all`, comparisons of any of the three sorts below, to which nothing was fitted.
template <class Comparisons, class Of>
Score score_of(const Comparisons& all, Of of) {
  Score score;
  for (const auto& each : all) {
    if (each.is_fitted() || !of(each)) continue;
    ++score.count;
    score.mean += std::abs(each.error());
    score.max = std::max(score.max, std::abs(each.error()));
  }
  if (score.count > 0) score.mean /= static_cast<double>(score.count);
  return score;
}
template <class Comparisons>
Score score_of(const Comparisons& all) {
  return score_of(all, [](const auto&) { return true; });
}

// Validation of predicted times of collectives against published ones (collective_cases.json), and its tables.

// One published sweep of collectives, with equally many GPUs in each node.
struct CollectiveSweep {
  std::string table;  // table of the page
  std::string source;
  std::string machine;  // argument of load_machine()
  std::vector<CollectivePoint> points;
  std::vector<NcclNumber> fitted;    // numbers of the machine that were fitted to points of this sweep
  std::vector<double> fitted_bytes;  // sizes of these points; not in the score
};
// Throws a usage Error that names `where` and the field.
std::vector<CollectiveSweep> parse_sweeps(std::string_view json, const std::string& where);

struct ValidatedCollective {
  std::string table;
  std::string machine;
  CollectivePoint of;
  std::string way;  // algorithm and protocol chosen by NCCL's tuner
  double us = 0;
  bool fitted = false;
  bool is_fitted() const { return fitted; }
  double error() const { return us / of.us - 1; }
};
std::vector<ValidatedCollective> validate(std::span<const CollectiveSweep> sweeps);

// The sweep's machine with its fitted numbers refitted.
Machine refitted(const CollectiveSweep& sweep);

// One of the sweeps' tables, "collective_score", or "ring_tree" (8 H100). Empty if there is no table of that name.
std::string collective_table(std::string_view name, std::span<const ValidatedCollective> all);

// Validation of predicted times of matrix products against published ones (product_cases.json), and its table. It tests
// the dependence on the shape: two numbers of each sweep are fitted to a quarter of its products.

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
  bool is_fitted() const { return fitted; }
  double error() const { return us / of.us() - 1; }
};
std::vector<ValidatedProduct> validate(std::span<const ProductSweep> sweeps);

// The sweep with `share` and `other_us` refitted.
ProductSweep refitted(ProductSweep sweep);

// The table, with a row per sweep.
std::string product_table(std::span<const ProductSweep> sweeps);

// Validation of predictions against published runs: the cases (cases.json), the simulator's result for each, and the
// page with both (docs/validation.md).

struct ValidationCase {
  std::string table;         // table of the page: "sc21", "layer", ...
  std::string machine = {};  // argument of load_machine()
  std::string grid = {};     // name of a set of layouts of one model on equally many GPUs; may be empty
  std::string title;
  std::string model;   // argument of parse_model()
  std::string layout;  // argument of parse_layout()
  // "tflops_per_gpu", "step_s"; of a layer "forward_ms", "backward_ms", with experts_ before: of its mixture, with
  // attention_ before: of its attention, exchanges of context ranks with it; "attention_both_ms": forward and backward;
  // "hidden_ktokens": 1,000 tokens of a context rank, from which on a ring's exchange of keys and values takes no
  // longer than the attention of a block, of which a rank has six; "sent_nh": elements that a rank sends in a layer's
  // forward, over tokens of a sequence x hidden.
  std::string measure;
  double published = 0;
  bool is_formula = false;  // the published value follows from a formula: not in the overall score
  // Rates of an ideal device and link, without latencies, that replace the machine. 0: use the machine.
  double ideal_tflops = 0;
  double ideal_gbps = 0;
  // Factors of the machine's shares of products, and of products of 8-bit floats: a benchmark of one layer
  // runs at other clocks than a training does for hours.
  double product_factor = 1;
  double fp8_factor = 1;
  bool fitted = false;  // the machine's efficiencies were fitted to it: not in the score
};

struct ValidationCases {
  std::string machine;  // for cases that name none
  std::vector<ValidationCase> cases;
  std::vector<ValidationCase> on_machine() const;  // cases that name no other machine
};
// Throws a usage Error that names `where`, the case and the field.
ValidationCases parse_cases(std::string_view json, const std::string& where);

struct Validated {
  ValidationCase of;
  double predicted = 0;
  bool is_fitted() const { return of.fitted; }
  double error() const { return predicted / of.published - 1; }
};
Validated validate(const ValidationCase& of, const Machine& machine);
// Validates each case on its own machine.
std::vector<Validated> validate(std::span<const ValidationCase> cases);

// For a grid: the layout that is predicted fastest (and would be chosen), and the one that was fastest.
struct Choice {
  const Validated* chosen = nullptr;
  const Validated* best = nullptr;
  double regret() const { return chosen->of.published / best->of.published - 1; }
};
std::vector<Choice> choices_of(std::span<const Validated> all);

// Row of a table of scores.
std::string score_row(std::string_view title, const Score& score);

// A page has blocks between "<!-- table NAME -->" and "<!-- end -->"; each is replaced by the table of that name, the
// blocks "score" and "collective_score" by the scores, "products" by the products' scores, "regret" by the choices.
// Throws a usage Error if a block has no end or no table.
std::string with_tables(const std::string& page, std::span<const Validated> all,
                        std::span<const ValidatedCollective> collectives, std::span<const ProductSweep> products);

// Fits the one efficiency of a machine description that depends on published runs.

// The machine with its shares of products (attention included) multiplied by a factor.
Machine scaled(Machine machine, double product_factor);

// The factor with the least sum of squared relative errors over the runs marked as fitted (Gauss-Newton); all cases
// must be on that machine. It is 1 for a description that is already fitted.
double fit_product_share(std::span<const ValidationCase> cases, const Machine& machine);

}  // namespace lockstep::simulator
