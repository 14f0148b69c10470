// simulate sensitivity: the change of the step time if a figure of the machine is better or worse by a few percent.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/simulate/commands.h"
#include "bench/simulate/study.h"
#include "core/error.h"
#include "simulator/machine/vary.h"

namespace lockstep::simulate {
namespace {

using simulator::Machine;
using simulator::MachineNumber;

struct SensitivityFlags : StudyFlags {
  SensitivityFlags() { layout = "tp=8,pp=4,dp=16,batch=512,sp=yes,zero=1"; }
  double percent = 10;
};

const std::array kSensitivityFlags{
    program::FlagOf<SensitivityFlags>{
        "--percent", "10", "change of each figure, in percent",
        [](SensitivityFlags& f, const program::FlagValue& v) { f.percent = v.number(0, 99); }},
};

struct Moved {
  MachineNumber figure;
  std::optional<double> more_percent;  // change of the step if the figure is larger; no value if it cannot be
  std::optional<double> less_percent;
  double largest() const { return std::max(std::abs(more_percent.value_or(0)), std::abs(less_percent.value_or(0))); }
};

std::optional<double> moved_percent(const workload::Model& model, const workload::Layout& layout,
                                    const Machine& machine, const MachineNumber& figure, double factor, double step_s) {
  std::optional<Machine> changed;
  try {
    changed = with_number(machine, figure.path, figure.value * factor);
  } catch (const core::Error&) {
    return std::nullopt;  // outside of the figure's range: an efficiency above 1
  }
  return 100 * (predict(model, layout, *changed).step_s / step_s - 1);
}

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:+.2f}", *percent) : "-";
}

}  // namespace

int run_sensitivity(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<SensitivityFlags>(
      argc, argv, "how much each figure of a machine changes the step time.", kSensitivityFlags);
  const workload::Model model = workload::parse_model(flags.model);
  const Machine machine = simulator::load_machine(flags.machine);
  const workload::Layout layout = workload::parse_layout(flags.layout);
  Study study(flags, "sensitivity");
  const double step_s = predict(model, layout, machine).step_s;
  std::vector<Moved> all;
  for (const MachineNumber& figure : numbers_of(machine)) {
    if (figure.whole || figure.value == 0)
      continue;  // sizes of nodes and of memory do not change the step time of a given layout
    const auto moved = [&](double factor) { return moved_percent(model, layout, machine, figure, factor, step_s); };
    all.push_back({figure, moved(1 + flags.percent / 100), moved(1 - flags.percent / 100)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Moved& a, const Moved& b) { return a.largest() > b.largest(); });
  const std::string setting = setting_of(model, machine) + ", " + text_of(layout);
  print(fmt::format(
      "# simulated: {}, {:.2f} ms per step\n#{:>9} {:>9}  figure of the machine and its value\n#{:>9} {:>9}  "
      "(- : cannot be so large)\n",
      setting, step_s * 1e3, fmt::format("+{:g} %", flags.percent), fmt::format("-{:g} %", flags.percent), "step (%)",
      "step (%)"));
  for (const Moved& one : all) {
    print(fmt::format(" {:>9} {:>9}  {} {:g}\n", percent_text(one.more_percent), percent_text(one.less_percent),
                      one.figure.path, one.figure.value));
    core::StudyRecord point = study.point(setting, one.figure.path);
    point.layout = text_of(layout);
    point.at = {{"value", one.figure.value}, {"percent", flags.percent}};
    if (one.more_percent) point.values.emplace_back("more_percent", *one.more_percent);
    if (one.less_percent) point.values.emplace_back("less_percent", *one.less_percent);
    point.values.emplace_back("step_ms", step_s * 1e3);
    point.best = &one == all.data();
    study.write(point);
  }
  if (!all.empty()) {
    print(
        fmt::format("# {} changes the step time most, by {:.1f} %\n", all.front().figure.path, all.front().largest()));
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
