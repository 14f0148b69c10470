// The time and memory of a training step on a machine: the step is built from the same schedules, passes and recipes
// that everything else uses, and simulated event by event.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/count.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/count.h"
#include "schedules/step/memory.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_prediction.h"
#include "workload/build_step.h"
#include "workload/layout.h"
#include "workload/memory.h"
#include "workload/model.h"

namespace lockstep::simulator {

enum class Detail : std::uint8_t {
  folded,   // a layer is one kernel, its collectives in it: as exact but for collectives beside a next action's kernel
  pieces,   // every collective of its own; kernels in a row are one, which takes as long (merge_kernels())
  kernels,  // every kernel and every collective of its own, to be held against the tasks that a trainer ran
};

enum class Extent : std::uint8_t {
  // One rank of each stage stands for all that do alike: tensor, context, expert and data ranks of a pipeline place.
  one_pipeline,
  all_ranks,  // each for itself: the same times (predict_test.cpp), and as many times the work
};

enum class Collectives : std::uint8_t {
  formulas,  // simulator/network/collective_time.h
  // Message by message, as ring and pairwise plans, on the links that all other messages take. Of all ranks only.
  plans,
};

struct PredictOptions {
  Detail detail = Detail::pieces;
  Extent extent = Extent::one_pipeline;
  Collectives collectives = Collectives::formulas;
  bool keep_timeline = false;
};

// Collectives of a step that are alike.
struct TakenCollectives {
  schedules::GroupKind group = schedules::GroupKind::data;
  schedules::Comm comm = schedules::Comm::none;
  std::int64_t bytes = 0;  // payload of one
  std::int64_t count = 0;
  CollectivePrediction each;
  double all_us() const { return static_cast<double>(count) * each.time_us(); }
};

struct Prediction {
  double step_s = 0;
  std::vector<schedules::Breakdown> parts;  // of each rank that was simulated
  std::size_t busiest = 0;                  // the one that computes longest
  schedules::Bubbles bubbles;  // of forward and backward; collectives inside layers that are waited for are work
  std::vector<workload::MemoryBytes> memory;  // of each place in the pipeline
  std::size_t fullest = 0;                    // the place that needs most
  double needed_bytes = 0;                    // of a device's memory; needed_bytes()
  bool fits = true;                           // in that memory

  double model_flops = 0;     // a step's, over all ranks; training_flops(), nothing counted twice
  double hardware_flops = 0;  // and what is recomputed
  double mfu = 0;             // model_flops / (ranks x peak x step)
  double hfu = 0;
  double tokens_per_s = 0;  // of all ranks

  std::vector<schedules::SentBytes> sent;  // by each rank that was simulated
  // [rank][level but the last]: of these, bytes that leave one switch of the level (schedules::beyond_bytes).
  std::vector<std::vector<double>> sent_beyond;
  // Of the busiest rank, those that take longest together first; none where collectives are plans.
  std::vector<TakenCollectives> collectives;

  std::int64_t events = 0;
  double engine_s = 0;               // wall-clock time of the simulation alone, without building the step
  schedules::Step step;              // if keep_timeline
  schedules::StepTimeline timeline;  // likewise
  // Likewise, of each rank that was simulated, beyond its weights, gradients and optimizer states.
  std::vector<schedules::RankMemory> memory_over_time;
};

// How the kernels of a layout are priced on a machine; `copies`: that run at the same time (kernel_ps()).
workload::Pricing pricing_of(const workload::Model& model, const workload::Layout& layout,
                             const schedules::Schedule& schedule, const Machine& machine, Detail detail,
                             std::int32_t copies = 1);

// The layout with the stages and slices that it leaves open chosen by the machine's prices of kernels (workload/
// balance.h).
workload::Layout balanced_on(const Machine& machine, const workload::Model& model, const workload::Layout& layout);

// The bytes that a layout needs of the memory of one device, `memory` of each place in the pipeline: the fullest rank's
// bytes, or those of all ranks together where they share one host (Machine::measured).
double needed_bytes(const workload::Layout& layout, const Machine& machine,
                    const std::vector<workload::MemoryBytes>& memory);

// Where ranks share the cores of one host (Machine::measured), every rank is simulated, on these cores
// (shared_cores.h). A layout that leaves stages or slices open gets them by balanced_on(). Throws core::Error(usage) if
// the model cannot be laid out so on this machine, and says what could.
Prediction predict(const workload::Model& model, const workload::Layout& layout, const Machine& machine,
                   const PredictOptions& options = {});

// A step that predict() kept, of one rank a place in the pipeline, with other kernels, or kernels of other times, on
// the same machine. Throws core::Error(usage) where ranks share cores.
Simulation simulate_step(const schedules::Step& step, const workload::Layout& layout, const Machine& machine);

}  // namespace lockstep::simulator
