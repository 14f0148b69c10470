#include "bench/pipeline/overlap_table.h"

#include <fmt/format.h>

#include <cmath>

#include "core/provenance.h"
#include "core/size.h"

namespace lockstep::pipeline {
namespace {

std::string form_text(const OverlapResult& result) {
  return result.closed_form_ms ? fmt::format("{:.3f}", *result.closed_form_ms) : "N/A";
}

std::string late_text(const OverlapResult& result) {
  return result.emulation ? fmt::format("{:.0f}", result.emulation->late_us) : "N/A";
}

}  // namespace

std::string overlap_heading_text(const OverlapFlags& flags) {
  std::string text = fmt::format(
      "# lockstep version {}, {}: {}\n", core::build().version, flags.program,
      flags.mode == Mode::simulated ? "SIMULATED, in virtual time" : "EMULATED, in wall-clock time; kernels wait");
  text += fmt::format("# {} layers of {}, forward {:g} ms, backward {:g} ms each; {} microbatches; optimizer {:g} ms\n",
                      flags.layers, core::format_size(flags.bytes_a_layer), flags.forward_ms, flags.backward_ms,
                      flags.microbatches, flags.optimizer_ms);
  text += fmt::format("# collectives: {}; each rank's link: {:g} us, {:g} GB/s each way\n", flags.algorithm,
                      flags.link.latency_us, flags.link.gbps);
  text += "# compute: kernels alone; comm: collectives alone, in the same order; exposed: step - compute;\n";
  text += "#   hidden: 1 - exposed/comm; closed: the buckets' recurrence; emu/sim: step over its simulation\n";
  text += fmt::format("#{:>4} {:>5} {:>8} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10} {:>8} {:>7}\n", "zero",
                      "ranks", "cap", "calls", "sent", "compute", "comm", "step", "exposed", "hidden", "closed",
                      "emu/sim", "late");
  text += fmt::format("#{:>4} {:>5} {:>8} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10} {:>8} {:>7}\n", "", "",
                      "(MiB)", "", "(MB/rank)", "(ms)", "(ms)", "(ms)", "(ms)", "(%)", "(ms)", "(%)", "(us)");
  return text;
}

std::string overlap_row_text(const OverlapCase& one, const OverlapResult& result) {
  const std::string cap = one.zero_stage == 3 ? "layer" : fmt::format("{:g}", one.bucket_cap_mb);
  const std::string difference =
      result.emulation ? fmt::format("{:+.2f}", 100 * (result.step_ms / result.simulated_ms - 1)) : "N/A";
  return fmt::format(
      " {:>4} {:>5} {:>8} {:>6} {:>10.2f} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>8.2f} {:>10} {:>8} {:>7}\n",
      one.zero_stage, one.replicas, cap, result.collectives, result.sent_bytes / 1e6, result.compute_ms,
      result.communication_ms, result.step_ms, result.exposed_ms(), 100 * result.efficiency(), form_text(result),
      difference, late_text(result));
}

}  // namespace lockstep::pipeline
