// Studies of simulate, with published measurements beside them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "core/record.h"
#include "simulator/predict/predict.h"

namespace lockstep::simulate {

// Published measurements of others, shown beside simulated rows and never mixed with them.

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

std::vector<std::string> published_names();
// Throws a usage Error that lists the names if `name` is unknown.
PublishedTable published_table(std::string_view name);

// simulator/validation/cases.json, embedded at build time.

std::string_view validation_cases();

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
                          const simulator::Prediction& made) const;
  void write(const core::StudyRecord& point) { writer_.write(point); }
  void commit() { writer_.commit(); }

 private:
  std::string name_;
  core::RecordWriter writer_;
  core::RunRecord run_;
};

std::string setting_of(const workload::Model& model, const simulator::Machine& machine);

// FLOPs including recomputation, in 1e12 per second and device.
double tflops_per_gpu(const workload::Layout& layout, const simulator::Prediction& made);

// The part whose time grows most in the second step: "exposed_reduce +12.3 ms".
std::string longer_part_text(const simulator::Prediction& from, const simulator::Prediction& to);

// The part whose share of the step grows most: "exposed_reduce, from 0.1 to 8.2 % of the step".
std::string grown_part_text(const simulator::Prediction& from, const simulator::Prediction& to);

// Shares of the step by part, as table columns, and their heading.
std::string parts_columns_text();
std::string parts_text(const simulator::Prediction& made);

}  // namespace lockstep::simulate
