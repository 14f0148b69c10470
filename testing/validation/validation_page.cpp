// Rewrites the tables of docs/validation.md: validation_page DIRECTORY PAGE, where DIRECTORY has cases.json,
// collective_cases.json and product_cases.json. Prints the scores and the best fits.
#include <fmt/format.h>

#include <cstdio>

#include "core/error.h"
#include "core/options.h"
#include "core/output_file.h"
#include "testing/validation/validation.h"

namespace {

namespace core = lockstep::core;
namespace simulator = lockstep::simulator;

std::vector<simulator::ValidatedCollective> validate_collectives(const std::string& path) {
  const auto sweeps = simulator::parse_sweeps(core::text_of_file(path, "a file of cases"), path);
  auto all = simulator::validate(sweeps);
  for (const simulator::ValidatedCollective& each : all) {
    fmt::print("{:10} {:3} {:12.0f} {:12} {:9.1f} {:9.1f} {:+6.1f} %{}\n", each.machine, each.of.ranks, each.of.bytes,
               each.way, each.of.us, each.us, 100 * each.error(), each.fitted ? " fitted" : "");
  }
  for (const simulator::CollectiveSweep& sweep : sweeps) {
    const simulator::Machine best = refitted(sweep);
    for (const simulator::NcclNumber number : sweep.fitted) {
      fmt::print("best fit: {} {} {:.4f}\n", sweep.machine, simulator::kNcclNumbers[static_cast<std::size_t>(number)],
                 value_of(best, number));
    }
  }
  const simulator::Score score = simulator::score_of(all);
  fmt::print("{} collectives: mean {:.2f} %, max {:.2f} %\n", score.count, 100 * score.mean, 100 * score.max);
  return all;
}

std::vector<simulator::ProductSweep> validate_products(const std::string& path) {
  auto sweeps = simulator::parse_product_sweeps(core::text_of_file(path, "a file of cases"), path);
  for (const simulator::ProductSweep& sweep : sweeps) {
    for (const simulator::ValidatedProduct& each : simulator::validate(std::span(&sweep, 1))) {
      fmt::print("{:20} {:5.0f} {:5.0f} {:5.0f} {:9.1f} {:9.1f} {:+6.1f} %{}\n", each.table, each.of.shape.m,
                 each.of.shape.n, each.of.shape.k, each.of.us(), each.us, 100 * each.error(),
                 each.fitted ? " fitted" : "");
    }
    const simulator::ProductSweep best = refitted(sweep);
    fmt::print("best fit: {} share {:.4f} other_us {:.2f}\n", sweep.table, best.share, best.other_us);
  }
  return sweeps;
}

void write_page(const std::string& directory, const std::string& page_path) {
  const std::string cases_path = directory + "/cases.json";
  const auto collectives = validate_collectives(directory + "/collective_cases.json");
  const auto products = validate_products(directory + "/product_cases.json");
  const simulator::ValidationCases cases =
      simulator::parse_cases(core::text_of_file(cases_path, "a file of cases"), cases_path);
  const simulator::Machine described = simulator::load_machine(cases.machine);
  const auto all = simulator::validate(cases.cases);
  for (const simulator::Validated& each : all) {
    fmt::print("{:6} {:45} {:12} {:8.2f} {:8.2f} {:+6.1f} %{}\n", each.of.table, each.of.title, each.of.measure,
               each.of.published, each.predicted, 100 * each.error(), each.of.fitted ? " fitted" : "");
  }
  const simulator::Score score = simulator::score_of(all);
  fmt::print("{} cases: mean {:.2f} %, max {:.2f} %\n", score.count, 100 * score.mean, 100 * score.max);
  fmt::print("best fit: share of products x {:.4f}\n", simulator::fit_product_share(cases.on_machine(), described));
  core::AtomicFile file(page_path);
  file.write(simulator::with_tables(core::text_of_file(page_path, "docs/validation.md"), all, collectives, products));
  file.commit();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw core::usage_error("usage: validation_page DIRECTORY_OF_CASES PAGE");
    write_page(argv[1], argv[2]);
    return 0;
  } catch (const core::Error& error) {
    std::fprintf(stderr, "validation_page: %s\n", error.what());
    return error.exit_status();
  }
}
