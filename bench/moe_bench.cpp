// moe_bench: a mixture of experts on expert-parallel ranks. The table, the records and the exit status.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/moe_bench/moe.h"
#include "bench/program/columns.h"
#include "bench/program/program.h"
#include "bench/program/run_records.h"
#include "bench/step/layer_part.h"
#include "bench/step/part.h"
#include "core/provenance.h"
#include "core/record.h"

namespace lockstep::experts_bench {
namespace {

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
      "# parts: forward and backward together, on the slowest rank in the median round, run serially;\n"
      "#   waits for slower ranks count in dispatch and combine; permute and unpermute in one column\n"
      "# serial, async: medians of the slowest rank; async: exchanges overlap with the shared experts\n"
      "# slowest: the experts' time on the slowest rank over the mean of all ranks; rows: the same for rows\n"
      "# sent: bytes counted in the plans that ran, mean over ranks; formula: the copies of tokens for other ranks, "
      "four\n"
      "#   times, and counts if ranks exchange them (docs/metrics.md); #wrong: elements that differ from one\n"
      "#   rank with all experts\n";
  return text;
}

struct Row {
  const ExpertsFlags& flags;
  const Case& one;
  const Result& result;

  double tokens() const { return static_cast<double>(flags.tokens) * one.ranks; }
  double us(Mode mode) const { return result.part.times.median_us(mode); }
};
using Column = program::Column<Row>;

// The time of these shares; exchanges only if there are other ranks.
Column share_column(const char* name, std::vector<Share> shares, bool between_ranks = false) {
  return {{name, "(ms)", 8}, [shares, between_ranks](const Row& r) {
            double us = 0;
            for (const Share share : shares) us += r.result.share_us(Mode::serial, share);
            return between_ranks && r.one.ranks == 1 ? "-" : program::number_text(us, program::kUsAsMs);
          }};
}

std::vector<Column> columns() {
  using program::count;
  using program::figure;
  using program::kUsAsMs;
  using program::kWhole;
  return {
      {{"experts", "", 8}, kWhole, [](auto& r) { return r.one.experts; }},
      {{"k", "", 3}, kWhole, [](auto& r) { return r.one.top_k; }},
      {{"ep", "", 3}, kWhole, [](auto& r) { return r.one.ranks; }},
      {{"cap", "", 5}, [](auto& r) { return fmt::format("{:g}", r.one.capacity_factor); }},
      {{"load", "", 5}, {}, [](auto& r) { return r.result.most_load; }, figure("load")},
      share_column("router", {Share::router}),
      share_column("permute", {Share::permute, Share::unpermute}),
      share_column("dispatch", {Share::dispatch}, true),
      share_column("shared", {Share::shared}),
      share_column("experts", {Share::experts}),
      share_column("combine", {Share::combine}, true),
      {{"serial", "(ms)", 9}, kUsAsMs, [](auto& r) { return r.us(Mode::serial); }},
      {{"async", "(ms)", 9}, kUsAsMs, [](auto& r) { return r.us(Mode::overlapped); }},
      {{"tokens/s", "", 9},
       kWhole,
       [](auto& r) { return r.tokens() / std::min(r.us(Mode::serial), r.us(Mode::overlapped)) * 1e6; }},
      {{"slowest", "", 7}, {}, [](auto& r) { return r.result.experts_slowest_us / r.result.experts_mean_us; }},
      {{"rows", "", 6}, {}, [](auto& r) { return static_cast<double>(r.result.most_rows) / r.result.mean_rows; }},
      {{"dropped", "", 7}, kWhole, [](auto& r) { return r.result.dropped; }, count("dropped")},
      {{"dropped", "(%)", 7}, {1}, [](auto& r) { return 100 * r.result.dropped_share(); }},
      {{"sent", "(B/rank)", 10}, kWhole, [](auto& r) { return r.result.sent_bytes(); }, count("sent_bytes")},
      {{"formula", "(B/rank)", 10}, kWhole, [](auto& r) { return r.result.formula_bytes(); }, count("formula_bytes")},
      {{"#wrong", "", 6}, kWhole, [](auto& r) { return r.result.part.wrong(); }, count("wrong")},
      {count("most_rows"), [](auto& r) { return r.result.most_rows; }},
      {figure("mean_rows"), [](auto& r) { return r.result.mean_rows; }},
      {figure("copies"), [](auto& r) { return r.result.copies; }},
      {figure("experts_slowest_us"), [](auto& r) { return r.result.experts_slowest_us; }},
      {figure("experts_mean_us"), [](auto& r) { return r.result.experts_mean_us; }},
  };
}

std::string wrong_text(const Result& result) {
  if (!result.is_wrong()) return "";
  if (result.part.wrong() != 0) {
    return fmt::format("{} elements differ from one rank's by more than rounding", result.part.wrong());
  }
  return fmt::format("{:.0f} bytes sent per rank, but the copies for other ranks need {:.0f}", result.sent_bytes(),
                     result.formula_bytes());
}

core::StepRecord experts_record(const core::RunRecord& run, const ExpertsFlags& flags, const Case& bench_case,
                                const Result& result) {
  core::StepRecord record = program::new_step_record(run, "experts", bench_case.ranks, flags.threads, flags.dtype);
  record.choices = {{"experts", bench_case.experts},
                    {"top_k", bench_case.top_k},
                    {"capacity_factor", bench_case.capacity_factor},
                    {"skew", bench_case.loads.empty() ? core::Choice(bench_case.skew) : core::Choice("stated")},
                    {"algorithm", flags.algorithm}};
  record.sizes = {{"tokens", flags.tokens}, {"hidden", flags.hidden}, {"ffn", flags.inner}, {"shared", flags.shared}};
  add_part(result.part, kShares, record);
  program::set_error(wrong_text(result), record);
  return record;
}

// Runs all requested cases and prints a table. Returns the exit status: 0, or core::Failure's if a
// row is wrong. Throws core::Error.
int run_experts(const ExpertsFlags& flags, const program::Print& print) {
  const core::RunRecord run =
      part_run_record(flags, *std::max_element(flags.ranks.begin(), flags.ranks.end()), step_bench::kLayerSeed);
  program::StepTable<Row> table(columns(), print, flags.json_file);
  table.begin(heading_text(flags));
  table.write(run);
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& bench_case : cases) {
    const Result result = run_case(flags, bench_case);
    table.add({flags, bench_case, result}, experts_record(run, flags, bench_case, result),
              energy_text(result.part, &bench_case == &cases.back()));
  }
  return table.end(fmt::format("# {} of {} rows wrong\n", table.wrong(), table.rows()));
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
