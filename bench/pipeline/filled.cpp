#include "bench/pipeline/filled.h"

#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "bench/pipeline/records.h"
#include "core/error.h"
#include "schedules/passes/fill_bubbles.h"
#include "schedules/passes/optimizer.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/one_switch.h"

namespace lockstep::pipeline {
namespace {

using schedules::FillerItem;
using schedules::Step;
using schedules::StepTimeline;

// Number of layers of a stage, which is a chunk of its rank's share.
std::int32_t layers_of_stage(const Case& one, const FillerWork& work) {
  const std::int32_t chunks = one.schedule.chunks();
  if (work.layers % chunks == 0) return work.layers / chunks;
  throw core::usage_error("--fill: layers is " + std::to_string(work.layers) + ", and schedule " + one.name + " has " +
                          std::to_string(chunks) + " chunks per rank; allowed: multiples of the chunks");
}

std::vector<std::vector<FillerItem>> items_of(const Case& one, const FillerWork& work, const Step& step) {
  const std::int32_t layers = layers_of_stage(one, work);
  const auto of_layer = [&](double ms) { return ps_of(ms / one.schedule.chunks() / layers); };
  std::vector<schedules::SecondOrderMatrix> of_stage;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    of_stage.push_back({.part = layer,
                        .input_curvature_ps = of_layer(work.input_curvature),
                        .output_curvature_ps = of_layer(work.output_curvature),
                        .input_inversion_ps = of_layer(work.inversion / 2),
                        .output_inversion_ps = of_layer(work.inversion / 2)});
  }
  auto items = schedules::second_order_items(step, std::vector<std::vector<schedules::SecondOrderMatrix>>(
                                                       static_cast<std::size_t>(step.num_stages()), of_stage));
  for (std::vector<FillerItem>& of_rank : items) {
    for (std::int32_t kernel = 0; work.work > 0 && kernel < work.layers; ++kernel) {
      of_rank.push_back(
          {.task = {.op = schedules::Op::filler, .part = kernel, .amount = ps_of(work.work / work.layers)}});
    }
  }
  return items;
}

simulator::Simulation simulated(const Step& step, const schedules::Times& times_ms) {
  const simulator::OneSwitch network(step.num_ranks(), ps_of(times_ms.message), kEvictionLink);
  return simulator::simulate(step, network, [](const auto& /*group*/, const auto& /*task*/) { return 0; });
}

// Picoseconds of kernels, over all ranks.
double computed_ps(const Step& step, bool fillers, bool others) {
  double ps = 0;
  for (const schedules::RankStep& rank : step.of_rank) {
    for (const schedules::Task& task : rank.tasks) {
      if (task.lane != schedules::Lane::compute) continue;
      if (schedules::is_filler(task.op) ? fillers : others) ps += static_cast<double>(task.amount);
    }
  }
  return ps;
}

// Adds the work that every step does after its gradients.
void add_precondition(Step& step, const FillerWork& work) {
  if (work.precondition == 0) return;
  const std::vector<std::int64_t> ps_of_rank(step.of_rank.size(), ps_of(work.precondition));
  schedules::add_optimizer(step, ps_of_rank, schedules::Barrier::none);
}

double part_computed(double computed_ps, const Step& step, std::int64_t makespan_ps) {
  return computed_ps / (static_cast<double>(step.num_ranks()) * static_cast<double>(makespan_ps));
}

}  // namespace

Filled fill(const Case& one, const PipelineFlags& flags, const Step& plain) {
  Filled filled;
  filled.without = plain;
  add_precondition(filled.without, flags.filler);
  const simulator::Simulation without = simulated(filled.without, flags.times_ms);
  filled.steps = schedules::fill_bubbles(filled.without, without.timeline, items_of(one, flags.filler, plain));
  double filler_ps = 0;
  for (const Step& with : filled.steps) {
    simulator::Simulation simulation = simulated(with, flags.times_ms);
    LOCKSTEP_CHECK(simulation.makespan_ps == without.makespan_ps, "work in the bubbles does not lengthen the step");
    filled.timelines.push_back(std::move(simulation.timeline));
    filler_ps += computed_ps(with, true, false);
  }
  double idle_ps = 0;
  for (const std::int64_t ps : schedules::bubble_ps_of_ranks(filled.without, without.timeline)) {
    idle_ps += static_cast<double>(ps);
  }
  const auto steps = static_cast<double>(filled.steps.size());
  filled.makespan_without_ms = static_cast<double>(without.makespan_ps) / kPsPerMs;
  filled.filled = filler_ps / (steps * idle_ps);
  filled.utilization =
      part_computed(filler_ps / steps + computed_ps(filled.without, false, true), plain, without.makespan_ps);
  filled.utilization_without =
      part_computed(computed_ps(plain, false, true), plain, simulated(plain, flags.times_ms).makespan_ps);
  return filled;
}

core::TimelineRecord timeline_record(const Filled& filled) {
  core::TimelineRecord all;
  for (std::size_t s = 0; s < filled.steps.size(); ++s) {
    core::TimelineRecord one = timeline_record(filled.steps[s], filled.timelines[s]);
    all.ranks.resize(one.ranks.size());
    for (std::size_t r = 0; r < one.ranks.size(); ++r) {
      for (auto& task : one.ranks[r]) {
        task.start += static_cast<double>(s) * filled.makespan_without_ms;
        task.end += static_cast<double>(s) * filled.makespan_without_ms;
        all.ranks[r].push_back(std::move(task));
      }
    }
  }
  return all;
}

}  // namespace lockstep::pipeline
