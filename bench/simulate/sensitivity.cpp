// simulate order: every order of a layout's kinds of parallelism in rank numbers, which decides which kind stays inside
// a node.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "bench/simulate/simulate.h"
#include "core/error.h"
#include "simulator/machine/machine.h"
#include "workload/layout.h"

namespace lockstep::simulate {
namespace {

using simulator::Machine;
using simulator::MachineNumber;
using workload::Axis;
using workload::Layout;

struct OrderFlags : StudyFlags {
  OrderFlags() { layout = "tp=8,pp=4,dp=8,batch=256,sp=yes,zero=1"; }
};

constexpr std::array<program::FlagOf<OrderFlags>, 0> kOrderFlags{};

struct Ordered {
  std::string name;  // "tp-dp-pp", without axes of one rank
  Layout layout;
  simulator::Prediction made = {};
};

std::string short_name(const Layout& layout) {
  const std::array<std::pair<const char*, std::int32_t>, 4> axes{
      {{"tp", layout.tp}, {"cp", layout.cp}, {"dp", layout.dp}, {"pp", layout.pp}}};
  std::string name;
  for (const Axis axis : layout.order) {
    const auto& [text, ranks] = axes.at(static_cast<std::size_t>(axis));
    if (ranks > 1) name += (name.empty() ? "" : "-") + std::string(text);
  }
  return name.empty() ? "tp" : name;
}

// Orders that differ only in axes of one rank count once.
std::vector<Ordered> orders_of(const workload::Model& model, const Layout& base) {
  std::vector<Ordered> orders;
  std::set<std::string> known;
  Layout layout = base;
  layout.order = workload::kMegatronOrder;
  do {
    if (why_invalid(model, layout).empty() && known.insert(short_name(layout)).second) {
      orders.push_back({short_name(layout), layout});
    }
  } while (std::next_permutation(layout.order.begin(), layout.order.end()));
  return orders;
}

}  // namespace

int run_order(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<OrderFlags>(
      argc, argv, "every order of a layout's ranks: which kind of parallelism belongs inside a node.", kOrderFlags);
  const workload::Model model = workload::parse_model(flags.model);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const Layout base = workload::parse_layout(flags.layout);
  if (const std::string reason = why_invalid(model, base); !reason.empty()) throw core::usage_error("order: " + reason);
  Study study(flags, "order");
  std::vector<Ordered> orders = orders_of(model, base);
  for (Ordered& order : orders) order.made = predict(model, order.layout, machine);
  std::stable_sort(orders.begin(), orders.end(),
                   [](const Ordered& a, const Ordered& b) { return a.made.step_s < b.made.step_s; });
  const std::string setting = setting_of(model, machine) + ", " + text_of(base);
  print(fmt::format(
      "# simulated: {}\n# neighbouring ranks differ in the first of an order; {} ranks share a node\n#{:>9} {:>9}{}  "
      "order, and the part that grows most against the first\n#{:>9} {:>9}       (% of the step)\n",
      setting, machine.levels.front().ranks, "step", "against", parts_columns_text(), "(ms)", "best (%)"));
  const simulator::Prediction& best = orders.front().made;
  for (const Ordered& order : orders) {
    const double slower = 100 * (order.made.step_s / best.step_s - 1);
    const std::string why = &order.made == &best ? "" : longer_part_text(best, order.made);
    print(fmt::format(" {:>9.2f} {:>+9.2f}{}  {}{}\n", order.made.step_s * 1e3, slower, parts_text(order.made),
                      order.name, why.empty() ? "" : ": " + why));
    core::StudyRecord point = study.point(setting, order.name, order.layout, order.made);
    point.at = {{"place", static_cast<double>(&order - orders.data() + 1)}};
    point.values.emplace_back("slower_percent", slower);
    point.best = &order.made == &best;
    point.note = why;
    study.write(point);
  }
  print(fmt::format("# {} inside a node is best; the worst order, {}, takes {:.2f} times as long\n",
                    orders.front().name.substr(0, orders.front().name.find('-')), orders.back().name,
                    orders.back().made.step_s / best.step_s));
  study.commit();
  return 0;
}

// simulate sensitivity: the change of the step time if a parameter of the machine is better or worse by a few percent.
namespace {

struct SensitivityFlags : StudyFlags {
  SensitivityFlags() { layout = "tp=8,pp=4,dp=16,batch=512,sp=yes,zero=1"; }
  double percent = 10;
};

const std::array kSensitivityFlags{
    program::FlagOf<SensitivityFlags>{
        "--percent", "10", "change of each parameter, in percent",
        [](SensitivityFlags& f, const program::FlagValue& v) { f.percent = v.number(0, 99); }},
};

struct Moved {
  MachineNumber figure;
  std::optional<double> more_percent;  // change of the step if the parameter is larger; no value if it cannot be
  std::optional<double> less_percent;
  double largest() const { return std::max(std::abs(more_percent.value_or(0)), std::abs(less_percent.value_or(0))); }
};

std::optional<double> moved_percent(const workload::Model& model, const workload::Layout& layout,
                                    const Machine& machine, const MachineNumber& figure, double factor, double step_s) {
  std::optional<Machine> changed;
  try {
    changed = with_number(machine, figure.path, figure.value * factor);
  } catch (const core::Error&) {
    return std::nullopt;  // outside of the parameter's range: an efficiency above 1
  }
  return 100 * (predict(model, layout, *changed).step_s / step_s - 1);
}

// As --sweep takes it.
std::string swept_name(const MachineNumber& figure) {
  return std::string(kMachineField) + figure.path;
}

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:+.2f}", *percent) : "-";
}

}  // namespace

int run_sensitivity(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<SensitivityFlags>(
      argc, argv, "how much each parameter of a machine affects the step time.", kSensitivityFlags);
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
      "# simulated: {}, {:.2f} ms per step\n#{:>9} {:>9}  figure of the machine and its value\n#{:>9} {:>9}  (- : not "
      "a possible value; docs/machine_format.md explains the figures)\n",
      setting, step_s * 1e3, fmt::format("+{:g} %", flags.percent), fmt::format("-{:g} %", flags.percent), "step (%)",
      "step (%)"));
  for (const Moved& moved : all) {
    const std::string name = swept_name(moved.figure);
    print(fmt::format(" {:>9} {:>9}  {} {:g}\n", percent_text(moved.more_percent), percent_text(moved.less_percent),
                      name, moved.figure.value));
    core::StudyRecord point = study.point(setting, name);
    point.layout = text_of(layout);
    point.at = {{"value", moved.figure.value}, {"percent", flags.percent}};
    if (moved.more_percent) point.values.emplace_back("more_percent", *moved.more_percent);
    if (moved.less_percent) point.values.emplace_back("less_percent", *moved.less_percent);
    point.values.emplace_back("step_ms", step_s * 1e3);
    point.best = &moved == all.data();
    study.write(point);
  }
  if (!all.empty()) {
    print(fmt::format("# {} changes the step time most, by {:.1f} %\n", swept_name(all.front().figure),
                      all.front().largest()));
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
