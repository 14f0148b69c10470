// tp_linear_bench: tensor-parallel layers. The table, the records and the exit status.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/pipeline/output.h"
#include "bench/program/program.h"
#include "bench/serve/orders.h"
#include "bench/tp_linear/block.h"
#include "bench/tp_linear/tp_linear.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/record.h"

namespace lockstep::tp_linear {
namespace {

// Sums over all rows, for the closing line.
struct Totals {
  int rows = 0;
  int wrong_rows = 0;
  // With one tile, by way; and with the fastest number of tiles of each layer.
  std::array<double, kNumWays> in_one_us = {};
  double in_best_us = 0;
};

constexpr const char* kGroup = " {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}";

// Half the distance between the 5th and the 95th percentile, relative to the median.
double spread_percent(const std::vector<double>& samples) {
  const core::Summary summary = core::summarize(samples);
  return summary.median > 0 ? 50 * (summary.p95 - summary.p5) / summary.median : 0;
}

std::string group_text(const Form& form, Direction direction) {
  const auto ms = [&](Way way) { return fmt::format("{:.3f}", form.times.median_us(way, direction) / 1e3); };
  const double products_us = form.times.median_spent(Way::kernels, direction).front();
  return fmt::format(fmt::runtime(kGroup), fmt::format("{:.3f}", products_us / 1e3), ms(Way::kernels),
                     ms(Way::exchanges), ms(Way::one_by_one), ms(Way::beside),
                     fmt::format("{:.3f}", std::max(form.times.exposed_us(Way::beside, direction), 0.0) / 1e3),
                     fmt::format("{:.0f}", spread_percent(form.times.samples(Way::beside, direction))));
}

const char* verdict(const Form& form) {
  if (form.wrong != 0) return "  WRONG";
  return form.is_wrong() ? "  WRONG BYTES" : "";
}

std::string place_text(const TpLinearFlags& flags) {
  const backends::DeviceChoice& device = flags.place.device;
  const int most = most_ranks(flags);
  if (device.cuda) return program::gpus_text(device, most, flags.mpi) + (device.nccl ? "; NCCL's" : "");
  if (flags.mpi == nullptr) return "through this machine's memory";
  const bool beside = flags.mpi->threads() == transports::MpiThreads::multiple;
  return "MPI messages of " + flags.mpi->library_version() +
         (beside ? "" : "; communication cannot overlap with kernels: async equals serial");
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
  text += fmt::format("# collectives: {}; {}\n", flags.algorithm,
                      flags.link ? program::emulated_text(*flags.link) + "; kernels and reductions run on this machine"
                                 : place_text(flags));
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
      "#   bits differ from one tile, serial; both over all rounds; memory: held by a rank for the layer: matrices, "
      "gradients,\n"
      "#   buffers of exchanges. Times are medians of the slowest rank's; each round runs all ways\n";
  if (!flags.grids.empty()) {
    text +=
        "# on grids (docs/metrics.md): layers without biases; gradients of weights are summed in f32; the next panel "
        "is "
        "fetched\n"
        "#   during the product of the one before it\n";
  }
  return text + columns_text(ranks_width(flags));
}

std::string row_text(const TpLinearFlags& flags, const Case& one, const Form& form) {
  const auto a_rank = [&](std::int64_t bytes) {
    return fmt::format("{:.0f}", static_cast<double>(bytes) / static_cast<double>(form.checked_passes * one.ranks));
  };
  return fmt::format(" {:>13} {:>{}} {:>3} {:>5}{}{} {:>10} {:>10} {:>6} {:>7} {:>11}{}\n", name_of(one.block),
                     ranks_text(one), ranks_width(flags), one.sequence_parallel ? 1 : 0, form.tiles,
                     group_text(form, Direction::forward), group_text(form, Direction::backward),
                     a_rank(form.sent_bytes), a_rank(form.formula_bytes), form.wrong, form.unlike, form.memory_bytes,
                     verdict(form));
}

void add_to(Totals& totals, const std::vector<Form>& forms) {
  for (const Form& form : forms) {
    ++totals.rows;
    totals.wrong_rows += form.is_wrong() ? 1 : 0;
  }
  for (std::size_t w = 0; w < totals.in_one_us.size(); ++w) {
    totals.in_one_us[w] += forms.front().times.median_us(static_cast<Way>(w));
  }
  const Form* best = &forms.front();  // more tiles only where they are faster for certain
  for (const Form& form : forms) {
    if (core::is_slower(best->times.both(Way::beside), form.times.both(Way::beside))) best = &form;
  }
  totals.in_best_us += best->times.median_us(Way::beside);
}

std::string ending_text(const Totals& totals) {
  const auto ms = [&](Way way) { return totals.in_one_us[static_cast<std::size_t>(way)] / 1e3; };
  return fmt::format(
      "# {} of {} rows wrong. All layers, forward and backward: kernels {:.3f} ms and communication {:.3f} ms alone; "
      "one after the other {:.3f} ms; concurrently {:.3f} ms in one tile, {:.3f} ms in more tiles where these are "
      "faster for certain\n",
      totals.wrong_rows, totals.rows, ms(Way::kernels), ms(Way::exchanges), ms(Way::one_by_one), ms(Way::beside),
      totals.in_best_us / 1e3);
}

core::NamedNumbers sizes_of(const Shape& shape) {
  return {{"batch", static_cast<double>(shape.batch)},
          {"length", static_cast<double>(shape.length)},
          {"hidden", static_cast<double>(shape.hidden)},
          {"heads", static_cast<double>(shape.heads)},
          {"vocabulary", static_cast<double>(shape.vocabulary)}};
}

void add_verdict(core::LayerRecord& record, const Form& form) {
  record.checked_passes = form.checked_passes;
  record.wrong = form.wrong;
  record.unlike = form.unlike;
  if (!form.is_wrong()) return;
  record.status = "wrong";
  record.error = form.wrong != 0 ? fmt::format("{} elements differ from one rank's by more than rounding", form.wrong)
                                 : fmt::format("{:.0f} bytes sent per rank, but the exchanges of the layer need {:.0f}",
                                               record.sent_bytes, record.formula_bytes);
}

core::RunRecord run_record(const TpLinearFlags& flags) {
  const int most = most_ranks(flags);
  core::RunRecord run = pipeline::real_run_record(flags, most, flags.threads, kSeed, flags.link);
  program::add_place(flags.place.device, flags.mpi, most, run);
  return run;
}

core::LayerRecord layer_record(const core::RunRecord& run, const TpLinearFlags& flags, const Case& one,
                               const Form& form) {
  core::LayerRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.layer = name_of(one.block);
  record.ranks = one.ranks;
  if (one.grid) record.grid = workload::text_of(*one.grid);
  record.threads = flags.threads;
  record.sequence_parallel = one.sequence_parallel;
  record.tiles = form.tiles;
  record.dtype = core::short_name_of(flags.shape.dtype);
  record.sizes = sizes_of(flags.shape);
  record.algorithm = flags.algorithm;
  record.times = form.times.records();
  const auto rank_passes = static_cast<double>(form.checked_passes * one.ranks);
  record.sent_bytes = static_cast<double>(form.sent_bytes) / rank_passes;
  record.formula_bytes = static_cast<double>(form.formula_bytes) / rank_passes;
  record.forward_sent_bytes = static_cast<double>(form.forward_sent_bytes) / rank_passes;
  record.memory_bytes = static_cast<double>(form.memory_bytes);
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
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  print(heading_text(flags));
  Totals totals;
  std::map<std::pair<BlockKind, bool>, Reference> references;  // those of a grid's layers separately
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& one : cases) {
    const std::pair key(one.block, one.grid.has_value());
    if (references.count(key) == 0) {
      references[key] = one.grid ? grid_reference_of(one.block, flags.shape, flags.threads)
                                 : reference_of(one.block, flags.shape, flags.threads);
    }
    const std::vector<Form> forms = run_case(flags, one, references[key]);
    for (const Form& form : forms) {
      print(row_text(flags, one, form));
      const bool is_last = &one == &cases.back() && &form == &forms.back();
      if (form.energy || is_last) print(form.energy_text);
      if (writer.is_open()) writer.write(layer_record(run, flags, one, form));
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
