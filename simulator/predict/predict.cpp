#include "simulator/predict/predict.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "schedules/catalogue.h"
#include "simulator/engine/engine.h"
#include "simulator/network/collective_time.h"
#include "simulator/network/expand.h"
#include "simulator/network/topology.h"
#include "simulator/predict/build_step.h"

namespace lockstep::simulator {
namespace {

constexpr double kPsPerSecond = 1e12;
constexpr double kPsPerUs = 1e6;

std::vector<std::int64_t> places_of_pipeline(const Layout& layout) {
  std::vector<std::int64_t> places;
  for (std::int64_t r = 0; r < layout.pp; ++r) places.push_back(r * (layout.ranks() / layout.pp));
  return places;
}

std::vector<std::int64_t> all_places(const Layout& layout) {
  std::vector<std::int64_t> places;
  for (std::int64_t r = 0; r < layout.ranks(); ++r) places.push_back(r);
  return places;
}

Simulation run(const schedules::Step& step, const StepGroups& groups, const Machine& machine,
               std::vector<std::int64_t> places) {
  const MachineNetwork network(machine, std::move(places));
  const auto collective_time = [&](const schedules::Group&, const schedules::Task& task) {
    const auto best = best_collective(machine, task.comm, static_cast<double>(task.amount),
                                      groups.members[static_cast<std::size_t>(task.peer)]);
    return static_cast<std::int64_t>(std::llround(best.time_us() * kPsPerUs));
  };
  return simulate(step, network, collective_time);
}

// Of forward and backward, without what comes after them (the rest of the reductions, the optimizer). Kernels and the
// collectives inside layers that they wait for are a rank's work.
schedules::Bubbles bubbles_of_step(const schedules::Step& step, const schedules::StepTimeline& timeline,
                                   const std::vector<schedules::Breakdown>& parts) {
  schedules::Spans spans;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    std::int64_t first = -1;
    std::int64_t last = 0;
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const schedules::Task& task = step.of_rank[r].tasks[i];
      if (task.lane != schedules::Lane::compute || task.op == schedules::Op::optimizer) continue;
      if (first < 0) first = timeline[r][i].start_ps;
      last = std::max(last, timeline[r][i].end_ps);
    }
    const std::int64_t tensor_ps = parts[r].exposed_ps[static_cast<std::size_t>(schedules::Lane::tensor)];
    const std::int64_t work_ps = parts[r].compute_ps() - parts[r].optimizer_ps + tensor_ps;
    spans.of_rank.push_back(static_cast<double>(last - first));
    spans.own = std::max(spans.own, spans.of_rank.back());
    spans.makespan = std::max(spans.makespan, static_cast<double>(last));
    spans.work = std::max(spans.work, static_cast<double>(work_ps));
  }
  return schedules::bubbles_of(spans);
}

// Of each stage of a schedule.
std::vector<schedules::ActivationBytes> activations_of_stages(const Model& model, const Layout& layout,
                                                              const schedules::Schedule& schedule) {
  std::vector<schedules::ActivationBytes> all;
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const StageActivations of_stage =
        activations_of(model, layout, slice_of(model, layout, schedule.stages_a_pipe, stage % schedule.stages_a_pipe));
    all.push_back({.until_input_gradient = std::llround(of_stage.kept - of_stage.later),
                   .until_weight_gradient = std::llround(of_stage.later)});
  }
  return all;
}

std::size_t busiest_of(const std::vector<schedules::Breakdown>& parts) {
  const auto most = std::max_element(parts.begin(), parts.end(),
                                     [](const auto& a, const auto& b) { return a.compute_ps() < b.compute_ps(); });
  return static_cast<std::size_t>(most - parts.begin());
}

void add_rates(Prediction& made, const Model& model, const Layout& layout, const Machine& machine) {
  const double tokens = static_cast<double>(layout.global_batch * model.sequence);
  made.model_flops = training_flops(model, tokens, false);
  made.hardware_flops = training_flops(model, tokens, layout.recompute == Recompute::full);
  if (layout.recompute == Recompute::selective) made.hardware_flops += tokens * token_flops(model).attention;
  const double peak = machine.device.matrix_tflops * 1e12 * static_cast<double>(layout.ranks());
  made.mfu = made.model_flops / (peak * made.step_s);
  made.hfu = made.hardware_flops / (peak * made.step_s);
  made.tokens_per_s = tokens / made.step_s;
}

}  // namespace

Prediction predict(const Model& model, const Layout& layout, const Machine& machine, const PredictOptions& options) {
  if (options.collectives == Collectives::plans && options.extent != Extent::all_ranks) {
    throw core::usage_error("collectives as plans need every rank; allowed: with all ranks simulated");
  }
  const std::string misfit = misfit_of(model, layout);
  if (!misfit.empty()) throw core::usage_error(model.name + ", " + text_of(layout) + ": " + misfit);
  const schedules::Schedule schedule = schedules::make_schedule(layout.schedule, shape_of(layout));
  PipelineStep built = build_step(model, layout, machine, schedule, options.detail);

  Prediction made;
  std::vector<std::int64_t> places = places_of_pipeline(layout);
  if (options.extent == Extent::all_ranks) {
    WholeStep whole = unfold(built.step, layout, machine);
    built = {std::move(whole.step), std::move(whole.groups)};
    places = all_places(layout);
  }
  made.sent = schedules::count_sent(built.step);
  if (options.collectives == Collectives::plans) expand_collectives(built.step, ring_plan);
  const auto begin = std::chrono::steady_clock::now();
  Simulation simulation = run(built.step, built.groups, machine, std::move(places));
  made.engine_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  made.step_s = static_cast<double>(simulation.makespan_ps) / kPsPerSecond;
  made.events = simulation.events;
  made.parts = schedules::breakdown_of(built.step, simulation.timeline);
  made.busiest = busiest_of(made.parts);
  made.bubbles = bubbles_of_step(built.step, simulation.timeline, made.parts);
  made.memory = memory_of(model, layout, schedule);
  made.fullest = worst_of(made.memory);
  made.fits = made.memory[made.fullest].total() <= static_cast<double>(machine.device.memory_bytes);
  add_rates(made, model, layout, machine);
  if (options.keep_timeline) {
    made.memory_over_time =
        schedules::memory_over_time(built.step, simulation.timeline, activations_of_stages(model, layout, schedule));
    made.step = std::move(built.step);
    made.timeline = std::move(simulation.timeline);
  }
  return made;
}

}  // namespace lockstep::simulator
