// Chakra traces: simulate --chakra writes a predicted step as one, simulate replay reads one, prices its collectives
// and runs it on a machine.
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "bench/program/run_records.h"
#include "bench/simulate/simulate.h"
#include "core/error.h"
#include "core/output_file.h"
#include "schedules/step/traces.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulate {
namespace {

using program::FlagValue;
using schedules::ChakraTrace;
using schedules::Comm;

struct ReplayFlags : program::Invocation {
  std::string prefix;
  std::string groups;  // file; empty: PREFIX.groups.json, if there is one
  std::string machine = "dgx-h100";
  std::string trace_file;
};

const std::array kFlags{
    program::FlagOf<ReplayFlags>{
        "--chakra", "", "prefix of a Chakra trace's files: step, for step.0.et, step.1.et, ... (docs/traces.md)",
        [](ReplayFlags& flags, const FlagValue& value) { flags.prefix = program::file_name(value); }},
    program::FlagOf<ReplayFlags>{
        "--groups", "", "file of the trace's communicator groups [PREFIX.groups.json, if there is one]",
        [](ReplayFlags& flags, const FlagValue& value) { flags.groups = program::file_name(value); }},
    program::FlagOf<ReplayFlags>{
        "--machine", "dgx-h100", "a name, or a file (docs/machine_format.md)",
        [](ReplayFlags& flags, const FlagValue& value) { flags.machine = program::file_name(value); }},
    program::FlagOf<ReplayFlags>{
        "--trace", "", "file for a trace that ui.perfetto.dev opens",
        [](ReplayFlags& flags, const FlagValue& value) { flags.trace_file = program::file_name(value); }},
};

std::string groups_file_name(const std::string& prefix) {
  return prefix + ".groups.json";
}

std::string content_of(const std::string& name, const char* allowed) {
  std::ifstream file(name, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file)
    throw core::usage_error(name + ": cannot be read: " + core::system_reason(errno) + "; allowed: " + allowed);
  return text.str();
}

ChakraTrace read_trace(const ReplayFlags& flags) {
  ChakraTrace trace;
  for (std::size_t rank = 0;; ++rank) {
    const std::string name = schedules::chakra_file_name(flags.prefix, rank);
    if (rank > 0 && !std::filesystem::exists(name)) break;
    trace.of_rank.push_back(
        schedules::parse_chakra_file(content_of(name, "PREFIX.0.et, PREFIX.1.et, ... of --chakra PREFIX"), name));
  }
  const bool is_given = !flags.groups.empty();
  const std::string groups = is_given ? flags.groups : groups_file_name(flags.prefix);
  if (is_given || std::filesystem::exists(groups)) {
    trace.groups = schedules::parse_chakra_groups(content_of(groups, "a file of communicator groups"), groups);
  }
  return trace;
}

std::string heading_of(const ReplayFlags& flags, const ChakraTrace& trace, const simulator::Machine& machine) {
  std::map<schedules::ChakraType, std::size_t> count;
  std::size_t all = 0;
  for (const auto& nodes : trace.of_rank) {
    for (const auto& node : nodes) ++count[node.type];
    all += nodes.size();
  }
  return fmt::format(
      "# simulated: Chakra trace {} of {} ranks on {}\n# {} nodes: {} compute, {} collectives, {} sends\n",
      flags.prefix, trace.of_rank.size(), machine.name, all, count[schedules::ChakraType::comp],
      count[schedules::ChakraType::comm_coll], count[schedules::ChakraType::comm_send]);
}

std::string parts_text(const simulator::Replay& made) {
  std::string text =
      fmt::format("# step: {:.3f} ms; time of rank {}, which computes longest\n", 1e3 * made.step_s, made.busiest);
  for (const auto& [name, ps] : program::named_parts(made.parts[made.busiest])) {
    const double ms = static_cast<double>(ps) / 1e9;
    const double percent = made.step_s > 0 ? ms / (10 * made.step_s) : 0;
    text += fmt::format("#   {:<17} {:>12.3f} ms  {:>5.1f} %\n", name, ms, percent);
  }
  return text;
}

std::string collectives_text(const simulator::Replay& made) {
  std::string text =
      fmt::format("# collectives of rank {}, priced alone\n{:<15} {:<10} {:>6} {:>13} {:>7} {:>11}  {:<16} {:>11}\n",
                  made.busiest, "#collective", "group", "ranks", "bytes", "count", "each (us)", "way", "all (ms)");
  for (const simulator::TakenCollectives& one : made.collectives) {
    text += fmt::format(" {:<14} {:<10} {:>6} {:>13} {:>7} {:>11.2f}  {:<16} {:>11.3f}\n", name_of(one.comm),
                        name_of(one.group), one.ranks, one.bytes, one.count, one.each.time_us(), way_of(one.each),
                        one.all_us() / 1e3);
  }
  return text;
}

// The programs that measure these collectives, one line for each size.
std::string commands_to_measure(const simulator::Replay& made) {
  const std::map<Comm, const char*> programs{{Comm::all_reduce, "all_reduce_perf"},
                                             {Comm::all_gather, "all_gather_perf"},
                                             {Comm::reduce_scatter, "reduce_scatter_perf"},
                                             {Comm::all_to_all, "alltoall_perf"},
                                             {Comm::shift, "sendrecv_perf"},
                                             {Comm::broadcast, "broadcast_perf"},
                                             {Comm::reduce, "reduce_perf"}};
  std::string text = made.collectives.empty() ? "" : "# to measure them:\n";
  for (const simulator::TakenCollectives& one : made.collectives) {
    const std::string line =
        fmt::format("#   {} --ranks {} -b {} -e {}\n", programs.at(one.comm), one.ranks, one.bytes, one.bytes);
    if (text.find(line) == std::string::npos) text += line;
  }
  return text;
}

}  // namespace

void write_chakra(const std::string& prefix, const schedules::Step& step) {
  const std::string beyond = schedules::chakra_file_name(prefix, step.of_rank.size());
  if (std::filesystem::exists(beyond)) {
    throw core::usage_error(
        fmt::format("--chakra {}: {} is there, of a step with more than these {} ranks, and would be "
                    "read as part of this trace; allowed: another prefix, or without that file",
                    prefix, beyond, step.of_rank.size()));
  }
  const ChakraTrace trace = schedules::to_chakra(step);
  program::write_file(groups_file_name(prefix), schedules::to_chakra_groups(trace.groups));
  for (std::size_t rank = 0; rank < trace.of_rank.size(); ++rank) {
    program::write_file(schedules::chakra_file_name(prefix, rank), schedules::to_chakra_file(trace.of_rank[rank]));
  }
}

int run_replay(int argc, const char* const* argv, const program::Print& print) {
  ReplayFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program + " replay: what a step that a Chakra trace describes takes on a machine.");
  program::declare_all(line, kFlags, "The trace");
  std::vector<const char*> words(argv, argv + argc);
  words.erase(words.begin() + 1);
  line.parse(static_cast<int>(words.size()), words.data());
  program::read_all(line, kFlags, flags);
  if (flags.prefix.empty()) throw core::usage_error("replay without --chakra; allowed: --chakra PREFIX");
  program::check_writable({flags.trace_file});
  const ChakraTrace trace = read_trace(flags);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const schedules::Step step = schedules::step_of(trace, flags.prefix);
  const simulator::Replay made = replay(step, machine);
  print(heading_of(flags, trace, machine) + parts_text(made) + collectives_text(made) + commands_to_measure(made));
  if (!flags.trace_file.empty()) {
    program::write_file(flags.trace_file, schedules::to_trace(step, made.timeline, "simulated"));
  }
  return 0;
}

}  // namespace lockstep::simulate
