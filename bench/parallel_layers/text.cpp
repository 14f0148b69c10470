#include "bench/parallel_layers/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/provenance.h"

namespace lockstep::layer_bench {
namespace {

constexpr std::array kDirections{Direction::forward, Direction::backward};

constexpr const char* kGroup = " {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}";

double exposed_us(const Form& form) {
  return form.exposed_us(Direction::forward) + form.exposed_us(Direction::backward);
}

// Half the width between the 5th and the 95th percentile, of the median.
double spread_percent(const std::vector<double>& samples) {
  const core::Summary summary = core::summarize(samples);
  return summary.median > 0 ? 50 * (summary.p95 - summary.p5) / summary.median : 0;
}

std::string group_text(const Form& form, Direction direction) {
  const auto ms = [&](Way way) { return fmt::format("{:.3f}", form.median_us(way, direction) / 1e3); };
  return fmt::format(fmt::runtime(kGroup), ms(Way::kernels), ms(Way::exchanges), ms(Way::one_by_one), ms(Way::beside),
                     fmt::format("{:.3f}", form.exposed_us(direction) / 1e3),
                     fmt::format("{:.0f}", spread_percent(form.samples(Way::beside, direction))));
}

const char* verdict(const Form& form) {
  if (form.wrong != 0) return "  WRONG";
  return form.is_wrong() ? "  WRONG BYTES" : "";
}

std::string columns_text() {
  const std::string names = fmt::format(fmt::runtime(kGroup), "kernels", "comm", "serial", "async", "exposed", "+-");
  const std::string units = fmt::format(fmt::runtime(kGroup), "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(%)");
  const std::string cells = "#{:>13} {:>3} {:>3} {:>5}{}{} {:>10} {:>10} {:>6} {:>7}\n";
  return fmt::format("#{:>27}{:^54}{:^54}\n", "", "forward", "backward") +
         fmt::format(fmt::runtime(cells), "layer", "tp", "sp", "tiles", names, names, "sent", "formula", "#wrong",
                     "#unlike") +
         fmt::format(fmt::runtime(cells), "", "", "", "", units, units, "(B/rank)", "(B/rank)", "", "");
}

}  // namespace

std::string heading_text(const LayerFlags& flags) {
  const Shape& shape = flags.shape;
  std::string text = fmt::format(
      "# lockstep version {}, {}: tensor-parallel layers, forward and backward, run in four ways\n"
      "# h {}, {} heads, {} sequences of {} tokens, {} words; {}; {} thread{} a rank\n",
      core::build().version, flags.program, shape.hidden, shape.heads, shape.batch, shape.length, shape.vocabulary,
      core::short_name_of(shape.dtype), flags.threads, flags.threads == 1 ? "" : "s");
  text +=
      fmt::format("# collectives: {}; {}\n", flags.algorithm,
                  flags.link ? fmt::format("links of {:g} us and {:g} GB/s are EMULATED in wall-clock time, kernels "
                                           "and sums are this machine's",
                                           flags.link->latency_us, flags.link->gbps)
                             : "over this machine's memory");
  text +=
      "# kernels, comm: one kind alone; serial: one after the other; async: exchanges in a thread of their own, "
      "beside\n"
      "#   what does not need them; exposed: async - kernels; +-: half of p5 to p95 of async, of its median\n"
      "# sp: ranks have a share of the rows between layers; tiles: of rows, exchanged beside the product of the next\n"
      "# sent: counted, mean of ranks, forward and backward; formula: docs/metrics.md; #wrong: elements that are not "
      "one\n"
      "#   rank's within rounding; #unlike: that have other bits than in one tile one after the other; of all turns.\n"
      "#   Medians of the slowest rank's times, the ways in turn\n";
  return text + columns_text();
}

std::string row_text(const Case& one, const Form& form) {
  const auto a_rank = [&](std::int64_t bytes) {
    return fmt::format("{:.0f}", static_cast<double>(bytes) / static_cast<double>(form.checked_passes * one.ranks));
  };
  return fmt::format(" {:>13} {:>3} {:>3} {:>5}{}{} {:>10} {:>10} {:>6} {:>7}{}\n", name_of(one.block), one.ranks,
                     one.sequence_parallel ? 1 : 0, form.tiles, group_text(form, Direction::forward),
                     group_text(form, Direction::backward), a_rank(form.sent_bytes), a_rank(form.formula_bytes),
                     form.wrong, form.unlike, verdict(form));
}

void add_to(Totals& totals, const std::vector<Form>& forms) {
  for (const Form& form : forms) {
    ++totals.rows;
    totals.wrong_rows += form.is_wrong() ? 1 : 0;
  }
  for (const Direction direction : kDirections) {
    totals.communication_us += forms.front().median_us(Way::exchanges, direction);
  }
  totals.exposed_in_one_us += exposed_us(forms.front());
  const auto best = std::min_element(forms.begin(), forms.end(),
                                     [](const Form& a, const Form& b) { return exposed_us(a) < exposed_us(b); });
  totals.exposed_in_tiles_us += exposed_us(*best);
}

std::string ending_text(const Totals& totals) {
  return fmt::format(
      "# {} of {} rows wrong. All layers together communicate for {:.3f} ms alone; beside kernels {:.3f} ms of it are "
      "exposed in one tile, {:.3f} ms in each layer's best number of tiles\n",
      totals.wrong_rows, totals.rows, totals.communication_us / 1e3, totals.exposed_in_one_us / 1e3,
      totals.exposed_in_tiles_us / 1e3);
}

}  // namespace lockstep::layer_bench
