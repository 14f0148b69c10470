// ddp_overlap_bench: its flags, the ways in which it times a step, its rows and its output.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/data_parallel/step_rank.h"
#include "bench/program/columns.h"
#include "bench/program/program.h"
#include "bench/step/part.h"
#include "collectives/transports/paced_link.h"
#include "core/statistics.h"
#include "schedules/step/step.h"
#include "trainer/step/train_step.h"
#include "trainer/train/options.h"
#include "trainer/worker/rank_model.h"
#include "workload/compression.h"

namespace lockstep::parallel_bench {

// The command line of ddp_overlap_bench.

using Link = std::optional<transports::LinkSpec>;  // none: as fast as this machine's memory

struct DdpFlags {
  StepFlags step;
  std::vector<Link> links{std::nullopt};
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
DdpFlags parse_ddp_flags(int argc, const char* const* argv);

// The rows of the table: checked options, with the link of each.
std::vector<trainer::TrainOptions> ddp_rows(const DdpFlags& flags);

// The same data-parallel step in four ways: with reductions during the backward, with reductions after it, without
// reductions, and reductions alone.

struct DdpSteps {
  trainer::TrainStep
      made;  // the model is made from this; its step contains the gradient norm, which the steps below lack
  schedules::Step overlapped;   // a bucket is reduced as soon as its last gradient is complete
  schedules::Step one_by_one;   // buckets are reduced after the backward has ended
  schedules::Step kernels;      // the step without collectives
  schedules::Step collectives;  // the step without kernels: buckets sequentially
};

// Takes checked options with ZeRO stage 0 and one pipeline stage.
DdpSteps ddp_steps(const trainer::TrainOptions& options);

// Times of a data-parallel step, as pure functions of its timelines.

// Backward time in the kernels alone, mean over ranks: from the start of the first to the end of the last backward
// kernel of the last microbatch. Gradients can travel during this time.
double backward_ms(const schedules::Step& kernels, const schedules::StepTimeline& timeline);

// For each bucket, the time from the start of the step until the last rank has completed its gradients, without any
// communication.
std::vector<double> ready_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels);

// Step time by the recurrence of buckets (schedules/step/buckets.h), from the kernels alone and the collectives
// alone: the slowest rank's kernels, plus the wait for its gradients.
double predicted_ms(const DdpSteps& steps, const schedules::StepTimeline& kernels,
                    const schedules::StepTimeline& collectives);

// The measurements of a row of ddp_overlap_bench.

// Each round runs every mode once, so that interference from the machine hits all alike: kernels alone, collectives
// alone, buckets reduced during the backward (overlapped), and after it (serial). All start from the same weights and
// the same tokens. Times are in ms, on the slowest rank.
struct DdpResult {
  step_bench::PartResult part;  // its worst is the largest error of an element as a fraction of its bound (checks.h)
  std::vector<double> backward_ms;   // time of each round during which buckets can travel: kernels alone
  std::vector<double> predicted_ms;  // step time of each round by the recurrence of buckets
  std::int32_t buckets = 0;
  std::int64_t gradient_bytes = 0;   // per rank
  bool in_planned_order = true;      // in every round, no bucket's gradients were complete before the previous bucket's
  double relative_error = 0;         // |reduced - sum| / |sum| over all gradients of a step, Euclidean norms
  schedules::Step step;              // overlapped
  schedules::StepTimeline timeline;  // the round whose step time is the median

  std::vector<double> samples_ms(step_bench::Mode mode) const;
  double ms(step_bench::Mode mode) const { return core::median(samples_ms(mode)); }
  double step_ms() const { return ms(step_bench::Mode::overlapped); }
  double communication_ms() const { return ms(step_bench::Mode::exchanges); }
  std::vector<double> exposed_samples_ms() const;  // step - compute of each round
  core::Estimate exposed() const;                  // their median in ms, not below 0
  // Hidden communication as a fraction of the most that can be hidden (docs/metrics.md): 0 for one bucket, which is
  // complete only when the backward ends.
  core::Estimate hidden() const;
  // Per rank and step, mean over ranks.
  double sent_bytes() const { return part.sent_bytes() / static_cast<double>(part.ranks.size()); }
  double formula_bytes() const { return part.formula_bytes() / static_cast<double>(part.ranks.size()); }
  std::string wrong() const;  // empty: nothing is wrong
};

// Runs one row of ddp_overlap_bench: one model, a number of replicas, one bucket size, one kind of link.

// For tests: changes a rank's gradients after a run, before they are compared.
struct Tamper {
  std::function<void(trainer::RankModel& model)> reference = [](trainer::RankModel& /*model*/) {};
  std::function<void(trainer::RankModel& model)> overlapped = [](trainer::RankModel& /*model*/) {};
};

// Gradients of every run with collectives, and the weights after its update, are compared bit for bit with those of a
// reference run without overlap. Gradients of the reference are compared with the sum that rank 0 computes from all
// ranks' shares on its own (checks.h).
DdpResult run_ddp(const StepFlags& flags, const trainer::TrainOptions& row, const Tamper& tamper = {});

// Serves the row as a worker instead of measuring it: the step with overlapped reductions, and the step with reductions
// after the backward.
void serve_ddp(const StepFlags& flags, const trainer::TrainOptions& row);

// The text that ddp_overlap_bench prints, as pure functions of the results.

struct DdpRow {
  const trainer::TrainOptions& options;
  const DdpResult& result;
};
// `rows`: all, for the widths of columns.
std::vector<program::Column<DdpRow>> ddp_columns(const std::vector<trainer::TrainOptions>& rows);
std::string ddp_heading_text(const StepFlags& flags, const std::vector<trainer::TrainOptions>& rows);
std::string ddp_ending_text(const std::vector<trainer::TrainOptions>& rows, const std::vector<DdpResult>& results);

std::string link_text(const Link& link);               // "10, 2": us and GB/s
std::string cap_text(const workload::Layout& layout);  // MiB per bucket, 0 for one bucket

// Main program of ddp_overlap_bench.

// Runs all requested cases, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. With --serve it serves timed steps to the gate instead. Throws core::Error. Under
// mpirun all ranks call it; rank 0 prints and writes.
int run_ddp_overlap(const DdpFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
