// tp_linear_bench: tensor-parallel layers. The table, the records and the exit status.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/program/columns.h"
#include "bench/program/program.h"
#include "bench/program/run_records.h"
#include "bench/serve/orders.h"
#include "bench/step/part.h"
#include "bench/tp_linear_bench/tp_linear.h"
#include "core/provenance.h"
#include "core/record.h"

namespace lockstep::tp_linear {
namespace {

using step_bench::Mode;
using step_bench::PartResult;

// Sums over all rows, for the closing line.
struct Totals {
  // With one tile, by mode; and with the fastest number of tiles of each layer.
  std::array<double, step_bench::kNumModes> in_one_us = {};
  double in_best_us = 0;
};

// Half the distance between the 5th and the 95th percentile, relative to the median.
double spread_percent(const std::vector<double>& samples) {
  const core::Summary summary = core::summarize(samples);
  return summary.median > 0 ? 50 * (summary.p95 - summary.p5) / summary.median : 0;
}

// The ranks of a case: their number, or their grid.
std::string ranks_text(const Case& bench_case) {
  return bench_case.grid ? workload::text_of(*bench_case.grid) : std::to_string(bench_case.ranks);
}

int ranks_width(const TpLinearFlags& flags) {
  std::size_t width = 3;
  for (const workload::Grid& grid : flags.grids) width = std::max(width, workload::text_of(grid).size());
  return static_cast<int>(width);
}

struct Row {
  const Case& one;
  int tiles;
  const PartResult& form;

  const PartResult& part() const { return form; }
  double sent_bytes() const { return form.sent_bytes() / one.ranks; }
  double formula_bytes() const { return form.formula_bytes() / one.ranks; }
};
using Columns = std::vector<program::Column<Row>>;

// Parts of the times of a direction.
Columns time_columns(Direction direction) {
  const std::string group = step_bench::name_of(direction);
  Columns columns{{{"gemm", "(ms)", 9, group}, program::kUsAsMs, [direction](auto& r) {
                     return r.form.times.median_spent(Mode::kernels, direction).front();
                   }}};
  const Columns of_modes = step_bench::mode_columns<Row>(direction);
  columns.insert(columns.end(), of_modes.begin(), of_modes.end());
  columns.push_back({{"exposed", "(ms)", 9, group}, program::kUsAsMs, [direction](auto& r) {
                       return std::max(r.form.times.exposed_us(Mode::overlapped, direction), 0.0);
                     }});
  columns.push_back({{"+-", "(%)", 6, group}, program::kWhole, [direction](auto& r) {
                       return spread_percent(r.form.times.samples(Mode::overlapped, direction));
                     }});
  return columns;
}

Columns columns(const TpLinearFlags& flags) {
  using program::count;
  using program::figure;
  using program::kWhole;
  Columns columns{{{"layer", "", 13}, [](auto& r) { return name_of(r.one.block); }},
                  {{"tp", "", ranks_width(flags)}, [](auto& r) { return ranks_text(r.one); }},
                  {{"sp", "", 3}, kWhole, [](auto& r) { return r.one.sequence_parallel; }},
                  {{"tiles", "", 5}, kWhole, [](auto& r) { return r.tiles; }}};
  for (const Direction direction : step_bench::kDirections) {
    const Columns times = time_columns(direction);
    columns.insert(columns.end(), times.begin(), times.end());
  }
  columns.insert(
      columns.end(),
      {{{"sent", "(B/rank)", 10}, kWhole, [](auto& r) { return r.sent_bytes(); }, count("sent_bytes")},
       {{"formula", "(B/rank)", 10}, kWhole, [](auto& r) { return r.formula_bytes(); }, count("formula_bytes")},
       {{"#wrong", "", 6}, kWhole, [](auto& r) { return r.form.wrong(); }, count("wrong")},
       {{"#unlike", "", 7}, kWhole, [](auto& r) { return r.form.unlike(); }, figure("unlike")},
       {{"memory", "(B/rank)", 11}, kWhole, [](auto& r) { return r.form.memory_bytes(); }, figure("memory_bytes")},
       {figure("forward_sent_bytes"), [](auto& r) { return r.form.sent_bytes(Direction::forward) / r.one.ranks; }}});
  return columns;
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
      "# kernels: all kernels alone; gemm: their time in matrix products; comm: communication alone; serial: one "
      "after\n"
      "#   the other; async: communication runs concurrently with kernels that do not need it; exposed: median of "
      "async -\n"
      "#   kernels; +-: half of p5 to p95 of async, relative to its median\n"
      "# sp: each rank has a share of the rows between layers; tiles of rows: one is exchanged during the product of "
      "the next\n"
      "# sent: bytes counted in the plans that ran, mean of ranks, forward and backward; formula: minimum\n"
      "#   (docs/metrics.md); #wrong: elements that differ from one rank's by more than rounding; #unlike: elements "
      "whose\n"
      "#   bits differ from one tile, serial; both over all rounds; memory: most that a rank holds for the layer: "
      "weights, activations,\n"
      "#   gradients, buffers of exchanges. Times are medians of the slowest rank's; each round runs all ways\n";
  if (!flags.grids.empty()) {
    text +=
        "# on grids (docs/metrics.md): layers without biases; gradients of weights are summed in f32; the next panel "
        "is fetched\n"
        "#   during the product of the one before it\n";
  }
  return text;
}

void add_to(Totals& totals, const std::vector<PartResult>& forms) {
  for (std::size_t w = 0; w < totals.in_one_us.size(); ++w) {
    totals.in_one_us[w] += forms.front().times.median_us(static_cast<Mode>(w));
  }
  const PartResult* best = &forms.front();  // more tiles only where they are faster for certain
  for (const PartResult& form : forms) {
    if (core::is_slower(best->times.both(Mode::overlapped), form.times.both(Mode::overlapped))) best = &form;
  }
  totals.in_best_us += best->times.median_us(Mode::overlapped);
}

std::string ending_text(const Totals& totals, std::size_t rows, std::size_t wrong) {
  const auto ms = [&](Mode mode) { return totals.in_one_us[static_cast<std::size_t>(mode)] / 1e3; };
  return fmt::format(
      "# {} of {} rows wrong. All layers, forward and backward: kernels {:.3f} ms and communication {:.3f} ms alone; "
      "serially {:.3f} ms; concurrently {:.3f} ms in one tile, {:.3f} ms in more tiles where these are faster for "
      "certain\n",
      wrong, rows, ms(Mode::kernels), ms(Mode::exchanges), ms(Mode::serial), ms(Mode::overlapped),
      totals.in_best_us / 1e3);
}

std::string wrong_text(const Case& bench_case, const PartResult& form) {
  if (!form.is_wrong()) return "";
  if (form.wrong() != 0) return fmt::format("{} elements differ from one rank's by more than rounding", form.wrong());
  return fmt::format("{:.0f} bytes sent per rank, but the exchanges of the layer need {:.0f}",
                     form.sent_bytes() / bench_case.ranks, form.formula_bytes() / bench_case.ranks);
}

core::StepRecord layer_record(const core::RunRecord& run, const TpLinearFlags& flags, const Case& bench_case, int tiles,
                              const PartResult& form) {
  const Shape& shape = flags.shape;
  core::StepRecord record = program::new_step_record(run, "layer", bench_case.ranks, flags.threads, shape.dtype);
  record.choices = {{"layer", name_of(bench_case.block)},
                    {"grid", bench_case.grid ? workload::text_of(*bench_case.grid) : "none"},
                    {"sequence_parallel", bench_case.sequence_parallel},
                    {"tiles", tiles},
                    {"algorithm", flags.algorithm}};
  record.sizes = {{"batch", shape.batch},
                  {"length", shape.length},
                  {"hidden", shape.hidden},
                  {"heads", shape.heads},
                  {"vocabulary", shape.vocabulary}};
  add_part(form, step_bench::kKindShares, record);
  program::set_error(wrong_text(bench_case, form), record);
  return record;
}

int serve_layer(const TpLinearFlags& flags) {
  const std::vector<Case> cases = cases_of(flags);
  serve::check_one(cases.size(), "layer");
  serve_case(flags, cases.front());
  return 0;
}

// Runs all requested cases, prints a table and writes the records. Returns the exit status: 0, or
// core::Failure's if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_tp_linear(const TpLinearFlags& flags, const program::Print& print) {
  check_cases(flags);
  if (flags.serve) return serve_layer(flags);
  const core::RunRecord run = part_run_record(flags, most_ranks(flags), step_bench::kLayerSeed);
  program::StepTable<Row> table(columns(flags), print, program::writes_output(flags.mpi) ? flags.json_file : "");
  table.begin(heading_text(flags));
  table.write(run);
  Totals totals;
  std::map<std::pair<Block, bool>, Reference> references;  // layers on grids separately
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& bench_case : cases) {
    const std::pair key(bench_case.block, bench_case.grid.has_value());
    if (references.count(key) == 0) {
      references[key] = reference_of(bench_case, flags.shape, flags.threads);
    }
    const std::vector<PartResult> forms = run_case(flags, bench_case, references[key]);
    for (std::size_t f = 0; f < forms.size(); ++f) {
      const bool is_last = &bench_case == &cases.back() && f + 1 == forms.size();
      table.add({bench_case, bench_case.tiles[f], forms[f]},
                layer_record(run, flags, bench_case, bench_case.tiles[f], forms[f]), energy_text(forms[f], is_last));
    }
    add_to(totals, forms);
  }
  return table.end(ending_text(totals, table.rows(), table.wrong()));
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
