#include "bench/parallel/ddp_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/provenance.h"

namespace lockstep::parallel_bench {
namespace {

bool emulates(const DdpFlags& flags) {
  return std::any_of(flags.links.begin(), flags.links.end(), [](const Link& link) { return link.has_value(); });
}

std::string columns_text() {
  constexpr const char* kFormat =
      "#{:>4} {:>16} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9} {:>6}\n";
  return fmt::format(fmt::runtime(kFormat), "dp", "link", "cap", "buckets", "gradients", "compute", "backward", "comm",
                     "step", "exposed", "hidden", "after", "predicted", "wrong") +
         fmt::format(fmt::runtime(kFormat), "", "(us, GB/s)", "(MiB)", "", "(MB)", "(ms)", "(ms)", "(ms)", "(ms)",
                     "(ms)", "(%)", "(ms)", "(ms)", "");
}

}  // namespace

std::string link_text(const Link& link) {
  if (!link) return "none";
  const std::string gbps = link->gbps > 0 ? fmt::format("{:g}", link->gbps) : "any";
  return fmt::format("{:g}, {}", link->latency_us, gbps);
}

std::string ddp_heading_text(const DdpFlags& flags) {
  const trainer::TrainOptions& options = flags.step.options;
  const trainer::GptConfig& model = options.model;
  std::string text = fmt::format(
      "# lockstep version {}, {}: data-parallel training steps, run in four ways\n"
      "# GPT {}: {} layers, hidden {}, {} parameters; {} with gradients in {}; {} sequences of {} tokens a rank, {} "
      "microbatch{}, {} thread{} a rank\n",
      core::build().version, flags.step.program, model.name, model.layers, model.hidden, model.parameters(),
      core::short_name_of(options.compute), core::short_name_of(options.layout.gradient),
      options.batch * options.layout.microbatches, options.length > 0 ? options.length : model.length,
      options.layout.microbatches, options.layout.microbatches == 1 ? "" : "es", options.threads,
      options.threads == 1 ? "" : "s");
  text += fmt::format("# collectives: {}; {}\n", options.algorithm,
                      emulates(flags) ? "links are EMULATED in wall-clock time, kernels and sums are this machine's"
                                      : "over this machine's memory");
  text +=
      "# compute: kernels alone; backward: of the last microbatch in it; comm: buckets alone, one after the other;\n"
      "#   step: buckets leave beside the backward; after: they leave behind it; exposed: step - compute;\n"
      "#   hidden: (comm - exposed) / min(comm, backward); predicted: step by the buckets' recurrence;\n"
      "#   wrong: elements of gradients and weights that are not those of `after` bit for bit, or not those of one "
      "rank\n"
      "#   that does all the work within rounding (docs/metrics.md); medians, the ways in turn\n";
  return text + columns_text();
}

std::string ddp_row_text(const DdpCase& one, const DdpResult& result) {
  const std::string cap = one.bucket_cap_mb > 0 ? fmt::format("{:g}", one.bucket_cap_mb) : "one";
  return fmt::format(
      " {:>4} {:>16} {:>7} {:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.1f} {:>9.2f} {:>9.2f} "
      "{:>6}\n",
      one.replicas, link_text(one.link), cap, result.buckets, static_cast<double>(result.gradient_bytes) / 1e6,
      result.compute_ms(), result.backward_ms(), result.communication_ms(), result.step_ms(), result.exposed_ms(),
      100 * result.efficiency(), result.one_by_one_ms(), result.predicted_ms(), result.wrong);
}

std::string ddp_ending_text(const std::vector<DdpCase>& cases, const std::vector<DdpResult>& results) {
  const auto best = std::min_element(results.begin(), results.end(), [](const DdpResult& a, const DdpResult& b) {
    return a.efficiency() > b.efficiency();
  });
  const DdpCase& one = cases[static_cast<std::size_t>(best - results.begin())];
  const auto ordered =
      std::count_if(results.begin(), results.end(), [](const DdpResult& r) { return r.in_planned_order; });
  return fmt::format(
      "# most hidden: {:.1f} % with dp {}, {}, {} buckets; gradients came in the buckets' order in {} of {} rows\n",
      100 * best->efficiency(), one.replicas, one.link ? "links of " + link_text(one.link) : "no links", best->buckets,
      ordered, results.size());
}

}  // namespace lockstep::parallel_bench
