// simulate bubbles: K-FAC's work on a model's layers in the bubbles of pipeline schedules.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/simulate/simulate.h"
#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/passes/passes.h"
#include "simulator/engine/filled.h"
#include "simulator/predict/clocks.h"
#include "simulator/prices/prices.h"
#include "workload/build_step.h"

namespace lockstep::simulate {
namespace {

using schedules::Step;
using simulator::ClockChoice;
using simulator::Clocked;
using simulator::ClockOf;
using simulator::PowerCurve;

struct BubbleFlags : StudyFlags {
  BubbleFlags() { layout = "tp=8,pp=8,batch=32,sp=yes,recompute=full"; }
  std::vector<std::string> schedules = {"gpipe", "1f1b", "chimera"};
};

const std::array kBubbleFlags{
    program::FlagOf<BubbleFlags>{"--schedules", "gpipe,1f1b,chimera", "pipeline schedules, a list",
                                 [](BubbleFlags& f, const program::FlagValue& v) {
                                   f.schedules = text_list(v);
                                   for (const std::string& name : f.schedules) schedules::entry_named(name);
                                 }},
};

struct Bubbles : simulator::FilledSteps {
  double plain_ms = 0;  // step without K-FAC's work
  double step_ms = 0;   // step with preconditioning; work in its bubbles does not lengthen it
  double utilization_without = 0;
};

class Filler {
 public:
  Filler(const workload::Model& model, const workload::Layout& layout, const simulator::Machine& machine)
      : model_(model),
        layout_(layout),
        machine_(machine),
        schedule_(schedule_of(layout)),
        work_(second_order_work(model, layout)) {}

  Bubbles fill() const {
    simulator::Prediction prediction = predict(model_, layout_, machine_, {.keep_timeline = true});
    const double plain_ms = prediction.step_s * 1e3;
    const double utilization_without = simulator::utilization_of(prediction.step, plain_ms * kPsPerMs);
    precondition(prediction.step);
    Bubbles found{simulator::filled_steps(prediction.step, schedules::second_order_items(prediction.step, matrices()),
                                          [&](const Step& step) { return simulate_step(step, layout_, machine_); }),
                  plain_ms};
    found.step_ms = static_cast<double>(found.makespan_ps) / kPsPerMs;
    found.utilization_without = utilization_without;
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
        for (const workload::SecondOrderWork& work : work_) {
          of_stage.push_back({.part = part.part_of_layer(layer),
                              .input_curvature_ps = ps(work.input_curvature),
                              .output_curvature_ps = ps(work.output_curvature),
                              .input_inversion_ps = ps(work.input_inversion),
                              .output_inversion_ps = ps(work.output_inversion)});
        }
      }
    }
    return of_stages;
  }

  // Preconditioning lengthens each rank's update.
  void precondition(Step& step) const {
    std::int64_t of_layer = 0;
    for (const workload::SecondOrderWork& work : work_) of_layer += ps(work.precondition);
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
      argc, argv, "a second-order optimizer's work in the bubbles of pipeline schedules.", kBubbleFlags);
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
                      found.step_ms, 100 * found.idle, found.steps.size(), 100 * found.filled,
                      100 * found.utilization_without, 100 * found.utilization));
    core::StudyRecord point = study.point(setting, name);
    point.layout = text_of(layout);
    point.values = {{"step_ms", found.step_ms},
                    {"plain_step_ms", found.plain_ms},
                    {"refresh_steps", static_cast<double>(found.steps.size())},
                    {"bubbles_percent", 100 * found.idle},
                    {"filled_percent", 100 * found.filled},
                    {"utilization_without_percent", 100 * found.utilization_without},
                    {"utilization_percent", 100 * found.utilization}};
    study.write(point);
  }
  study.commit();
  return 0;
}

// simulate clocks: energy of a step at the top clock, and with clocks lowered where the pipeline does not wait.
namespace {

struct ClockFlags : StudyFlags {
  ClockFlags() { layout = "tp=8,pp=8,batch=32,sp=yes,recompute=full"; }
  PowerCurve power;
  std::vector<double> slower = {0, 1, 2, 5, 10};  // percent
  std::vector<ClockOf> of = {ClockOf::stage, ClockOf::unit};
};

std::string_view clock_name(ClockOf of) {
  return of == ClockOf::unit ? "unit" : "stage";
}

std::vector<ClockOf> clocks_of(const program::FlagValue& value) {
  std::vector<ClockOf> all;
  for (const program::FlagValue& part : value.list()) {
    all.push_back(part.index_of(std::array{"unit", "stage"}) == 0 ? ClockOf::unit : ClockOf::stage);
  }
  return all;
}

const std::array kClockFlags{
    program::FlagOf<ClockFlags>{
        "--power", "fixed=100,dynamic=300,idle=80,top=1410,least=210,step=15",
        "power of a device by clock, in watts and MHz: fixed + dynamic f v^2 while a kernel runs, with clock f and "
        "voltage v relative to the top clock's, v = f down to knee (0.65) and no further; idle; bound (1): the share "
        "of a kernel's time that is inversely proportional to the clock",
        [](ClockFlags& f, const program::FlagValue& v) { f.power = v.parsed_by(simulator::parse_power); }},
    program::FlagOf<ClockFlags>{
        "--clocks", "stage,unit",
        "granularity of clocks, a list: stage (a rank's whole step), unit (a stage's forward or backward of one "
        "microbatch, as in EnvPipe)",
        [](ClockFlags& f, const program::FlagValue& v) { f.of = clocks_of(v); }},
    program::FlagOf<ClockFlags>{
        "--slower", "0,1,2,5,10",
        "percentages by which the step may become longer, a list: gives the frontier of time and energy",
        [](ClockFlags& f, const program::FlagValue& v) {
          f.slower.clear();
          for (const auto& part : v.list()) f.slower.push_back(part.number_from(0, 1000));
        }},
};

// Mean clocks of a pipeline rank, weighted by the time of its kernels at the top clock.
struct StageClocks {
  double forward_mhz = 0;
  double backward_mhz = 0;  // backward and all other kernels
  double least_mhz = 0;
};

std::vector<StageClocks> stage_clocks(const ClockChoice& choice, std::size_t ranks) {
  std::vector<StageClocks> all(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::map<bool, std::pair<double, double>> sums;  // forward or not: clock times weight, weight
    for (const Clocked& one : choice.clocked) {
      if (one.rank != static_cast<std::int32_t>(r)) continue;
      auto& [sum, weight] = sums[one.op == schedules::Op::forward];
      sum += one.mhz * static_cast<double>(one.top_ps);
      weight += static_cast<double>(one.top_ps);
      all[r].least_mhz = all[r].least_mhz == 0 ? one.mhz : std::min(all[r].least_mhz, one.mhz);
    }
    const auto mean = [&](bool forward) {
      return sums.contains(forward) ? sums[forward].first / sums[forward].second : 0;
    };
    all[r].forward_mhz = mean(true);
    all[r].backward_mhz = mean(false);
  }
  return all;
}

std::string stages_text(const std::vector<StageClocks>& stages, ClockOf of) {
  std::string text;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    text +=
        of == ClockOf::stage
            ? fmt::format("# pipeline rank {}: {:.0f} MHz\n", s, stages[s].forward_mhz)
            : fmt::format("# pipeline rank {}: forward {:.0f} MHz, backward {:.0f} MHz in the mean, {:.0f} at least\n",
                          s, stages[s].forward_mhz, stages[s].backward_mhz, stages[s].least_mhz);
  }
  return text;
}

std::string clocks_heading_text(const std::string& setting, const PowerCurve& curve, double step_ms, double joules,
                                double tokens) {
  return fmt::format(
      "# simulated: {}\n# assumed power of a device: {}\n# at the top clock: {:.2f} ms, {:.1f} kJ per step on all "
      "devices, {:.2f} tokens per joule\n#{:>6} {:>8} {:>10} {:>10} {:>9} {:>9}\n#{:>6} {:>8} {:>10} {:>10} {:>9} "
      "{:>9}\n",
      setting, text_of(curve), step_ms, joules / 1e3, tokens / joules, "clocks", "slower", "step", "energy", "saved",
      "tokens/J", "", "(%)", "(ms)", "(kJ)", "(%)", "");
}

}  // namespace

int run_clocks(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<ClockFlags>(
      argc, argv, "energy of a step with clocks lowered where the pipeline does not wait.", kClockFlags);
  const workload::Model model = workload::parse_model(flags.model);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const workload::Layout layout = workload::parse_layout(flags.layout);
  Study study(flags, "clocks");
  const simulator::Prediction prediction =
      predict(model, layout, machine, {.detail = simulator::Detail::folded, .keep_timeline = true});
  const auto simulate = [&](const schedules::Step& step) { return simulate_step(step, layout, machine).makespan_ps; };
  const double devices =
      static_cast<double>(layout.ranks()) / prediction.step.num_ranks();  // devices per pipeline rank
  const double tokens = static_cast<double>(layout.global_batch() * model.sequence);
  const ClockChoice top = all_at_top(prediction.step, prediction.timeline, flags.power, ClockOf::stage);
  const std::string setting = setting_of(model, machine) + ", " + text_of(layout);
  print(clocks_heading_text(setting, flags.power, static_cast<double>(top.makespan_ps) / kPsPerMs, top.joules * devices,
                            tokens));
  for (const ClockOf of : flags.of) {
    for (const double slower : flags.slower) {
      const auto target_ps = static_cast<std::int64_t>(static_cast<double>(top.makespan_ps) * (1 + slower / 100));
      const ClockChoice choice =
          choose_clocks(prediction.step, prediction.timeline, flags.power, of, target_ps, simulate);
      const double joules = choice.joules * devices;
      const double saved = 100 * (1 - choice.joules / top.joules);
      const double step_ms = static_cast<double>(choice.makespan_ps) / kPsPerMs;
      print(fmt::format(" {:>6} {:>8.4g} {:>10.2f} {:>10.2f} {:>9.2f} {:>9.3f}\n", clock_name(of), slower, step_ms,
                        joules / 1e3, saved, tokens / joules));
      const std::vector<StageClocks> stages = stage_clocks(choice, prediction.step.of_rank.size());
      if (slower == flags.slower.front()) print(stages_text(stages, of));
      core::StudyRecord point = study.point(setting, std::string(clock_name(of)));
      point.layout = text_of(layout);
      point.note = "assumed power: " + text_of(flags.power);
      point.at = {{"slower_percent", slower}};
      point.values = {
          {"step_ms", step_ms}, {"joules", joules}, {"saved_percent", saved}, {"tokens_per_joule", tokens / joules}};
      for (std::size_t s = 0; s < stages.size(); ++s) {
        if (of == ClockOf::stage) {
          point.values.emplace_back(fmt::format("mhz_{}", s), stages[s].forward_mhz);
          continue;
        }
        point.values.emplace_back(fmt::format("forward_mhz_{}", s), stages[s].forward_mhz);
        point.values.emplace_back(fmt::format("backward_mhz_{}", s), stages[s].backward_mhz);
      }
      study.write(point);
    }
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
