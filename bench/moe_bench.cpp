// moe_bench: a mixture of experts on expert-parallel ranks. The table, the records and the exit status.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/moe_bench/moe.h"
#include "bench/program/program.h"
#include "bench/step/layer_part.h"
#include "bench/step/part.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/record.h"

namespace lockstep::experts_bench {
namespace {

constexpr const char* kRow =
    "{:>8} {:>3} {:>3} {:>5} {:>5} |{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} |{:>9} {:>9} {:>9} |{:>6} {:>7} {:>7} "
    "{:>10} {:>10} {:>6}{}\n";

std::string ms(double us) {
  return fmt::format("{:.3f}", us / 1e3);
}

std::string heading_text(const ExpertsFlags& flags) {
  std::string text = fmt::format(
      "# lockstep version {}, {}: a mixture of experts on expert-parallel ranks, forward and backward\n"
      "# {} tokens per rank, h {}, experts of width {}{}; {}; {} thread{} per rank; {}\n",
      core::build().version, flags.program, flags.tokens, flags.hidden, flags.inner,
      flags.shared > 0 ? fmt::format(", shared experts of width {}", flags.shared) : "",
      core::short_name_of(flags.dtype), flags.threads, flags.threads == 1 ? "" : "s",
      flags.link ? program::emulated_text(*flags.link) + ", kernels are this machine's" : "over this machine's memory");
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
  const auto share = [&](Share which) { return result.share_us(Mode::serial, which); };
  const auto between = [&](Share which) { return one.ranks == 1 ? "-" : ms(share(which)); };  // ranks
  const double serial_us = result.part.times.median_us(Mode::serial);
  const double async_us = result.part.times.median_us(Mode::overlapped);
  const double tokens = static_cast<double>(flags.tokens) * one.ranks;
  const auto a_rank = [&](double bytes) { return fmt::format("{:.0f}", bytes / one.ranks); };
  return fmt::format(
      fmt::runtime(kRow), one.experts, one.top_k, one.ranks, fmt::format("{:g}", one.capacity_factor),
      fmt::format("{:.2f}", result.most_load), ms(share(Share::router)),
      ms(share(Share::permute) + share(Share::unpermute)), between(Share::dispatch), ms(share(Share::shared)),
      ms(share(Share::experts)), between(Share::combine), ms(serial_us), ms(async_us),
      fmt::format("{:.0f}", tokens / std::min(serial_us, async_us) * 1e6),
      fmt::format("{:.2f}", result.experts_slowest_us / result.experts_mean_us),
      fmt::format("{:.2f}", static_cast<double>(result.most_rows) / result.mean_rows), result.dropped,
      fmt::format("{:.1f}", 100.0 * static_cast<double>(result.dropped) / static_cast<double>(result.copies)),
      a_rank(result.part.sent_bytes()), a_rank(result.part.formula_bytes()), result.part.wrong(),
      result.part.wrong() != 0 ? "  WRONG"
      : result.is_wrong()      ? "  WRONG BYTES"
                               : "");
}

std::string ending_text(int rows, int wrong_rows) {
  return fmt::format("# {} of {} rows wrong\n", wrong_rows, rows);
}

core::ExpertsRecord experts_record(const core::RunRecord& run, const ExpertsFlags& flags, const Case& one,
                                   const Result& result) {
  core::ExpertsRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.experts = one.experts;
  record.top_k = one.top_k;
  record.ranks = one.ranks;
  record.threads = flags.threads;
  record.capacity_factor = one.capacity_factor;
  if (one.loads.empty()) record.skew = one.skew;
  record.load = result.most_load;
  record.dtype = core::short_name_of(flags.dtype);
  record.sizes = {{"tokens", static_cast<double>(flags.tokens)},
                  {"hidden", static_cast<double>(flags.hidden)},
                  {"ffn", static_cast<double>(flags.inner)},
                  {"shared", static_cast<double>(flags.shared)}};
  record.algorithm = flags.algorithm;
  for (const core::LayerTimeRecord& time : result.part.times.records(kShares)) {
    record.times.push_back({time.direction, time.way, time.samples_us, time.parts_us});
  }
  record.energy = result.part.energy;
  record.experts_slowest_us = result.experts_slowest_us;
  record.experts_mean_us = result.experts_mean_us;
  record.most_rows = result.most_rows;
  record.mean_rows = result.mean_rows;
  record.copies = result.copies;
  record.dropped = result.dropped;
  record.sent_bytes = result.part.sent_bytes() / one.ranks;
  record.formula_bytes = result.part.formula_bytes() / one.ranks;
  record.checked_passes = result.part.checked_passes;
  record.wrong = result.part.wrong();
  if (!result.is_wrong()) return record;
  record.status = "wrong";
  record.error = record.wrong != 0
                     ? fmt::format("{} elements differ from one rank's by more than rounding", record.wrong)
                     : fmt::format("{:.0f} bytes sent per rank, but the copies for other ranks need {:.0f}",
                                   record.sent_bytes, record.formula_bytes);
  return record;
}

// Runs every case that the flags ask for and prints a table. Returns the exit status: 0, or that of core::Failure if a
// row is wrong. Throws core::Error.
int run_experts(const ExpertsFlags& flags, const program::Print& print) {
  core::RecordWriter writer(flags.json_file);
  const core::RunRecord run =
      part_run_record(flags, *std::max_element(flags.ranks.begin(), flags.ranks.end()), step_bench::kLayerSeed);
  writer.write(run);
  print(heading_text(flags));
  int rows = 0;
  int wrong_rows = 0;
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& one : cases) {
    const Result result = run_case(flags, one);
    print(row_text(flags, one, result));
    if (result.part.energy || &one == &cases.back()) print(result.part.energy_text);
    if (writer.is_open()) writer.write(experts_record(run, flags, one, result));
    ++rows;
    wrong_rows += result.is_wrong() ? 1 : 0;
  }
  print(ending_text(rows, wrong_rows));
  writer.commit();
  return wrong_rows > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace
}  // namespace lockstep::experts_bench

int main(int argc, char** argv) {
  namespace bench = lockstep::experts_bench;
  return lockstep::program::exit_status_of("moe_bench", [&] {
    const auto flags = bench::parse_experts_flags(argc, argv);
    lockstep::program::refuse_peers("ranks are threads", "no mpirun");
    return bench::run_experts(flags, lockstep::program::to_stdout);
  });
}
