#include "bench/scaling/scaling.h"

#include <cmath>

#include <fmt/format.h>

#include "bench/mini_train/report.h"
#include "bench/program/columns.h"
#include "bench/program/place.h"
#include "bench/program/run_records.h"
#include "core/dtype.h"

namespace lockstep::scaling {
namespace {

// Measured slowdowns: the slowed piece, the concurrent work, and the number of ranks.
std::vector<core::SlowdownRecord> rows_of(const Result& result) {
  const Slowdowns& slowdowns = result.times->slowdowns;
  const std::int32_t ranks = result.options.layout.ranks();
  std::vector<core::SlowdownRecord> rows;
  const auto add = [&](std::string of, const char* concurrent_with, std::int32_t computing, const Factor& factor) {
    const auto samples = static_cast<std::int64_t>(factor.samples());
    if (samples > 0) rows.push_back({std::move(of), concurrent_with, computing, factor.value(), samples});
  };
  for (const auto& [op, by_ranks] : slowdowns.kernel) {
    for (const auto& [computing, factor] : by_ranks) {
      add(std::string(schedules::name_of(op)), "kernels of other ranks", computing, factor);
    }
  }
  for (const auto& [op, factor] : slowdowns.kernel_with_collective) {
    add(std::string(schedules::name_of(op)), "a collective of its rank", ranks, factor);
  }
  for (std::size_t lane = 0; lane < schedules::kNumLanes; ++lane) {
    add(std::string(schedules::name_of(static_cast<schedules::Lane>(lane))) + " collective", "kernels of its members",
        ranks, slowdowns.collective[lane]);
  }
  return rows;
}

// "backward +3.1, bubble -0.4 ms"; without parts below a hundredth of the step.
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
      "total (strong); data: {}\n"
      "# {} thread{} per rank, {} cores: layouts that need more are OVERSUBSCRIBED and marked *; their ideal is the "
      "throughput of ranks that have cores\n"
      "# efficiency: tokens/s over the ideal times one rank's, median and 95 % interval of up to {} rounds, in each of "
      "which all layouts train\n"
      "# isolated: simulated from pieces timed alone; contended: with the slowdowns measured while pieces run "
      "concurrently\n",
      title_of(model), model.layers, model.hidden, parameters_of(model), core::short_name_of(options.layout.compute),
      flags.batch, options.model.sequence, data, options.threads, options.threads == 1 ? "" : "s", cores, flags.rounds);
  if (options.device.cuda) text += "# " + program::gpus_text(options.device, most_ranks) + "\n";
  if (options.link) {
    text += fmt::format("# EMULATED links: {} us, {} GB/s\n", options.link->latency_us, options.link->gbps);
  }
  return text;
}

namespace {

std::string percents(const core::IntervalRecord& interval) {
  return fmt::format("{:.0f} to {:.0f}", 100 * interval.low, 100 * interval.high);
}

// "71 (65 to 77)", "undecided"; simulated: "71".
std::string efficiency_cell(const Result& result) {
  if (!result.efficiency) return "-";
  if (result.efficiency->undecided) return "undecided";
  const std::string value = fmt::format("{:.0f}", 100 * result.efficiency->value);
  const auto& interval = result.efficiency->interval;
  return interval ? fmt::format("{} ({})", value, percents(*interval)) : value;
}

// "lost to compute 20 % (15 to 25), communication 9 % (7 to 11)": losses that are decided, of a hundredth and more.
std::string losses_text(const Result& result) {
  if (result.efficiency->undecided) return "; undecided: " + *result.efficiency->undecided;
  std::string text;
  for (const Loss& loss : result.efficiency->losses) {
    if (!is_decided(loss) || std::abs(loss.share) < 0.01) continue;
    text += fmt::format("{} {} {:.0f} %", text.empty() ? "; lost to" : ",", loss.to, 100 * loss.share);
    if (!result.simulated()) text += " (" + percents(loss.interval) + ")";
  }
  return text;
}

std::string measured_text(const Result& result) {
  const std::string text = result.oversubscribed ? "measured, OVERSUBSCRIBED" : "measured";
  return result.efficiency ? text + losses_text(result) : text;
}

// A layout that was measured as well shows how far its simulation is off, with the interval of the measured time.
std::string simulated_text(const Result& result, const std::vector<Result>& measured) {
  std::string text = "simulated";
  for (const Result& other : measured) {
    if (other.mode != result.mode || other.name != result.name || other.oversubscribed) continue;
    if (result.efficiency->undecided) break;
    const core::Interval ms = interval_of(other.rounds_ms());
    const auto off = [&](double measured_ms) { return 100 * (measured_ms / result.step_ms() - 1); };
    text += fmt::format(", {:+.0f} % ({:+.0f} to {:+.0f}) from measured tokens/s", off(other.step_ms()), off(ms.low),
                        off(ms.high));
    break;
  }
  return text + losses_text(result);
}

}  // namespace

std::vector<program::Column<Result>> columns(const std::vector<Result>& measured) {
  using program::kWhole;
  const auto ranks = [](auto& r) { return fmt::format("{}{}", r.options.layout.ranks(), r.oversubscribed ? "*" : ""); };
  const auto basis = [&measured](auto& r) {
    return " " + (r.simulated() ? simulated_text(r, measured) : measured_text(r));
  };
  return {{{"mode", "", -5}, [](auto& r) { return name_of(r.mode); }},
          {{"layout", "", -34}, [](auto& r) { return r.name; }},
          {{"ranks", "", 6}, ranks},
          {{"step ms", "", 10}, {}, [](auto& r) { return r.step_ms(); }},
          {{"tokens/s", "", 10}, kWhole, [](auto& r) { return r.tokens_per_s(); }, program::figure("tokens_per_s")},
          {{"ideal", "", 6}, kWhole, [](auto& r) { return r.ideal_speedup; }},
          {{"efficiency %", "", 16}, efficiency_cell},
          {{" basis; what takes the rest, with 95 % intervals"}, basis}};
}

namespace {

// Slowdowns of pieces that run concurrently.
std::string slowdowns_text(const Result& result) {
  std::string text;
  for (const core::SlowdownRecord& row : rows_of(result)) {
    text += fmt::format("{}{} with {}{} {:.2f} times", text.empty() ? "#   concurrently: " : "; ", row.of, row.beside,
                        row.beside.starts_with("kernels of other") ? fmt::format(" ({} ranks)", row.ranks) : "",
                        row.factor);
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace

// Both predictions from pieces, and the differences of the measured step from them by part.
std::string pieces_text(const Result& result) {
  const core::Summary summary = core::summarize(result.step("measured").samples_us);
  const StepSample measured = sample_of(result.step("measured"));
  std::string text = fmt::format("#   its pieces: measured {:.2f} ms (5 to 95 %: {:.2f} to {:.2f})\n", measured.ms,
                                 summary.p5 / 1e3, summary.p95 / 1e3);
  for (const char* mode : {"isolated", "contended"}) {
    const StepSample step = sample_of(result.step(mode));
    text +=
        fmt::format("#   {:<9} {:.2f} ms; measured is {:+.1f} % longer: {}\n", mode, step.ms,
                    100 * (measured.ms / step.ms - 1), difference_text(step.parts_ms, measured.parts_ms, measured.ms));
  }
  return text + slowdowns_text(result);
}

namespace {

core::NamedNumbers scaled(core::NamedNumbers numbers, double factor) {
  for (auto& [name, value] : numbers) value *= factor;
  return numbers;
}

}  // namespace

core::StepTimeRecord step_record(const char* mode, const std::vector<double>& samples_ms,
                                 const core::NamedNumbers& parts_ms) {
  core::StepTimeRecord record{.direction = "step", .mode = mode, .parts_us = scaled(parts_ms, 1e3)};
  for (const double ms : samples_ms) record.samples_us.push_back(1e3 * ms);
  return record;
}

StepSample sample_of(const core::StepTimeRecord& step) {
  return {core::median(step.samples_us) / 1e3, scaled(step.parts_us, 1e-3)};
}

core::StepRecord scaling_record(const core::RunRecord& run, const Result& result, const std::string& machine) {
  const trainer::TrainOptions& options = result.options;
  core::StepRecord record =
      program::new_step_record(run, "scaling", options.layout.ranks(), options.threads, options.layout.compute);
  record.model = mini_train::model_record(options);
  record.layout = mini_train::layout_record(options.layout);
  record.oversubscribed = result.oversubscribed;
  record.choices = {{"mode", name_of(result.mode)}};
  if (!machine.empty()) record.choices.emplace_back("machine", machine);
  record.sizes = {{"sequences_per_step", options.layout.global_batch()},
                  {"tokens_per_step", options.tokens_per_step()}};
  record.times = result.steps;
  record.series = {{"rounds_ms", result.rounds_ms()}};
  record.efficiency = result.efficiency;
  if (!result.times) return record;
  record.energy = result.times->energy;
  record.slowdowns = rows_of(result);
  return record;
}

}  // namespace lockstep::scaling
