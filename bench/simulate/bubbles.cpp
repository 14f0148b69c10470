// simulate bubbles: K-FAC's work on a model's layers in the bubbles of pipeline schedules.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bench/simulate/commands.h"
#include "bench/simulate/study.h"
#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/passes/fill_bubbles.h"
#include "simulator/prices/kernel_price.h"
#include "workload/second_order.h"

namespace lockstep::simulate {
namespace {

using schedules::Step;

struct BubbleFlags : StudyFlags {
  BubbleFlags() { layout = "tp=8,pp=8,batch=32,sp=yes,recompute=full"; }
  std::vector<std::string> schedules = {"gpipe", "1f1b", "chimera"};
};

const std::array kBubbleFlags{
    program::FlagOf<BubbleFlags>{"--schedules", "gpipe,1f1b,chimera", "pipeline schedules, a list",
                                 [](BubbleFlags& f, const program::FlagValue& v) { f.schedules = text_list(v); }},
};

struct Bubbles {
  double plain_ms = 0;  // step without K-FAC's work
  double step_ms = 0;   // step with preconditioning; work in its bubbles does not lengthen it
  std::size_t steps = 0;
  double idle = 0;    // share of the time that is bubbles, over all pipeline ranks
  double filled = 0;  // share of the bubbles that is filled
  double utilization_without = 0;
  double utilization = 0;
};

double kernels_ps(const Step& step) {
  double ps = 0;
  for (const schedules::RankStep& rank : step.of_rank) {
    for (const schedules::Task& task : rank.tasks) {
      if (task.lane == schedules::Lane::compute) ps += static_cast<double>(task.amount);
    }
  }
  return ps;
}

class Filler {
 public:
  Filler(const workload::Model& model, const workload::Layout& layout, const simulator::Machine& machine)
      : model_(model),
        layout_(layout),
        machine_(machine),
        schedule_(schedule_of(layout)),
        work_(second_order_work(model, layout)) {}

  Bubbles fill() const {
    simulator::Prediction made = predict(model_, layout_, machine_, {.keep_timeline = true});
    Bubbles found{.plain_ms = made.step_s * 1e3};
    const double ranks = made.step.num_ranks();
    found.utilization_without = kernels_ps(made.step) / (ranks * found.plain_ms * kPsPerMs);
    precondition(made.step);
    const simulator::Simulation without = simulate_step(made.step, layout_, machine_);
    const std::vector<Step> steps =
        schedules::fill_bubbles(made.step, without.timeline, schedules::second_order_items(made.step, matrices()));
    double idle_ps = 0;
    for (const std::int64_t ps : schedules::bubble_ps_of_ranks(made.step, without.timeline)) {
      idle_ps += static_cast<double>(ps);
    }
    double filler_ps = 0;
    for (const Step& step : steps) {
      const std::int64_t makespan_ps = simulate_step(step, layout_, machine_).makespan_ps;
      LOCKSTEP_CHECK(makespan_ps == without.makespan_ps, "work in the bubbles does not lengthen the step");
      filler_ps += kernels_ps(step) - kernels_ps(made.step);
    }
    const double all_ps = ranks * static_cast<double>(without.makespan_ps);
    found.steps = steps.size();
    found.step_ms = static_cast<double>(without.makespan_ps) / kPsPerMs;
    found.idle = idle_ps / all_ps;
    found.filled = filler_ps / (static_cast<double>(steps.size()) * idle_ps);
    found.utilization = (kernels_ps(made.step) + filler_ps / static_cast<double>(steps.size())) / all_ps;
    return found;
  }

 private:
  std::int64_t ps(const workload::KernelCall& call) const { return simulator::kernel_ps(machine_, call); }

  workload::StageSlice slice(std::int32_t stage) const {
    return slice_of(model_, layout_, schedule_.stages_per_pipe, stage % schedule_.stages_per_pipe);
  }

  std::vector<std::vector<schedules::SecondOrderMatrix>> matrices() const {
    std::vector<std::vector<schedules::SecondOrderMatrix>> of_stages;
    for (std::int32_t stage = 0; stage < schedule_.num_stages(); ++stage) {
      const workload::StageSlice part = slice(stage);
      auto& of_stage = of_stages.emplace_back();
      for (std::int64_t layer = part.first_layer; layer < part.first_layer + part.layers; ++layer) {
        for (const workload::SecondOrderWork& one : work_) {
          of_stage.push_back({.part = part.part_of_layer(layer),
                              .input_curvature_ps = ps(one.input_curvature),
                              .output_curvature_ps = ps(one.output_curvature),
                              .input_inversion_ps = ps(one.input_inversion),
                              .output_inversion_ps = ps(one.output_inversion)});
        }
      }
    }
    return of_stages;
  }

  // Preconditioning lengthens each rank's update.
  void precondition(Step& step) const {
    std::int64_t of_layer = 0;
    for (const workload::SecondOrderWork& one : work_) of_layer += ps(one.precondition);
    std::vector<std::int64_t> of_rank(step.of_rank.size());
    for (std::int32_t stage = 0; stage < schedule_.num_stages(); ++stage) {
      of_rank[static_cast<std::size_t>(step.rank_of_stage[static_cast<std::size_t>(stage)])] +=
          of_layer * slice(stage).layers;
    }
    for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
      for (schedules::Task& task : step.of_rank[r].tasks) {
        const bool is_update = task.op == schedules::Op::optimizer && task.lane == schedules::Lane::compute;
        if (is_update) task.amount += of_rank[r];
      }
    }
  }

  const workload::Model& model_;
  const workload::Layout layout_;
  const simulator::Machine& machine_;
  const schedules::Schedule schedule_;
  const std::vector<workload::SecondOrderWork> work_;
};

std::string bubbles_heading_text(const std::string& setting) {
  return fmt::format(
      "# simulated: {}\n"
      "# K-FAC's work on the layers' matrices fills bubbles, over as many steps as it takes (PipeFisher, "
      "arXiv:2211.14133)\n"
      "# util: share of the time in which ranks compute, in a step without that work; u_filled: with it\n"
      "#{:<14} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n#{:<14} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      setting, "schedule", "step", "filled", "bubbles", "refresh", "filled", "util", "u_filled", "", "(ms)", "(ms)",
      "(%)", "(steps)", "(%)", "(%)", "(%)");
}

}  // namespace

int run_bubbles(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<BubbleFlags>(
      argc, argv, "the work of a second-order optimizer in the bubbles of pipeline schedules.", kBubbleFlags);
  const workload::Model model = workload::parse_model(flags.model);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const workload::Layout base = workload::parse_layout(flags.layout);
  if (base.update != workload::Update::step_end || base.pp == 1) {
    throw core::usage_error("--layout " + text_of(base) +
                            ": has no bubbles to fill; allowed here: pp of at least 2 and update=step_end");
  }
  Study study(flags, "bubbles");
  const std::string setting = setting_of(model, machine) + ", " + text_of(base);
  print(bubbles_heading_text(setting));
  for (const std::string& name : flags.schedules) {
    workload::Layout layout = base;
    layout.schedule = schedules::entry_named(name).name;
    const Bubbles found = Filler(model, layout, machine).fill();
    print(fmt::format(" {:<14} {:>10.2f} {:>10.2f} {:>9.2f} {:>9} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, found.plain_ms,
                      found.step_ms, 100 * found.idle, found.steps, 100 * found.filled, 100 * found.utilization_without,
                      100 * found.utilization));
    core::StudyRecord point = study.point(setting, name);
    point.layout = text_of(layout);
    point.values = {{"step_ms", found.step_ms},
                    {"plain_step_ms", found.plain_ms},
                    {"refresh_steps", static_cast<double>(found.steps)},
                    {"bubbles_percent", 100 * found.idle},
                    {"filled_percent", 100 * found.filled},
                    {"utilization_without_percent", 100 * found.utilization_without},
                    {"utilization_percent", 100 * found.utilization}};
    study.write(point);
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
