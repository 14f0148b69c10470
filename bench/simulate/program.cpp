#include "bench/simulate/program.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/program/program.h"
#include "bench/serve/calls.h"
#include "bench/serve/orders.h"
#include "bench/simulate/flags.h"
#include "bench/simulate/plan.h"
#include "bench/simulate/records.h"
#include "bench/simulate/table.h"
#include "core/error.h"
#include "schedules/step/trace.h"
#include "simulator/machine/calibrate.h"
#include "simulator/machine/vary.h"
#include "simulator/network/nccl_fit.h"
#include "workload/layout.h"

namespace lockstep::simulate {
namespace {

// ---- The steps of a command line.

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Texts with one more field, one for each of its values, which replace the field's value in the base.
std::string with_field(const std::string& text, const std::string& name, const std::string& value) {
  std::string kept;
  for (const std::string& part : split(text, ',')) {
    if (part.empty() || part.starts_with(name + "=")) continue;
    kept += part + ",";
  }
  return kept + name + "=" + value;
}

struct Case {
  workload::Model model;
  simulator::Machine machine;
  workload::Layout layout;
};

// The same for the machine, whose numbers are changed one by one.
struct CaseText {
  std::string model;
  simulator::Machine machine;
  std::string layout;
};

double number_of(const std::string& part, const std::string& value) {
  return program::FlagValue{"--sweep " + part, value}.number_from(0, 1e18);
}

CaseText with_swept(CaseText text, const std::string& part, const std::string& name, const std::string& value) {
  constexpr std::string_view kModel = "model.";
  constexpr std::string_view kMachine = "machine.";
  if (name.starts_with(kModel)) {
    text.model = with_field(text.model, name.substr(kModel.size()), value);
  } else if (name.starts_with(kMachine)) {
    text.machine = with_number(text.machine, name.substr(kMachine.size()), number_of(part, value));
  } else {
    text.layout = with_field(text.layout, name, value);
  }
  return text;
}

// The base with each combination of swept values: {"tp=2:4", "microbatch=1:2"} gives four, the last field varies
// fastest. A field is one of the layout, or "model.hidden", "machine.levels.1.gbps". If a field appears twice, the last
// value wins. Throws a usage Error with the part and what is allowed.
std::vector<Case> swept_cases(const SimulateFlags& flags) {
  std::vector<CaseText> texts{{flags.model, simulator::load_machine(flags.machine), flags.layout}};
  for (const std::string& part : flags.sweep) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) {
      throw core::usage_error("--sweep " + part + ": not a field with values; allowed: such as tp=2:4:8, " +
                              "model.sequence=2048:4096 or machine.levels.1.gbps=25:50");
    }
    std::vector<CaseText> more;
    for (const CaseText& text : texts) {
      for (const std::string& value : split(part.substr(equals + 1), ':')) {
        more.push_back(with_swept(text, part, part.substr(0, equals), value));
      }
    }
    texts = std::move(more);
  }
  std::vector<Case> cases;
  for (const CaseText& text : texts) {
    Case made{workload::parse_model(text.model), text.machine, workload::parse_layout(text.layout)};
    made.layout =
        simulator::balanced_on(made.machine, made.model, made.layout);  // shown with the chosen stages and slices
    cases.push_back(std::move(made));
  }
  return cases;
}

// ---- Their predictions.

using program::write_file;

// A step with more tasks than this would make too large a record.
constexpr std::size_t kMostTasksKept = 20'000;

std::size_t tasks_of(const simulator::Prediction& made) {
  std::size_t tasks = 0;
  for (const auto& rank : made.timeline) tasks += rank.size();
  return tasks;
}

simulator::PredictOptions options_of(const SimulateFlags& flags) {
  simulator::PredictOptions options;
  if (flags.folded) options.detail = simulator::Detail::folded;
  if (flags.all_ranks) options.extent = simulator::Extent::all_ranks;
  if (flags.plans) options.collectives = simulator::Collectives::plans;
  return options;
}

int run_predictions(const SimulateFlags& flags, const program::Print& print) {
  const std::vector<Case> cases = swept_cases(flags);
  const bool single = cases.size() == 1;
  program::check_single("--trace", flags.trace_file, cases.size(), "layouts");
  core::RecordWriter writer(flags.json_file);
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  simulator::PredictOptions options = options_of(flags);
  options.keep_timeline = single && (writer.is_open() || !flags.trace_file.empty());

  std::string heading;
  for (const auto& [model, machine, layout] : cases) {
    if (std::string now = heading_text(model, machine); now != heading) {
      heading = std::move(now);
      print(heading + columns_text());
    }
    const std::string reason = why_invalid(model, layout);
    if (!reason.empty() && !single) {
      print("# " + text_of(layout) + ": " + reason + "\n");
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    simulator::Prediction made = predict(model, layout, machine, options);
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    print(row_text(layout, made));
    if (single) print(details_text(layout, machine, made, wall_s));
    if (!flags.trace_file.empty()) {
      write_file(flags.trace_file, schedules::to_trace(made.step, made.timeline, "simulated"));
    }
    if (!writer.is_open()) continue;
    if (tasks_of(made) > kMostTasksKept) made.timeline.clear();
    writer.write(simulation_record(run, model, layout, machine, made, wall_s));
  }
  writer.commit();
  return 0;
}

// Layouts as cases of a worker (bench/serve/orders.h); each call predicts one.
int serve_predictions(const SimulateFlags& flags) {
  const std::vector<Case> cases = swept_cases(flags);
  const simulator::PredictOptions options = options_of(flags);
  std::vector<std::string> names;
  for (const auto& [model, machine, layout] : cases) {
    if (const std::string reason = why_invalid(model, layout); !reason.empty()) {
      throw core::usage_error("--serve: " + text_of(layout) + ": " + reason);
    }
    names.push_back("predict/" + flags.model + "/" + flags.machine + "/" + text_of(layout));
  }
  serve::Orders orders("simulate", names);
  serve::serve(orders, [&](std::size_t index, std::int64_t calls) {
    const Case& one = cases[index];
    return serve::us_of_calls(calls, [&] { predict(one.model, one.layout, one.machine, options); });
  });
  return 0;
}

int run_calibration(const SimulateFlags& flags, const program::Print& print) {
  const auto [records, where] = simulator::read_record_files(program::text_list({"--calibrate", flags.records}));
  const std::string text =
      to_json(flags.has_machine ? calibrate_nccl(simulator::load_machine(flags.machine), records.nccl_rows, where)
                                : calibrate(records, where));
  if (flags.output.empty()) {
    print(text);
  } else {
    write_file(flags.output, text);
  }
  return 0;
}

}  // namespace

int run_simulate(const SimulateFlags& flags, const program::Print& print) {
  switch (flags.task) {
    case Task::list:
      print(list_text());
      return 0;
    case Task::calibrate:
      return run_calibration(flags, print);
    case Task::plan:
      return run_plan(flags, print);
    case Task::serve:
      return serve_predictions(flags);
    case Task::predict:
      break;
  }
  return run_predictions(flags, print);
}

}  // namespace lockstep::simulate
