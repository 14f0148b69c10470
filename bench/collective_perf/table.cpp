#include "bench/collective_perf/table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string_view>

namespace lockstep::sweep {
namespace {

constexpr double kToleratedShare = 0.9;  // tolerated share of NCCL_TESTS_MIN_BW, as in nccl-tests

std::string device_line(const DeviceLine& line) {
  return fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] {}\n", line.rank, 0, line.process_id,
                     line.host, line.device, line.bus_id, line.name);
}

// A column that nccl-tests does not have: its two heading lines, its width, and a row's text.
struct ExtraCell {
  std::string_view name;
  std::string_view unit;
  int width;
  std::string text;
};

std::string real_text(const std::optional<double>& value, int width) {
  return value ? number_text(*value, width) : "N/A";
}

void append_explanation(std::vector<ExtraCell>& cells, const Columns& columns, const Row& row) {
  const PlanFacts facts = row.plan.value_or(PlanFacts{});
  cells.push_back({"steps", "", 6, row.plan ? fmt::format("{}", facts.steps) : "N/A"});
  cells.push_back({"wire", "(B/rank)", 12, row.plan ? fmt::format("{}", facts.wire_bytes_max) : "N/A"});
  cells.push_back({"predict", "(us)", 8, real_text(facts.predicted_us, 8)});
  if (columns.links) {
    cells.push_back({"links", "(us)", 8, real_text(facts.links_us, 8)});
    cells.push_back({"memory", "(us)", 8, real_text(facts.memory_us, 8)});
  }
  cells.push_back({"m/p", "", 6, real_text(row.out_of_place.measured_over_predicted, 6)});
  cells.push_back({"ip_m/p", "", 6, real_text(row.in_place.measured_over_predicted, 6)});
}

void append_percentiles(std::vector<ExtraCell>& cells, const Row& row) {
  const auto text = [](const Measured& measured, double core::Summary::*value) {
    return measured.failed || measured.absent ? std::string("N/A") : number_text(measured.samples.*value, 7);
  };
  cells.push_back({"p50", "(us)", 7, text(row.out_of_place, &core::Summary::median)});
  cells.push_back({"p95", "(us)", 7, text(row.out_of_place, &core::Summary::p95)});
  cells.push_back({"p99", "(us)", 7, text(row.out_of_place, &core::Summary::p99)});
  cells.push_back({"ip_p50", "(us)", 7, text(row.in_place, &core::Summary::median)});
  cells.push_back({"ip_p95", "(us)", 7, text(row.in_place, &core::Summary::p95)});
  cells.push_back({"ip_p99", "(us)", 7, text(row.in_place, &core::Summary::p99)});
}

std::vector<ExtraCell> extra_cells(const Columns& columns, const Row& row) {
  std::vector<ExtraCell> cells;
  if (columns.choice || columns.explain) {
    cells.push_back({"ranks", "", 5, fmt::format("{}", row.of.ranks)});
    if (columns.transport) cells.push_back({"transport", "", 9, row.of.transport});
    cells.push_back({"algorithm", "", 24, row.of.algorithm.empty() ? "N/A" : row.of.algorithm});
  }
  if (columns.explain) append_explanation(cells, columns, row);
  if (columns.stats) append_percentiles(cells, row);
  return cells;
}

// Width of nccl-tests' part of a row.
std::size_t own_width(const Columns& columns) {
  constexpr std::size_t row_begin = 52, group = 33, iteration_group = 36, timestamp = 21;
  return row_begin + 2 * (group + (columns.per_iteration ? iteration_group : 0)) + (columns.timestamps ? timestamp : 0);
}

// Appends our columns' headings to a heading line of nccl-tests.
std::string extended(std::string line, const Columns& columns, std::string_view ExtraCell::*heading) {
  const std::vector<ExtraCell> extra = extra_cells(columns, {});
  if (!extra.empty()) line.resize(own_width(columns), ' ');
  for (const ExtraCell& cell : extra) line += fmt::format("  {:>{}}", cell.*heading, cell.width);
  return line + "\n";
}

std::string placement_title(const Columns& columns) {
  const std::string begin = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "", "", "", "", "");
  if (columns.per_iteration) {
    return begin +
           "              out-of-place (+ per-iteration)                                in-place (+ per-iteration)";
  }
  return begin + "           out-of-place                       in-place          ";
}

std::string iteration_cells(const Columns& columns, const Measured& measured) {
  if (!columns.per_iteration) return "";
  if (measured.failed || measured.absent)
    return fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {}  {}  {}  {}", number_text(measured.samples.min, 7), number_text(measured.samples.max, 7),
                     number_text(measured.samples.p99, 7), number_text(measured.cv_percent(), 7));
}

std::string placement_text(const Columns& columns, const Measured& measured) {
  if (measured.failed || measured.absent) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", measured.failed ? "FAILED" : "N/A") +
           iteration_cells(columns, measured);
  }
  const std::string wrong = measured.wrong ? fmt::format("  {:>6g}", static_cast<double>(*measured.wrong)) : "    N/A";
  return fmt::format("  {}  {}  {}", number_text(measured.time_us, 7), number_text(measured.algbw_gbps, 6),
                     number_text(measured.busbw_gbps, 6)) +
         wrong + iteration_cells(columns, measured);
}

}  // namespace

std::string heading_text(const Heading& heading) {
  const bool multiplies = heading.flags.sizes.step_factor > 1;
  std::string text = fmt::format("# lockstep version {} (nccl-tests 2.19.6 output format)\n", heading.version);
  text += fmt::format("# Collective test starting: {}\n", heading.flags.program);
  text += fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} validation: "
      "{} graph: {} unalign: {}\n",
      heading.threads, heading.gpus, heading.flags.sizes.min_bytes, heading.flags.sizes.max_bytes,
      multiplies ? heading.flags.sizes.step_factor : heading.flags.sizes.step_bytes, multiplies ? "factor" : "bytes",
      heading.flags.warmup_iterations, heading.flags.iterations, heading.flags.calls_per_iteration,
      heading.flags.check ? 1 : 0, heading.flags.device.graph_launches, heading.flags.unalign_elems);
  if (heading.flags.per_iteration_timing) {
    text += fmt::format("# Per-Iteration Report: {} timing; i_* uses max over ranks \n",
                        heading.timed_by_events ? "CUDA event" : "host clock");
  }
  for (const std::string& note : heading.notes) text += "# " + note + "\n";
  text += "#\n# Using devices\n";
  for (const DeviceLine& line : heading.devices) text += device_line(line);
  return text;
}

std::string table_heading_text(const Columns& columns) {
  const auto line = [&columns](std::initializer_list<std::string_view> row,
                               std::initializer_list<std::string_view> group,
                               std::initializer_list<std::string_view> iterations, std::string_view timestamp) {
    const std::string_view* const cells = row.begin();
    std::string text =
        fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", cells[0], cells[1], cells[2], cells[3], cells[4]);
    for (int placement = 0; placement < 2; ++placement) {
      int column = 0;
      for (std::string_view cell : group) text += fmt::format("  {:>{}}", cell, column++ == 0 ? 7 : 6);
      if (!columns.per_iteration) continue;
      for (std::string_view cell : iterations) text += fmt::format("  {:>7}", cell);
    }
    return text + fmt::format(" {:>{}}", columns.timestamps ? timestamp : "", columns.timestamps ? 19 : 0);
  };
  return "#\n" + placement_title(columns) + "\n" +
         extended(line({"size", "count", "type", "redop", "root"},
                       {columns.cpu_time ? "cputime" : "time", "algbw", "busbw", "#wrong"},
                       {"i_min", "i_max", "i_p99", "i_cv%"}, "timestamp"),
                  columns, &ExtraCell::name) +
         extended(line({"(B)", "(elements)", "", "", ""}, {"(us)", "(GB/s)", "(GB/s)", ""},
                       {"(us)", "(us)", "(us)", "(%)"}, "%Y-%m-%d %H:%M:%S"),
                  columns, &ExtraCell::unit);
}

std::string row_text(const Columns& columns, const Row& row) {
  std::string text = fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.of.bytes, row.of.count, row.of.dtype,
                                 row.of.op, row.of.root) +
                     placement_text(columns, row.out_of_place) + placement_text(columns, row.in_place);
  if (columns.timestamps) text += fmt::format("{:>21}", row.timestamp);
  const std::vector<ExtraCell> extra = extra_cells(columns, row);
  if (!extra.empty() && text.size() < own_width(columns)) text.resize(own_width(columns), ' ');
  for (const ExtraCell& cell : extra) text += fmt::format("  {:>{}}", cell.text, cell.width);
  return text + "\n";
}

bool below_minimum(const Footing& footing) {
  return footing.min_busbw_gbps && footing.average_busbw_gbps < *footing.min_busbw_gbps * kToleratedShare;
}

std::string footing_text(const Footing& footing) {
  std::string gate;
  if (footing.min_busbw_gbps) gate = below_minimum(footing) ? "FAILED" : "OK";
  return fmt::format("# {:<20} : {} {}\n", "Out of bounds values", footing.wrong_rows,
                     footing.wrong_rows != 0 ? "FAILED" : "OK") +
         fmt::format("# {:<20} : {:g} {}\n", "Avg bus bandwidth", footing.average_busbw_gbps, gate) +
         fmt::format("#\n# Collective test concluded: {}\n#\n", footing.program);
}

std::string number_text(double value, int width) {
  for (int decimals : {2, 1, 0}) {
    std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
    if (text.size() <= static_cast<std::size_t>(width)) return text;
  }
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string timestamp_now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

}  // namespace lockstep::sweep
