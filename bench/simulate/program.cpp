#include "bench/simulate/simulate.h"

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "bench/serve/orders.h"
#include "core/error.h"
#include "core/options.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/traces.h"
#include "simulator/machine/machine.h"
#include "simulator/network/nccl.h"
#include "workload/layout.h"

namespace lockstep::simulate {
namespace {

using program::FlagValue;
using program::write_file;

using Flag = program::FlagOf<SimulateFlags>;

std::string text_of(const FlagValue& value) {
  if (value.text.empty()) throw value.refused("empty", "a name or a file");
  return value.text;
}

constexpr const char* kWhat = "Prediction";
constexpr const char* kPlan = "simulate plan: the best layouts of a number of devices";
constexpr const char* kCalibrate = "A description of this machine";
constexpr const char* kOutput = "Output";

const std::array kFlags{
    Flag{"--model", "gpt3-175b", "a name, or fields such as hidden=4096,layers=32,heads=32; --list shows both",
         [](SimulateFlags& f, const FlagValue& v) { f.model = model_text(v); }},
    Flag{"--layout", "tp=8,pp=8,dp=1,batch=64", "sizes of each kind of parallelism, and more; --list shows the fields",
         [](SimulateFlags& f, const FlagValue& v) { f.layout = layout_text(v); }},
    Flag{"--machine", "dgx-a100", "a name, or a file (docs/machine_format.md)",
         [](SimulateFlags& f, const FlagValue& v) {
           f.machine = machine_text(v);
           f.has_machine = true;
         }},
    Flag{"--sweep", "",
         "fields of the layout, model or machine and values to try, such as "
         "tp=2:4:8,model.sequence=2048:4096,machine.levels.1.gbps=25:50; a row for each combination",
         [](SimulateFlags& f, const FlagValue& v) { f.sweep = program::text_list(v); }},
};

const std::array kPlanFlags{
    Flag{"--gpus", "64", "devices", [](SimulateFlags& f, const FlagValue& v) { f.gpus = v.integer(1, 1'000'000); }},
    Flag{"--batch", "256", "sequences per step",
         [](SimulateFlags& f, const FlagValue& v) { f.batch = v.integer(1, 10'000'000); }},
    Flag{"--schedules", "1f1b,interleaved,zb_h1,zb_h2", "pipeline schedules to try",
         [](SimulateFlags& f, const FlagValue& v) {
           for (const FlagValue& name : v.list()) schedules::entry_named(name.text);
           f.schedules = v.text;
         }},
    Flag{"--top", "10", "number of layouts to show",
         [](SimulateFlags& f, const FlagValue& v) { f.top = static_cast<int>(v.integer(1, 1000)); }},
};

const std::array kCalibrateFlags{
    Flag{
        "--calibrate", "",
        "record files of kernels_bench and all_reduce_perf; write a description of this machine from these files. With "
        "--machine: write that description, with collectives fitted to rows of NCCL's own collectives",
        [](SimulateFlags& f, const FlagValue& v) {
          f.records = text_of(v);
          f.task = Task::calibrate;
        }},
    Flag{"--output", "", "file for the description [stdout]",
         [](SimulateFlags& f, const FlagValue& v) { f.output = text_of(v); }},
};

const std::array kOutputFlags{
    program::json_flag<SimulateFlags>(),
    Flag{"--trace", "", "file for a trace that ui.perfetto.dev opens; for a single row",
         [](SimulateFlags& f, const FlagValue& v) { f.trace_file = text_of(v); }},
    Flag{"--chakra", "",
         "prefix of files for a Chakra execution trace, which ASTRA-sim runs (docs/traces.md): PREFIX.0.et, ...; "
         "simulates every rank; for a single row",
         [](SimulateFlags& f, const FlagValue& v) {
           f.chakra = text_of(v);
           f.all_ranks = true;
         }},
};

void check_together(const program::CommandLine& line, const SimulateFlags& flags) {
  for (const Flag& flag : kPlanFlags) {
    if (flags.task == Task::plan || !line.value(flag.names)) continue;
    throw core::usage_error(std::string(flag.names) + " without plan; allowed: simulate plan " + flag.names + " ...");
  }
  if (flags.task == Task::plan && (!flags.sweep.empty() || !flags.trace_file.empty() || !flags.chakra.empty())) {
    throw core::usage_error("--sweep, --trace or --chakra with plan; allowed: without it");
  }
  if (flags.plans && !flags.all_ranks) {
    throw core::usage_error("--collective-plans requires --all-ranks");
  }
  if (flags.task != Task::calibrate && !flags.output.empty()) {
    throw core::usage_error("--output requires --calibrate");
  }
}

}  // namespace

SimulateFlags parse_simulate_flags(int argc, const char* const* argv, Task task) {
  SimulateFlags flags;
  flags.task = task;
  flags.set_command(argc, argv);
  std::vector<const char*> words(argv, argv + argc);
  if (task == Task::plan) {
    flags.layout = "";
    words.erase(words.begin() + 1);
  }
  bool list = false;
  bool serve = false;
  program::CommandLine line(flags.program + ": predicts time and memory of a training step on a machine.");
  for (const Command& command : commands()) line.add_command(command.name, command.question);
  program::declare_all(line, kFlags, kWhat);
  line.add_switch("--folded", flags.folded, "treat each layer as one kernel: faster, slightly less accurate", kWhat);
  line.add_switch("--all-ranks", flags.all_ranks, "simulate every rank instead of one representative pipeline", kWhat);
  line.add_switch("--collective-plans", flags.plans,
                  "with --all-ranks: simulate collectives message by message on the links, instead of by formula",
                  kWhat);
  program::declare_all(line, kPlanFlags, kPlan);
  program::declare_all(line, kCalibrateFlags, kCalibrate);
  program::declare_all(line, kOutputFlags, kOutput);
  line.add_switch("--serve", serve,
                  "worker mode for ci/gate.py: run the predictions requested on standard input (bench/serve/orders.h)",
                  kOutput);
  line.add_switch("--list", list, "show models, machines and the fields of models and layouts", kOutput);
  line.parse(static_cast<int>(words.size()), words.data());
  program::read_all(line, kFlags, flags);
  program::read_all(line, kPlanFlags, flags);
  program::read_all(line, kCalibrateFlags, flags);
  program::read_all(line, kOutputFlags, flags);
  if (serve) flags.task = Task::serve;
  if (list) flags.task = Task::list;
  check_together(line, flags);
  return flags;
}

namespace {

int run_plan_command(int argc, const char* const* argv, const program::Print& print) {
  return run_simulate(parse_simulate_flags(argc, argv, Task::plan), print);
}

constexpr std::array kCommands{
    Command{"plan", "Which layout of N devices is fastest?", run_plan_command},
    Command{"scaling", "How far does a layout scale, weak and strong, and what limits it?", run_scaling},
    Command{"map", "Which kind of parallelism wins, by model size and network bandwidth?", run_map},
    Command{"memory", "How much memory per rank does each ZeRO stage need on N ranks?", run_memory},
    Command{"recompute", "How much memory does recomputation save, and at what cost in time?", run_recompute},
    Command{"tp-boundary", "What does tensor parallelism cost beyond a node?", run_tp_boundary},
    Command{"order", "Which kind of parallelism belongs inside a node, and how much slower are other orders?",
            run_order},
    Command{"sensitivity", "Which parameter of the machine affects the step time most?", run_sensitivity},
    Command{"bubbles", "How much of a pipeline's bubbles can a second-order optimizer fill?", run_bubbles},
    Command{"clocks", "How much energy do lower clocks save where a pipeline waits anyway, and at what cost in time?",
            run_clocks},
    Command{"replay", "How long does the step of a Chakra trace take on a machine?", run_replay},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

core::Error no_such_command(std::string_view word) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return core::unknown_name("'" + std::string(word) + "' is not a command", word, names, ", or flags alone");
}

namespace {

// ---- The steps of a command line.

// Texts with one more field, one for each of its values, which replace the field's value in the base.
std::string with_field(const std::string& text, const core::NameAndValue& field) {
  std::string kept;
  for (const std::string_view part : core::split(text, ',')) {
    if (!part.empty() && core::name_and_value(part).name != field.name) kept.append(part).append(",");
  }
  return kept.append(field.name).append("=").append(field.value);
}

struct Case {
  workload::Model model;
  simulator::Machine machine;
  workload::Layout layout;
};

// The same for the machine, of which one number changes at a time.
struct CaseText {
  std::string model;
  simulator::Machine machine;
  std::string layout;
};

CaseText with_swept(CaseText text, const std::string& part, std::string_view name, std::string_view value) {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) {
    text.model = with_field(text.model, {name.substr(kModel.size()), value});
  } else if (name.starts_with(kMachineField)) {
    const double number = FlagValue{"--sweep " + part, std::string(value)}.number_from(0, 1e18);
    text.machine = with_number(text.machine, name.substr(kMachineField.size()), number);
  } else {
    text.layout = with_field(text.layout, {name, value});
  }
  return text;
}

// The base with each combination of swept values: {"tp=2:4", "microbatch=1:2"} gives four, the last field varies
// fastest. A field is one of the layout, or "model.hidden", "machine.levels.1.gbps". If a field appears twice, the last
// value wins. Throws a usage Error with the part and what is allowed.
std::vector<Case> swept_cases(const SimulateFlags& flags) {
  std::vector<CaseText> texts{{flags.model, simulator::load_machine(flags.machine), flags.layout}};
  for (const std::string& part : flags.sweep) {
    const core::NameAndValue swept = core::name_and_value(part);
    if (swept.name.empty() || swept.value.empty()) {
      throw core::usage_error("--sweep " + part + ": not a field with values; allowed: such as tp=2:4:8, " +
                              "model.sequence=2048:4096 or machine.levels.1.gbps=25:50");
    }
    std::vector<CaseText> more;
    for (const CaseText& text : texts) {
      for (const std::string_view value : core::split(swept.value, ':')) {
        more.push_back(with_swept(text, part, swept.name, value));
      }
    }
    texts = std::move(more);
  }
  std::vector<Case> cases;
  for (const CaseText& text : texts) {
    Case bench_case{workload::parse_model(text.model), text.machine, workload::parse_layout(text.layout)};
    bench_case.layout = simulator::balanced_on(bench_case.machine, bench_case.model,
                                               bench_case.layout);  // shown with the chosen stages and slices
    cases.push_back(std::move(bench_case));
  }
  return cases;
}

// ---- Their predictions.

// A step with more tasks than this would make too large a record.
constexpr std::size_t kMostTasksKept = 20'000;

std::size_t tasks_of(const simulator::Prediction& prediction) {
  std::size_t tasks = 0;
  for (const auto& rank : prediction.timeline) tasks += rank.size();
  return tasks;
}

simulator::PredictOptions options_of(const SimulateFlags& flags) {
  simulator::PredictOptions options;
  if (flags.folded) options.detail = simulator::Detail::folded;
  if (flags.all_ranks) options.extent = simulator::Extent::all_ranks;
  if (flags.plans) options.collectives = simulator::Collectives::plans;
  return options;
}

int run_predictions(const SimulateFlags& flags, const program::Print& plain_print) {
  const std::vector<Case> cases = swept_cases(flags);
  program::Progress progress("layouts", cases.size());
  const program::Print print = progress.around(plain_print);
  const bool single = cases.size() == 1;
  program::check_single("--trace", flags.trace_file, cases.size(), "layouts");
  program::check_single("--chakra", flags.chakra, cases.size(), "layouts");
  program::check_writable({flags.trace_file, flags.chakra.empty() ? "" : schedules::chakra_file_name(flags.chakra, 0)});
  core::RecordWriter writer(flags.json_file);
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  simulator::PredictOptions options = options_of(flags);
  options.compare_zero_cta = true;
  options.keep_timeline = single && (writer.is_open() || !flags.trace_file.empty() || !flags.chakra.empty());

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
    simulator::Prediction prediction = predict(model, layout, machine, options);
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    print(row_text(layout, prediction));
    progress.one_done();
    if (single) print(details_text(layout, machine, prediction, wall_s));
    if (!flags.trace_file.empty()) {
      write_file(flags.trace_file, schedules::to_trace(prediction.step, prediction.timeline, "simulated"));
    }
    if (!flags.chakra.empty()) write_chakra(flags.chakra, prediction.step);
    if (!writer.is_open()) continue;
    if (tasks_of(prediction) > kMostTasksKept) prediction.timeline.clear();
    writer.write(simulation_record(run, model, layout, machine, prediction, wall_s));
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
  serve::serve("simulate", names, [&](std::size_t index, std::int64_t calls) {
    const Case& bench_case = cases[index];
    return serve::us_of_calls(calls,
                              [&] { predict(bench_case.model, bench_case.layout, bench_case.machine, options); });
  });
  return 0;
}

int run_calibration(const SimulateFlags& flags, const program::Print& print) {
  program::check_writable({flags.output});
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
