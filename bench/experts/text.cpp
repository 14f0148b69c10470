#include "bench/experts/text.h"

#include <fmt/format.h>

#include "core/provenance.h"

namespace lockstep::experts_bench {
namespace {

constexpr const char* kRow =
    "{:>8} {:>3} {:>3} {:>5} {:>5} |{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} |{:>9} {:>9} {:>9} |{:>6} {:>7} {:>7} "
    "{:>10} {:>10} {:>6}{}\n";

std::string ms(double us) {
  return fmt::format("{:.3f}", us / 1e3);
}

}  // namespace

std::string heading_text(const ExpertsFlags& flags) {
  std::string text = fmt::format(
      "# lockstep version {}, {}: a mixture of experts on expert-parallel ranks, forward and backward\n"
      "# {} tokens per rank, h {}, experts of width {}{}; {}; {} thread{} per rank; {}\n",
      core::build().version, flags.program, flags.tokens, flags.hidden, flags.inner,
      flags.shared > 0 ? fmt::format(", shared experts of width {}", flags.shared) : "",
      core::short_name_of(flags.dtype), flags.threads, flags.threads == 1 ? "" : "s",
      flags.link ? fmt::format("links of {:g} us and {:g} GB/s are EMULATED in wall-clock time, kernels are this "
                               "machine's",
                               flags.link->latency_us, flags.link->gbps)
                 : "over this machine's memory");
  text +=
      "# cap: capacity factor, 0: dropless; load: copies for the most loaded expert over an even share\n"
      "# parts: forward and backward together, on the slowest rank in the round of the median, one after the other;\n"
      "#   waits for slower ranks count in dispatch and combine; permute and unpermute in one column\n"
      "# serial, async: medians of the slowest rank; async: exchanges overlap with the shared experts\n"
      "# slowest: the experts' time on the slowest rank over the mean of all ranks; rows: the same for rows\n"
      "# sent: bytes counted in the plans that ran, mean over ranks; formula: the copies of tokens for other ranks, "
      "four\n"
      "#   times, and counts if ranks exchange them (docs/metrics.md); #wrong: elements that differ from those of one\n"
      "#   rank with all experts\n";
  text += fmt::format(fmt::runtime("#{:>7}" + std::string(kRow).substr(5)), "experts", "k", "ep", "cap", "load",
                      "router", "permute", "dispatch", "shared", "experts", "combine", "serial", "async", "tokens/s",
                      "slowest", "rows", "dropped", "(%)", "sent", "formula", "#wrong", "");
  return text;
}

std::string row_text(const ExpertsFlags& flags, const Case& one, const Result& result) {
  const auto part = [&](Part which) {
    const auto& serial = result.parts_us[static_cast<std::size_t>(Way::serial)];
    return serial[0][static_cast<std::size_t>(which)] + serial[1][static_cast<std::size_t>(which)];
  };
  const double serial_us = result.median_us(Way::serial);
  const double async_us = result.median_us(Way::async);
  const double tokens = static_cast<double>(flags.tokens) * one.ranks;
  const auto a_rank = [&](std::int64_t bytes) { return fmt::format("{:.0f}", static_cast<double>(bytes) / one.ranks); };
  return fmt::format(
      fmt::runtime(kRow), one.experts, one.top_k, one.ranks, fmt::format("{:g}", one.capacity_factor),
      fmt::format("{:.2f}", result.most_load), ms(part(Part::router)), ms(part(Part::permute) + part(Part::unpermute)),
      ms(part(Part::dispatch)), ms(part(Part::shared)), ms(part(Part::experts)), ms(part(Part::combine)), ms(serial_us),
      ms(async_us), fmt::format("{:.0f}", tokens / std::min(serial_us, async_us) * 1e6),
      fmt::format("{:.2f}", result.experts_slowest_us / result.experts_mean_us),
      fmt::format("{:.2f}", static_cast<double>(result.most_rows) / result.mean_rows), result.dropped,
      fmt::format("{:.1f}", 100.0 * static_cast<double>(result.dropped) / static_cast<double>(result.copies)),
      a_rank(result.sent_bytes), a_rank(result.formula_bytes), result.wrong,
      result.wrong != 0   ? "  WRONG"
      : result.is_wrong() ? "  WRONG BYTES"
                          : "");
}

std::string ending_text(int rows, int wrong_rows) {
  return fmt::format("# {} of {} rows wrong\n", wrong_rows, rows);
}

}  // namespace lockstep::experts_bench
