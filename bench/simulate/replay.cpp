// Chakra traces: simulate --chakra writes a predicted step as one, simulate replay reads one, prices its collectives
// and runs it on a machine.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/program/run_records.h"
#include "bench/simulate/simulate.h"
#include "core/error.h"
#include "core/options.h"
#include "core/output_file.h"
#include "schedules/step/traces.h"
#include "simulator/machine/machine.h"
#include "simulator/prices/prices.h"

namespace lockstep::simulate {
namespace {

using program::FlagValue;
using schedules::ChakraTrace;
using schedules::Comm;

struct ReplayFlags : program::Invocation {
  std::string prefix;
  std::string groups;  // file; empty: see groups_file_of()
  std::string machine = "dgx-h100";
  std::string trace_file;
};

const std::array kFlags{
    program::FlagOf<ReplayFlags>{
        "--chakra", "", "prefix of a Chakra trace's files: step, for step.0.et, step.1.et, ... (docs/traces.md)",
        [](ReplayFlags& flags, const FlagValue& value) { flags.prefix = program::file_name(value); }},
    program::FlagOf<ReplayFlags>{
        "--groups", "",
        "file of the trace's communicator groups [PREFIX.groups.json, PREFIX.json or comm_group.json in its folder]",
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

// A rank without a file is refused if a later rank has one, instead of dropping all later ranks.
void refuse_gap(const std::string& prefix, std::size_t ranks) {
  const std::string stem = std::filesystem::path(prefix).filename().string() + ".";
  std::error_code unreadable;  // reading the files reports why
  for (const auto& entry : std::filesystem::directory_iterator(core::folder_of(prefix), unreadable)) {
    const std::string name = entry.path().filename().string();
    std::size_t rank = 0;
    if (name.starts_with(stem)) std::from_chars(name.data() + stem.size(), name.data() + name.size(), rank);
    if (rank <= ranks || name != stem + std::to_string(rank) + ".et") continue;
    throw core::usage_error(fmt::format("--chakra {}: {} exists, and {} does not; allowed: a file for each rank from 0",
                                        prefix, name, schedules::chakra_file_name(prefix, ranks)));
  }
}

// The file of groups: as given, as named by simulate --chakra and generators of traces, or by ASTRA-sim's examples.
std::string groups_file_of(const ReplayFlags& flags) {
  if (!flags.groups.empty()) return flags.groups;
  for (const std::string& name :
       {groups_file_name(flags.prefix), flags.prefix + ".json", core::folder_of(flags.prefix) + "/comm_group.json"}) {
    if (std::filesystem::exists(name)) return name;
  }
  return "";
}

ChakraTrace read_trace(const ReplayFlags& flags) {
  ChakraTrace trace;
  for (std::size_t rank = 0;; ++rank) {
    const std::string name = schedules::chakra_file_name(flags.prefix, rank);
    if (rank > 0 && !std::filesystem::exists(name)) break;
    trace.of_rank.push_back(schedules::parse_chakra_file(
        core::bytes_of_file(name, "PREFIX.0.et, PREFIX.1.et, ... of --chakra PREFIX"), name));
  }
  refuse_gap(flags.prefix, trace.of_rank.size());
  const std::string groups = groups_file_of(flags);
  if (!groups.empty()) {
    trace.groups = schedules::parse_chakra_groups(core::text_of_file(groups, "a file of communicator groups"), groups);
  }
  return trace;
}

schedules::ChakraPrices prices_of(const simulator::Machine& machine) {
  return {[&](double flops, double bytes) { return simulator::roofline_ps(machine.device, flops, bytes); },
          [&](double bytes, bool is_local) {
            constexpr double kPsPerNs = 1e3;
            return std::llround(kPsPerNs * bytes / (is_local ? machine.device.memory_gbps : machine.host_gbps));
          }};
}

std::string heading_of(const ReplayFlags& flags, const ChakraTrace& trace, const simulator::Machine& machine,
                       const std::vector<std::string>& notes) {
  constexpr std::array kKinds{"invalid", "metadata", "memory loads", "memory stores",
                              "compute", "sends",    "receives",     "collectives"};  // by ChakraType
  std::array<std::size_t, kKinds.size()> count{};
  std::size_t all = 0;
  for (const auto& nodes : trace.of_rank) {
    for (const auto& node : nodes) ++count.at(static_cast<std::size_t>(node.type));
    all += nodes.size();
  }
  std::string text = fmt::format("# simulated: Chakra trace {} of {} ranks on {}\n# {} nodes", flags.prefix,
                                 trace.of_rank.size(), machine.name, all);
  for (std::size_t i = count.size(); i-- > 0;) {
    if (count.at(i) > 0) text += fmt::format(", {} {}", count.at(i), kKinds.at(i));
  }
  text +=
      trace.groups.empty() ? "\n" : fmt::format("\n# {} groups of {}\n", trace.groups.size(), groups_file_of(flags));
  for (const std::string& note : notes) text += "# note: " + note + "\n";
  return text;
}

// The parts of a step that is not ours: compute, and what it waits for, by kind. Their sum is the step.
std::vector<std::pair<std::string, std::int64_t>> foreign_parts(const schedules::Breakdown& parts) {
  const auto exposed = [&](schedules::Lane lane) { return parts.exposed_ps[static_cast<std::size_t>(lane)]; };
  using schedules::Lane;
  std::vector<std::pair<std::string, std::int64_t>> all{{"compute", parts.compute_ps()}};
  for (std::size_t comm = 1; comm < schedules::kNumComms; ++comm) {
    all.emplace_back("exposed_" + std::string(name_of(static_cast<Comm>(comm))), parts.exposed_of_ps[comm]);
  }
  all.emplace_back("exposed_messages", exposed(Lane::send) + exposed(Lane::receive));
  all.emplace_back("exposed_memory", exposed(Lane::copy));
  all.emplace_back("exposed_host", exposed(Lane::host));
  std::erase_if(all, [](const auto& part) { return part.second == 0 && part.first != "compute"; });
  all.emplace_back("idle", parts.bubble_ps);
  return all;
}

std::string parts_text(const simulator::Replay& replayed, bool is_ours) {
  std::string text = fmt::format("# step: {:.3f} ms; time of rank {}, which computes longest\n", 1e3 * replayed.step_s,
                                 replayed.busiest);
  const schedules::Breakdown& parts = replayed.parts[replayed.busiest];
  for (const auto& [name, ps] : is_ours ? program::named_parts(parts) : foreign_parts(parts)) {
    const double ms = static_cast<double>(ps) / 1e9;
    const double percent = replayed.step_s > 0 ? ms / (10 * replayed.step_s) : 0;
    text += fmt::format("#   {:<23} {:>12.3f} ms  {:>5.1f} %\n", name, ms, percent);
  }
  return text;
}

std::string collectives_text(const simulator::Replay& replayed, bool is_ours) {
  std::string text =
      fmt::format("# collectives of rank {}, priced alone\n{:<15} {:<10} {:>6} {:>13} {:>7} {:>11}  {:<16} {:>11}\n",
                  replayed.busiest, "#collective", "group", "ranks", "bytes", "count", "each (us)", "way", "all (ms)");
  for (const simulator::TakenCollectives& collective : replayed.collectives) {
    text += fmt::format(" {:<14} {:<10} {:>6} {:>13} {:>7} {:>11.2f}  {:<16} {:>11.3f}\n", name_of(collective.comm),
                        is_ours ? name_of(collective.group) : "-", collective.ranks, collective.bytes, collective.count,
                        collective.each.time_us(), way_of(collective.each), collective.all_us() / 1e3);
  }
  return text;
}

// The programs that measure these collectives, one line for each size.
std::string commands_to_measure(const simulator::Replay& replayed) {
  const std::map<Comm, const char*> programs{{Comm::all_reduce, "all_reduce_perf"},
                                             {Comm::all_gather, "all_gather_perf"},
                                             {Comm::reduce_scatter, "reduce_scatter_perf"},
                                             {Comm::all_to_all, "alltoall_perf"},
                                             {Comm::shift, "sendrecv_perf"},
                                             {Comm::broadcast, "broadcast_perf"},
                                             {Comm::reduce, "reduce_perf"}};
  std::string text = replayed.collectives.empty() ? "" : "# to measure them:\n";
  for (const simulator::TakenCollectives& collective : replayed.collectives) {
    const std::string line = fmt::format("#   {} --ranks {} -b {} -e {}\n", programs.at(collective.comm),
                                         collective.ranks, collective.bytes, collective.bytes);
    if (text.find(line) == std::string::npos) text += line;
  }
  return text;
}

}  // namespace

void write_chakra(const std::string& prefix, const schedules::Step& step) {
  const std::string beyond = schedules::chakra_file_name(prefix, step.of_rank.size());
  if (std::filesystem::exists(beyond)) {
    throw core::usage_error(
        fmt::format("--chakra {}: {} exists, from a step with more than these {} ranks, and would be read as part of "
                    "this trace; allowed: another prefix, or without that file",
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
  program::CommandLine line(flags.program + " replay: how long the step of a Chakra trace takes on a machine.");
  program::declare_all(line, kFlags, "The trace");
  std::vector<const char*> words(argv, argv + argc);
  words.erase(words.begin() + 1);
  line.parse(static_cast<int>(words.size()), words.data());
  program::read_all(line, kFlags, flags);
  if (flags.prefix.empty()) throw core::usage_error("replay without --chakra; allowed: --chakra PREFIX");
  program::check_writable({flags.trace_file});
  const ChakraTrace trace = read_trace(flags);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const schedules::ReadChakra read = schedules::read_chakra(trace, flags.prefix, prices_of(machine));
  schedules::BlockingLanes waited_for{};  // a kernel of another program waits for the host, and that for a collective
  if (!read.is_ours) waited_for.fill(true);
  const simulator::Replay replayed = replay(read.step, machine, waited_for);
  for (const std::string& note : read.notes) std::fprintf(stderr, "simulate: note: %s\n", note.c_str());
  print(heading_of(flags, trace, machine, read.notes) + parts_text(replayed, read.is_ours) +
        collectives_text(replayed, read.is_ours) + commands_to_measure(replayed));
  if (!flags.trace_file.empty()) {
    const schedules::TracePart part{"simulated", &read.step, &replayed.timeline, {}, read.names};
    program::write_file(flags.trace_file, schedules::to_trace(std::span(&part, 1)));
  }
  return 0;
}

}  // namespace lockstep::simulate
