#include "bench/simulate/flags.h"

#include <array>
#include <string_view>

#include "bench/simulate/commands.h"

namespace lockstep::simulate {
namespace {

using program::FlagValue;

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
    Flag{"--model", "gpt3-175b", "a name, or numbers such as hidden=4096,layers=32,heads=32; --list shows both",
         [](SimulateFlags& f, const FlagValue& v) { f.model = text_of(v); }},
    Flag{"--layout", "tp=8,pp=8,dp=1,batch=64", "sizes of each kind of parallelism, and more; --list shows the fields",
         [](SimulateFlags& f, const FlagValue& v) { f.layout = v.text; }},
    Flag{"--machine", "dgx-a100", "a name, or a file (docs/machine_format.md)",
         [](SimulateFlags& f, const FlagValue& v) {
           f.machine = text_of(v);
           f.has_machine = true;
         }},
    Flag{"--sweep", "",
         "fields of the layout, model or machine and values to try, such as "
         "tp=2:4:8,model.sequence=2048:4096,machine.levels.1.gbps=25:50; a row for each "
         "combination",
         [](SimulateFlags& f, const FlagValue& v) { f.sweep = program::text_list(v); }},
};

const std::array kPlanFlags{
    Flag{"--gpus", "64", "devices", [](SimulateFlags& f, const FlagValue& v) { f.gpus = v.integer(1, 1'000'000); }},
    Flag{"--batch", "256", "sequences per step",
         [](SimulateFlags& f, const FlagValue& v) { f.batch = v.integer(1, 10'000'000); }},
    Flag{"--schedules", "1f1b,interleaved,zb_h1,zb_h2", "pipeline schedules to try",
         [](SimulateFlags& f, const FlagValue& v) { f.schedules = text_of(v); }},
    Flag{"--top", "10", "number of layouts to show",
         [](SimulateFlags& f, const FlagValue& v) { f.top = static_cast<int>(v.integer(1, 1000)); }},
};

const std::array kCalibrateFlags{
    Flag{"--calibrate", "",
         "record files of kernels_bench and all_reduce_perf; write a description of this machine from them. With "
         "--machine: that description, with its collectives fitted to rows of NCCL's own collectives",
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
};

void check_together(const program::CommandLine& line, const SimulateFlags& flags) {
  for (const Flag& flag : kPlanFlags) {
    if (flags.task == Task::plan || !line.value(flag.names)) continue;
    throw core::usage_error(std::string(flag.names) + " without plan; allowed: simulate plan " + flag.names + " ...");
  }
  if (flags.task == Task::plan && (!flags.sweep.empty() || !flags.trace_file.empty())) {
    throw core::usage_error("--sweep or --trace with plan; allowed: without it");
  }
  if (flags.plans && !flags.all_ranks) {
    throw core::usage_error("--collective-plans without --all-ranks; allowed: with it");
  }
  if (flags.task != Task::calibrate && !flags.output.empty()) {
    throw core::usage_error("--output without --calibrate; allowed: with it");
  }
}

}  // namespace

SimulateFlags parse_simulate_flags(int argc, const char* const* argv) {
  SimulateFlags flags;
  flags.set_command(argc, argv);
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "plan") {
    flags.task = Task::plan;
    flags.layout = "";
    words.erase(words.begin() + 1);
  }
  bool list = false;
  bool serve = false;
  program::CommandLine line(flags.program + ": predicts time and memory of a training step on a machine.\n" +
                            commands_text());
  program::declare_all(line, kFlags, kWhat);
  line.add_switch("--folded", flags.folded, "treat each layer as one kernel: faster, slightly less exact", kWhat);
  line.add_switch("--all-ranks", flags.all_ranks, "simulate every rank, not one pipeline that represents all", kWhat);
  line.add_switch("--collective-plans", flags.plans,
                  "with --all-ranks: simulate collectives message by message on the links, not by formula", kWhat);
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

}  // namespace lockstep::simulate
