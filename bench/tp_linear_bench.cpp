// tp_linear_bench: tensor-parallel layers. The table, the records and the exit status.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/program/program.h"
#include "bench/serve/orders.h"
#include "bench/step/part.h"
#include "bench/tp_linear_bench/tp_linear.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/record.h"

namespace lockstep::tp_linear {
namespace {

using step_bench::Mode;
using step_bench::PartResult;

// Sums over all rows, for the closing line.
struct Totals {
  int rows = 0;
  int wrong_rows = 0;
  // With one tile, by mode; and with the fastest number of tiles of each layer.
  std::array<double, step_bench::kNumModes> in_one_us = {};
  double in_best_us = 0;
};

constexpr const char* kGroup = " {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}";

// Half the distance between the 5th and the 95th percentile, relative to the median.
double spread_percent(const std::vector<double>& samples) {
  const core::Summary summary = core::summarize(samples);
  return summary.median > 0 ? 50 * (summary.p95 - summary.p5) / summary.median : 0;
}

std::string group_text(const PartResult& form, Direction direction) {
  const auto ms = [&](Mode mode) { return fmt::format("{:.3f}", form.times.median_us(mode, direction) / 1e3); };
  const double products_us = form.times.median_spent(Mode::kernels, direction).front();
  return fmt::format(fmt::runtime(kGroup), fmt::format("{:.3f}", products_us / 1e3), ms(Mode::kernels),
                     ms(Mode::exchanges), ms(Mode::serial), ms(Mode::overlapped),
                     fmt::format("{:.3f}", std::max(form.times.exposed_us(Mode::overlapped, direction), 0.0) / 1e3),
                     fmt::format("{:.0f}", spread_percent(form.times.samples(Mode::overlapped, direction))));
}

const char* verdict(const PartResult& form) {
  if (form.wrong() != 0) return "  WRONG";
  return form.is_wrong() ? "  WRONG BYTES" : "";
}

// The ranks of a case: their number, or their grid.
std::string ranks_text(const Case& one) {
  return one.grid ? workload::text_of(*one.grid) : std::to_string(one.ranks);
}

std::size_t ranks_width(const TpLinearFlags& flags) {
  std::size_t width = 3;
  for (const workload::Grid& grid : flags.grids) width = std::max(width, workload::text_of(grid).size());
  return width;
}

std::string columns_text(std::size_t width) {
  const std::string names =
      fmt::format(fmt::runtime(kGroup), "gemm", "kernels", "comm", "serial", "async", "exposed", "+-");
  const std::string units = fmt::format(fmt::runtime(kGroup), "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(%)");
  const std::string cells = "#{:>13} {:>{}} {:>3} {:>5}{}{} {:>10} {:>10} {:>6} {:>7} {:>11}\n";
  return fmt::format("#{:>{}}{:^63}{:^63}\n", "", 24 + width, "forward", "backward") +
         fmt::format(fmt::runtime(cells), "layer", "tp", width, "sp", "tiles", names, names, "sent", "formula",
                     "#wrong", "#unlike", "memory") +
         fmt::format(fmt::runtime(cells), "", "", width, "", "", units, units, "(B/rank)", "(B/rank)", "", "",
                     "(B/rank)");
}

std::string heading_text(const TpLinearFlags& flags) {
  const Shape& shape = flags.shape;
  std::string text = fmt::format(
      "# lockstep version {}, {}: tensor-parallel layers, forward and backward, run in four ways\n"
      "# h {}, {} heads, {} sequences of {} tokens, vocabulary {}; {}; {} thread{} per rank\n",
      core::build().version, flags.program, shape.hidden, shape.heads, shape.batch, shape.length, shape.vocabulary,
      core::short_name_of(shape.dtype), flags.threads, flags.threads == 1 ? "" : "s");
  text += fmt::format("# collectives: {}; {}\n", flags.algorithm, step_bench::place_text(flags, most_ranks(flags)));
  text +=
      "# kernels: all kernels alone; gemm: the part of it in matrix products; comm: communication alone; serial: one "
      "after\n"
      "#   the other; async: communication runs concurrently with kernels that do not need it; exposed: median of "
      "async "
      "-\n"
      "#   kernels; +-: half of p5 to p95 of async, relative to its median\n"
      "# sp: each rank has a share of the rows between layers; tiles of rows: one is exchanged during the product of "
      "the "
      "next\n"
      "# sent: bytes counted in the plans that ran, mean of ranks, forward and backward; formula: minimum\n"
      "#   (docs/metrics.md); #wrong: elements that differ from one rank's by more than rounding; #unlike: elements "
      "whose\n"
      "#   bits differ from one tile, serial; both over all rounds; memory: most that a rank holds for the layer: weights, "
      "activations,\n"
      "#   gradients, buffers of exchanges. Times are medians of the slowest rank's; each round runs all ways\n";
  if (!flags.grids.empty()) {
    text +=
        "# on grids (docs/metrics.md): layers without biases; gradients of weights are summed in f32; the next panel "
        "is "
        "fetched\n"
        "#   during the product of the one before it\n";
  }
  return text + columns_text(ranks_width(flags));
}

std::string row_text(const TpLinearFlags& flags, const Case& one, int tiles, const PartResult& form) {
  return fmt::format(" {:>13} {:>{}} {:>3} {:>5}{}{} {:>10.0f} {:>10.0f} {:>6} {:>7} {:>11}{}\n", name_of(one.block),
                     ranks_text(one), ranks_width(flags), one.sequence_parallel ? 1 : 0, tiles,
                     group_text(form, Direction::forward), group_text(form, Direction::backward),
                     form.sent_bytes() / one.ranks, form.formula_bytes() / one.ranks, form.wrong(), form.unlike(),
                     form.memory_bytes(), verdict(form));
}

void add_to(Totals& totals, const std::vector<PartResult>& forms) {
  for (const PartResult& form : forms) {
    ++totals.rows;
    totals.wrong_rows += form.is_wrong() ? 1 : 0;
  }
  for (std::size_t w = 0; w < totals.in_one_us.size(); ++w) {
    totals.in_one_us[w] += forms.front().times.median_us(static_cast<Mode>(w));
  }
  const PartResult* best = &forms.front();  // more tiles only where they are faster for certain
  for (const PartResult& form : forms) {
    if (core::is_slower(best->times.both(Mode::overlapped), form.times.both(Mode::overlapped))) best = &form;
  }
  totals.in_best_us += best->times.median_us(Mode::overlapped);
}

std::string ending_text(const Totals& totals) {
  const auto ms = [&](Mode mode) { return totals.in_one_us[static_cast<std::size_t>(mode)] / 1e3; };
  return fmt::format(
      "# {} of {} rows wrong. All layers, forward and backward: kernels {:.3f} ms and communication {:.3f} ms alone; "
      "one after the other {:.3f} ms; concurrently {:.3f} ms in one tile, {:.3f} ms in more tiles where these are "
      "faster for certain\n",
      totals.wrong_rows, totals.rows, ms(Mode::kernels), ms(Mode::exchanges), ms(Mode::serial), ms(Mode::overlapped),
      totals.in_best_us / 1e3);
}

core::NamedNumbers sizes_of(const Shape& shape) {
  return {{"batch", static_cast<double>(shape.batch)},
          {"length", static_cast<double>(shape.length)},
          {"hidden", static_cast<double>(shape.hidden)},
          {"heads", static_cast<double>(shape.heads)},
          {"vocabulary", static_cast<double>(shape.vocabulary)}};
}

void add_verdict(core::LayerRecord& record, const PartResult& form) {
  record.checked_passes = form.checked_passes;
  record.wrong = form.wrong();
  record.unlike = form.unlike();
  if (!form.is_wrong()) return;
  record.status = "wrong";
  record.error = form.wrong() != 0
                     ? fmt::format("{} elements differ from one rank's by more than rounding", form.wrong())
                     : fmt::format("{:.0f} bytes sent per rank, but the exchanges of the layer need {:.0f}",
                                   record.sent_bytes, record.formula_bytes);
}

core::LayerRecord layer_record(const core::RunRecord& run, const TpLinearFlags& flags, const Case& one, int tiles,
                               const PartResult& form) {
  core::LayerRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.layer = name_of(one.block);
  record.ranks = one.ranks;
  if (one.grid) record.grid = workload::text_of(*one.grid);
  record.threads = flags.threads;
  record.sequence_parallel = one.sequence_parallel;
  record.tiles = tiles;
  record.dtype = core::short_name_of(flags.shape.dtype);
  record.sizes = sizes_of(flags.shape);
  record.algorithm = flags.algorithm;
  record.times = form.times.records(step_bench::kKindShares);
  record.sent_bytes = form.sent_bytes() / one.ranks;
  record.formula_bytes = form.formula_bytes() / one.ranks;
  record.forward_sent_bytes = form.sent_bytes(Direction::forward) / one.ranks;
  record.memory_bytes = static_cast<double>(form.memory_bytes());
  record.energy = form.energy;
  add_verdict(record, form);
  return record;
}

int serve_layer(const TpLinearFlags& flags) {
  const std::vector<Case> cases = cases_of(flags);
  serve::check_one(cases.size(), "layer");
  serve_case(flags, cases.front());
  return 0;
}

// Runs every case that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_tp_linear(const TpLinearFlags& flags, const program::Print& print) {
  check_cases(flags);
  if (flags.serve) return serve_layer(flags);
  const bool tells = program::tells(flags.mpi);
  core::RecordWriter writer(tells ? flags.json_file : "");
  const core::RunRecord run = part_run_record(flags, most_ranks(flags), step_bench::kLayerSeed);
  writer.write(run);
  print(heading_text(flags));
  Totals totals;
  std::map<std::pair<Block, bool>, Reference> references;  // those of layers on grids separately
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& one : cases) {
    const std::pair key(one.block, one.grid.has_value());
    if (references.count(key) == 0) {
      references[key] = reference_of(one, flags.shape, flags.threads);
    }
    const std::vector<PartResult> forms = run_case(flags, one, references[key]);
    for (std::size_t f = 0; f < forms.size(); ++f) {
      print(row_text(flags, one, one.tiles[f], forms[f]));
      const bool is_last = &one == &cases.back() && f + 1 == forms.size();
      if (forms[f].energy || is_last) print(forms[f].energy_text);
      if (writer.is_open()) writer.write(layer_record(run, flags, one, one.tiles[f], forms[f]));
    }
    add_to(totals, forms);
  }
  print(ending_text(totals));
  writer.commit();
  return totals.wrong_rows > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

int run(int argc, char** argv) {
  TpLinearFlags flags = parse_tp_linear_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.timeout, [&](transports::MpiWorld* mpi) {
    flags.mpi = mpi;
    if (mpi != nullptr && flags.all_ranks) flags.ranks = {mpi->placement().num_ranks};
    return run_tp_linear(flags, program::print_of(mpi));
  });
}

}  // namespace
}  // namespace lockstep::tp_linear

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("tp_linear_bench", [&] { return lockstep::tp_linear::run(argc, argv); });
}
