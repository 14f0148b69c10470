// One row of ddp_overlap_bench: its run and its results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/parallel/ddp_flags.h"
#include "core/record.h"
#include "schedules/step/step.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::parallel_bench {

// The measurements of a row of ddp_overlap_bench.

// One sample per round. Each round runs every way once, so that interference from the machine hits all ways alike. All
// ways start from the same weights and the same tokens. Times are in ms, those of the slowest rank.
struct DdpRounds {
  std::vector<double> compute_ms;                       // kernels alone
  std::vector<double> communication_ms;                 // collectives alone
  std::vector<double> step_ms;                          // buckets are reduced during the backward
  std::vector<double> one_by_one_ms;                    // buckets are reduced after the backward
  std::vector<double> backward_ms;                      // kernels alone: the time during which buckets can travel
  std::vector<double> exposed_ms;                       // from the step's timeline: kernels idle while buckets travel
  std::vector<double> predicted_ms;                     // step time by the recurrence of buckets
  std::vector<schedules::StepTimeline> timelines = {};  // the overlapped steps'
};

struct DdpResult {
  DdpRounds rounds;
  std::int32_t buckets = 0;
  std::int64_t gradient_bytes = 0;  // per rank
  double sent_bytes = 0;            // per rank and step, mean over ranks: counted in the plans that ran
  double least_bytes = 0;           // bytes that algorithms of minimal traffic would have sent
  double formula_bytes = 0;         // workload::wire_bytes of all buckets
  bool in_planned_order =
      true;                  // in every round, no bucket's gradients were complete before those of the bucket before it
  std::int64_t wrong = 0;    // wrong elements, over all checks and ranks
  double most_of_bound = 0;  // largest error of an element as a fraction of its bound (checks.h)
  double relative_error = 0;         // |reduced - sum| / |sum| over all gradients of a step, Euclidean norms
  schedules::Step step;              // overlapped
  schedules::StepTimeline timeline;  // the round whose step time is the median

  std::optional<core::EnergyRecord> energy;  // energy of the overlapped steps
  std::string energy_text;                   // one line, also if nothing was measured

  // Medians over rounds.
  double compute_ms() const;
  double communication_ms() const;
  double step_ms() const;
  double one_by_one_ms() const;
  double backward_ms() const;
  double predicted_ms() const;
  double breakdown_exposed_ms() const;
  std::vector<double> exposed_samples_ms() const;  // step - compute of each round
  double exposed_ms() const;
  // True if reductions have the bytes that the formula says and the ranks sent no fewer.
  bool sent_as_formula() const;
  bool is_right() const { return wrong == 0 && sent_as_formula(); }
  // Hidden communication as a fraction of the most that can be hidden (docs/metrics.md).
  double efficiency() const;
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
DdpResult run_ddp(const DdpFlags& flags, const DdpCase& one, const Tamper& tamper = {});

// Serves the row as a worker instead of measuring it: the step with overlapped reductions, and the step with reductions
// after the backward.
void serve_ddp(const DdpFlags& flags, const DdpCase& one);

}  // namespace lockstep::parallel_bench
