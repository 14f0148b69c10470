// simulate: its command line, its commands, their tables and records, and studies that are compared with published
// measurements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/program/program.h"
#include "core/record.h"
#include "schedules/step/step.h"
#include "simulator/predict/predict.h"

namespace lockstep::simulate {

// The command line of simulate.

enum class Task : std::uint8_t { predict, plan, calibrate, list, serve };

// Prefix of a machine's number in --sweep: "machine.levels.1.gbps".
inline constexpr std::string_view kMachineField = "machine.";

struct SimulateFlags : program::Invocation {
  Task task = Task::predict;

  std::string model = "gpt3-175b";
  std::string machine = "dgx-a100";
  std::string layout = "tp=8,pp=8,dp=1,batch=64";  // the predicted layout; with plan: options that all layouts share
  std::vector<std::string> sweep;                  // "tp=2:4:8", each crossed with the others
  bool folded = false;                             // a layer is one kernel
  bool all_ranks = false;                          // simulate every rank
  bool plans = false;                              // collectives message by message

  std::int64_t gpus = 64;    // plan only
  std::int64_t batch = 256;  // plan only; sequences per step
  std::string schedules = "1f1b,interleaved,zb_h1,zb_h2";
  int top = 10;

  std::string records;       // calibrate only
  bool has_machine = false;  // --machine was given: calibrate fits NCCL's numbers in it
  std::string output;        // file for the description that calibrate writes; empty: stdout
  std::string trace_file;    // empty: none
  std::string chakra;        // prefix of a Chakra trace's files; empty: none
};

// The flags after the program's name or, with Task::plan, after that command's. Throws a usage Error: one line that
// names the flag, its value and what is allowed.
SimulateFlags parse_simulate_flags(int argc, const char* const* argv, Task task = Task::predict);

// The commands of simulate, selected by its first argument.

struct Command {
  const char* name;
  const char* question;  // that the command answers
  int (*run)(int argc, const char* const* argv, const program::Print& print);
};

std::span<const Command> commands();
// A usage Error that lists the commands.
core::Error no_such_command(std::string_view word);

// `argv`: simulate NAME --flag value .... Each returns the exit status and throws core::Error.
int run_scaling(int argc, const char* const* argv, const program::Print& print);
int run_map(int argc, const char* const* argv, const program::Print& print);
int run_memory(int argc, const char* const* argv, const program::Print& print);
int run_recompute(int argc, const char* const* argv, const program::Print& print);
int run_tp_boundary(int argc, const char* const* argv, const program::Print& print);
int run_order(int argc, const char* const* argv, const program::Print& print);
int run_bubbles(int argc, const char* const* argv, const program::Print& print);
int run_clocks(int argc, const char* const* argv, const program::Print& print);
int run_sensitivity(int argc, const char* const* argv, const program::Print& print);
int run_replay(int argc, const char* const* argv, const program::Print& print);

// Writes PREFIX.0.et, PREFIX.1.et, ... and PREFIX.groups.json (schedules/step/traces.h). `step`: all ranks.
void write_chakra(const std::string& prefix, const schedules::Step& step);

// simulate plan: the best layouts for a number of devices, and why the others are slower.

int run_plan(const SimulateFlags& flags, const program::Print& print);

// main() of simulate.

// Returns the exit status; throws core::Error.
int run_simulate(const SimulateFlags& flags, const program::Print& print);

// Predictions as records (docs/record_format.md).

core::RunRecord run_record(const program::Invocation& flags);
core::SimulationRecord simulation_record(const core::RunRecord& run, const workload::Model& model,
                                         const workload::Layout& layout, const simulator::Machine& machine,
                                         const simulator::Prediction& prediction, double wall_s);

// The text that simulate prints. Everything is simulated, as the heading states.

// Bytes that a rank sends per step: messages between stages, and collectives by group.
std::vector<std::pair<std::string, double>> named_bytes(const schedules::SentBytes& sent);
// Bytes that leave a switch, by the name of each level except the last.
std::vector<std::pair<std::string, double>> named_levels(const std::vector<double>& of_levels,
                                                         const simulator::Machine& machine);

std::string heading_text(const workload::Model& model, const simulator::Machine& machine);
std::string columns_text();
std::string row_text(const workload::Layout& layout, const simulator::Prediction& prediction);
// Breakdown of the time and the memory of one layout.
std::string details_text(const workload::Layout& layout, const simulator::Machine& machine,
                         const simulator::Prediction& prediction, double wall_s);
std::string list_text();

// Published measurements of others, shown next to simulated rows and never mixed.

struct PublishedRow {
  std::string series;
  std::string model;   // argument of parse_model()
  std::string layout;  // argument of parse_layout()
  double tflops_per_gpu = 0;
};

struct PublishedTable {
  std::string name;
  std::string machine;
  std::string source;
  std::vector<PublishedRow> rows;
};

// Throws a usage Error that lists the names if `name` is unknown.
PublishedTable published_table(std::string_view name);

// simulator/validation/cases.json and published.json, embedded at build time.

std::string_view validation_cases();
std::string_view published_runs();

// Shared by the study commands of simulate: flags, and records of the study's points.

inline constexpr double kPsPerMs = 1e9;  // picoseconds per millisecond

struct StudyFlags : program::Invocation {
  std::string model = "gpt3-13b";
  std::string machine = "dgx-a100";
  std::string layout;
};

// Texts of flags that are read again for each point; refused here if they are wrong.
std::string model_text(const program::FlagValue& value);
std::string layout_text(const program::FlagValue& value);
std::string machine_text(const program::FlagValue& value);

void declare_study(program::CommandLine& line, const StudyFlags& defaults);
void read_study(const program::CommandLine& line, StudyFlags& flags);

// `argv`: simulate COMMAND --flag value ...; `own`: the flags that only this command has.
template <class Flags, class Table>
Flags parse_study(int argc, const char* const* argv, const std::string& purpose, const Table& own) {
  Flags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program + " " + argv[1] + ": " + purpose);
  program::declare_all(line, own, "The study");
  declare_study(line, flags);
  if constexpr (requires { flags.declare(line); }) flags.declare(line);
  std::vector<const char*> words(argv, argv + argc);
  words.erase(words.begin() + 1);
  line.parse(static_cast<int>(words.size()), words.data());
  read_study(line, flags);
  program::read_all(line, own, flags);
  return flags;
}

// Writes the records of one study, its run first. Writes nothing without --json.
class Study {
 public:
  // `name`: one of the studies in record.schema.json.
  Study(const program::Invocation& flags, std::string name);

  // A simulated point, still without values.
  core::StudyRecord point(const std::string& setting, const std::string& series) const;
  core::StudyRecord point(const std::string& setting, const std::string& series, const workload::Layout& layout,
                          const simulator::Prediction& prediction) const;
  void write(const core::StudyRecord& point) { writer_.write(point); }
  // Writes the published value for a simulated point.
  void write_published(core::StudyRecord point, double tflops_per_gpu, const std::string& source);
  void commit() { writer_.commit(); }

 private:
  std::string name_;
  core::RecordWriter writer_;
  core::RunRecord run_;
};

std::string setting_of(const workload::Model& model, const simulator::Machine& machine);

// Share of the step that a part takes.
double percent_of_step(double part_ps, const simulator::Prediction& prediction);

// The parts of the busiest rank's step, in milliseconds; of two steps, by how much they are longer in the second.
core::NamedNumbers parts_ms(const simulator::Prediction& prediction);
core::NamedNumbers longer_by_ms(const simulator::Prediction& from, const simulator::Prediction& to);

// FLOPs including recomputation, in 1e12 per second and device.
double tflops_per_gpu(const workload::Layout& layout, const simulator::Prediction& prediction);

// The part whose time grows most in the second step: "exposed_reduce +12.3 ms".
std::string longer_part_text(const simulator::Prediction& from, const simulator::Prediction& to);

// The part whose share of the step grows most: "exposed_reduce, from 0.1 to 8.2 % of the step".
std::string grown_part_text(const simulator::Prediction& from, const simulator::Prediction& to);

// Shares of the step by part, as table columns, and their heading.
std::string parts_columns_text();
std::string parts_text(const simulator::Prediction& prediction);

}  // namespace lockstep::simulate
