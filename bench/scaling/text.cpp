#include "bench/scaling/text.h"

#include <fmt/format.h>

#include "core/statistics.h"

namespace lockstep::scaling {
namespace {

double percent(double of, double whole) {
  return 100 * of / whole;
}

// "backward +3.1, bubble -0.4 ms"; parts below a hundredth of the step are left out.
std::string difference_text(const core::NamedNumbers& from, const core::NamedNumbers& to, double step_ms) {
  std::string text;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const double more = to[i].second - from[i].second;
    if (more < -0.01 * step_ms || more > 0.01 * step_ms) {
      text += fmt::format("{}{} {:+.2f}", text.empty() ? "" : ", ", to[i].first, more);
    }
  }
  return text.empty() ? "each part within 1 %" : text + " ms";
}

}  // namespace

std::string heading_text(const ScalingFlags& flags, const trainer::TrainOptions& options, const std::string& data,
                         int most_ranks, int cores) {
  const workload::Model& model = options.model;
  std::string text = fmt::format(
      "# {}: {} layers, hidden {}, {} parameters; {}; {} sequences of {} tokens per step, on each rank (weak) or in "
      "total "
      "(strong); data: {}\n"
      "# {} thread{} per rank, {} cores: layouts that need more are marked *, because their ranks share cores\n"
      "# isolated: simulated from pieces timed alone; contended: simulated with the slowdowns measured "
      "while pieces run concurrently; measured: the median of whole steps, timed alternately with these\n",
      title_of(model), model.layers, model.hidden, parameters_of(model), core::short_name_of(options.layout.compute),
      flags.batch, options.model.sequence, data, options.threads, options.threads == 1 ? "" : "s", cores);
  if (options.device.cuda) text += "# " + program::gpus_text(options.device, most_ranks) + "\n";
  if (options.link) {
    text += fmt::format("# EMULATED links: {} us, {} GB/s\n", options.link->latency_us, options.link->gbps);
  }
  return text;
}

std::string columns_text() {
  return fmt::format(
      "{:<6} {:<34} {:>5} {:>10} {:>10} {:>10} {:>15} {:>9} {:>9} {:>10} {:>10}\n"
      "{:<6} {:<34} {:>5} {:>10} {:>10} {:>10} {:>15} {:>9} {:>9} {:>10} {:>10}\n",
      "# mode", "layout", "ranks", "isolated", "contended", "measured", "5 to 95 %", "c/isol.", "c/cont.", "tokens/s",
      "efficiency", "#", "", "", "ms", "ms", "ms", "ms", "%", "%", "", "%");
}

std::string row_text(const Result& result) {
  if (result.simulated()) {
    return fmt::format("{:<6} {:<34} {:>5} {:>10.2f} {:>10} {:>10} {:>15} {:>9} {:>9} {:>10.0f} {:>10.1f}\n",
                       name_of(result.mode), result.name, result.options.layout.ranks(), result.isolated_ms(), "-",
                       "simulated", "-", "-", "-", result.tokens_per_s(), *result.efficiency * 100);
  }
  const core::Summary summary = core::summarize(result.times.samples_ms);
  return fmt::format("{:<6} {:<34} {:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>15} {:>+9.1f} {:>+9.1f} {:>10.0f} {:>10}\n",
                     name_of(result.mode), result.name,
                     fmt::format("{}{}", result.options.layout.ranks(), result.oversubscribed ? "*" : ""),
                     result.isolated_ms(), result.contended_ms(), result.measured_ms,
                     fmt::format("{:.2f}-{:.2f}", summary.p5, summary.p95),
                     percent(result.measured_ms - result.isolated_ms(), result.isolated_ms()),
                     percent(result.measured_ms - result.contended_ms(), result.contended_ms()), result.tokens_per_s(),
                     result.efficiency ? fmt::format("{:.1f}", *result.efficiency * 100) : "-");
}

std::string gap_text(const Result& result) {
  return fmt::format("#   measured - isolated:  {}\n#   measured - contended: {}\n",
                     difference_text(result.isolated_parts, result.measured_parts, result.measured_ms),
                     difference_text(result.contended_parts, result.measured_parts, result.measured_ms));
}

std::string slowdowns_text(const Result& result) {
  std::string text;
  for (const SlowdownRow& row : rows_of(result.times.slowdowns, result.options.layout.ranks())) {
    text += fmt::format("{}{} beside {}{} {:.2f} times", text.empty() ? "#   concurrently: " : "; ", row.of, row.beside,
                        row.beside.starts_with("kernels of other") ? fmt::format(" ({} ranks)", row.ranks) : "",
                        row.factor);
  }
  return text.empty() ? text : text + "\n";
}

std::string closing_text() {
  return "# c/isol., c/cont.: how much longer the measured step is than predicted. The part that isolated pieces do "
         "not "
         "explain is contention to the extent that c/cont. is nearer to 0; the rest is listed by part.\n";
}

}  // namespace lockstep::scaling
