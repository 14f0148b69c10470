#include "bench/experts/records.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/pipeline/records.h"

namespace lockstep::experts_bench {
namespace {

core::ExpertsTimeRecord time_record(const Result& result, std::size_t way, std::size_t direction) {
  core::ExpertsTimeRecord time;
  time.direction = direction == 0 ? "forward" : "backward";
  time.way = way == static_cast<std::size_t>(Way::serial) ? "serial" : "async";
  time.samples_us = result.samples_us[way][direction];
  const PartTimes& parts = result.parts_us[way][direction];
  for (std::size_t p = 0; p < kNumParts; ++p) time.parts_us.emplace_back(kParts[p], parts[p]);
  return time;
}

}  // namespace

core::RunRecord run_record(const ExpertsFlags& flags) {
  const int most = *std::max_element(flags.ranks.begin(), flags.ranks.end());
  core::RunRecord run =
      pipeline::new_run_record(flags.program, flags.command, pipeline::Mode::real, most * flags.threads);
  run.ranks = most;
  run.seed = kSeed;
  if (!flags.link) return run;
  run.basis = "emulated";
  run.link = program::link_record(*flags.link);
  return run;
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
  for (std::size_t direction = 0; direction < 2; ++direction) {
    for (std::size_t way = 0; way < kNumWays; ++way) record.times.push_back(time_record(result, way, direction));
  }
  record.energy = result.energy;
  record.experts_slowest_us = result.experts_slowest_us;
  record.experts_mean_us = result.experts_mean_us;
  record.most_rows = result.most_rows;
  record.mean_rows = result.mean_rows;
  record.copies = result.copies;
  record.dropped = result.dropped;
  record.sent_bytes = static_cast<double>(result.sent_bytes) / one.ranks;
  record.formula_bytes = static_cast<double>(result.formula_bytes) / one.ranks;
  record.checked_passes = result.checked_passes;
  record.wrong = result.wrong;
  if (!result.is_wrong()) return record;
  record.status = "wrong";
  record.error = result.wrong != 0
                     ? fmt::format("{} elements differ from one rank's by more than rounding", result.wrong)
                     : fmt::format("{:.0f} bytes sent per rank, but the copies for other ranks need {:.0f}",
                                   record.sent_bytes, record.formula_bytes);
  return record;
}

}  // namespace lockstep::experts_bench
