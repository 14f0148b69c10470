// The time and memory of a training step on a machine: the step is built from the same schedules, passes and recipes
// that everything else uses, and simulated event by event.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/play.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"
#include "workload/build_step.h"
#include "workload/layout.h"
#include "workload/memory.h"
#include "workload/model.h"

namespace lockstep::simulator {

enum class Detail : std::uint8_t {
  folded,   // a layer is one kernel that includes its collectives; exact except for overlap with the next action
  pieces,   // collectives are separate; consecutive kernels are merged, with the same time (merge_kernels())
  kernels,  // every kernel and collective is separate, for comparison with the tasks that a trainer ran
};

enum class Extent : std::uint8_t {
  // One rank per pipeline stage represents the tensor, context, expert and data ranks of that stage.
  one_pipeline,
  all_ranks,  // every rank is simulated: equal times (predict_test.cpp) at a multiple of the cost
};

enum class Collectives : std::uint8_t {
  formulas,  // simulator/network/collective_time.h
  // Message by message, as ring and pairwise plans, on the links of all other messages. Requires all_ranks.
  plans,
};

struct PredictOptions {
  Detail detail = Detail::pieces;
  Extent extent = Extent::one_pipeline;
  Collectives collectives = Collectives::formulas;
  bool keep_timeline = false;
  bool compare_zero_cta = false;  // if the layout has zero_cta: also predict the step without it
};

// Equal collectives of a step.
struct TakenCollectives {
  schedules::GroupKind group = schedules::GroupKind::data;
  std::int64_t ranks = 0;  // members of the group
  schedules::Comm comm = schedules::Comm::none;
  std::int64_t bytes = 0;  // payload per collective
  std::int64_t count = 0;
  CollectivePrediction each;
  double all_us() const { return static_cast<double>(count) * each.time_us(); }
};

// The time of a step on a machine.
struct Replay {
  double step_s = 0;
  std::vector<schedules::Breakdown> parts;  // per simulated rank
  std::size_t busiest = 0;                  // index of the rank that computes longest
  // Collectives of the busiest rank, by descending total time; empty if collectives run as plans.
  std::vector<TakenCollectives> collectives;
  schedules::StepTimeline timeline;
};

struct Prediction : Replay {   // timeline: only with keep_timeline
  schedules::Bubbles bubbles;  // forward and backward only; exposed collectives inside layers count as work
  std::vector<workload::MemoryBytes> memory;  // per pipeline rank
  std::size_t fullest = 0;                    // index of the one that needs most
  double needed_bytes = 0;                    // per device; see needed_bytes()
  bool fits = true;                           // needed_bytes fit into the device's memory

  double model_flops = 0;     // per step, over all ranks; training_flops() without recomputation
  double hardware_flops = 0;  // model_flops plus recomputation
  double mfu = 0;             // model_flops / (ranks x peak x step)
  double hfu = 0;
  double tokens_per_s = 0;  // all ranks together

  std::vector<schedules::SentBytes> sent;  // per simulated rank
  // [rank][level, without the last]: the sent bytes that leave a switch of the level (schedules::beyond_bytes).
  std::vector<std::vector<double>> sent_beyond;

  double without_zero_cta_s = 0;  // the step with zero_cta=no; only with compare_zero_cta
  std::int64_t events = 0;
  double engine_s = 0;   // wall-clock time of the simulation alone, without building the step
  schedules::Step step;  // only with keep_timeline
  // Only with keep_timeline: memory of each simulated rank beyond its weights, gradients and optimizer states.
  std::vector<schedules::RankMemory> memory_over_time;
};

// Prices of a layout's kernels on a machine, with `copies` of each running at the same time (kernel_ps()).
workload::Pricing pricing_of(const workload::Model& model, const workload::Layout& layout,
                             const schedules::Schedule& schedule, const Machine& machine, Detail detail,
                             std::int32_t copies = 1);

// The layout with its unspecified stages and slices balanced by the machine's kernel prices (workload/build_step.h).
workload::Layout balanced_on(const Machine& machine, const workload::Model& model, const workload::Layout& layout);

// Bytes of one device's memory that a layout needs: the fullest rank's bytes, or the bytes of all ranks if they share
// one host (Machine::measured). `memory`: per pipeline rank.
double needed_bytes(const workload::Layout& layout, const Machine& machine,
                    const std::vector<workload::MemoryBytes>& memory);

// Predicts a training step. If ranks share the cores of one host (Machine::measured), every rank is simulated on these
// cores (predict.cpp). Unspecified stages or slices are chosen by balanced_on(). Throws core::Error(usage) if the
// layout is impossible for this model or machine, with what is allowed.
Prediction predict(const workload::Model& model, const workload::Layout& layout, const Machine& machine,
                   const PredictOptions& options = {});

// Simulates a step that predict() kept, of one rank per pipeline stage, with changed kernels on the same machine.
// Throws core::Error(usage) if ranks share cores.
Simulation simulate_step(const schedules::Step& step, const workload::Layout& layout, const Machine& machine);

// The time of a step of all ranks, such as one that a trace describes (schedules/step/traces.h), with rank r on device
// r. Throws core::Error(usage) if ranks share cores, or if there are more ranks than devices of a torus, or on a
// deadlock. `blocking`: lanes that an idle rank waits for even without a dependency (schedules::breakdown_of()).
Replay replay(const schedules::Step& step, const Machine& machine, const schedules::BlockingLanes& blocking = {});

}  // namespace lockstep::simulator
