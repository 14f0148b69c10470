// Steps as traces of other tools: timelines in Chrome's format, and execution traces of MLCommons Chakra.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Writes timelines of steps as a trace in Chrome's format, for https://ui.perfetto.dev and chrome://tracing: a process
// per rank, a thread per lane, an arrow from each send to its receive. The format: "Trace Event Format", Google 2016.
// Times become microseconds, rounded to nanoseconds.

// A quantity over time on a rank, such as its memory of one kind. A value holds until the next point.
struct TraceCounter {
  struct Point {
    std::int64_t time_ps = 0;
    double value = 0;
  };
  std::int32_t rank = 0;
  std::string name;  // with its unit: "activations (bytes)"
  std::vector<Point> points;
};

// One timeline of a trace. Several are shown one above the other on a common time axis, in the given order.
struct TracePart {
  std::string title;  // first word of the process names: "simulated", "emulated", "measured"
  const Step* step = nullptr;
  const StepTimeline* timeline = nullptr;
  std::span<const TraceCounter> counters = {};
  // [rank][task]: names in place of our own words for tasks; empty: our own.
  std::vector<std::vector<std::string>> names = {};
};

// The whole trace file. Each timeline has a span for every task of its step.
std::string to_trace(std::span<const TracePart> parts);
std::string to_trace(const Step& step, const StepTimeline& timeline, const std::string& title,
                     std::span<const TraceCounter> counters = {});

// Execution traces of MLCommons Chakra: the format in which ASTRA-sim and others take a training step. A trace has a
// file per rank ("step.0.et", "step.1.et", ...) and one of communicator groups, JSON that ASTRA-sim takes
// (--comm-group-configuration). Sources: schema/protobuf/et_def.proto of github.com/mlcommons/chakra (version 0.0.4);
// astra-sim/workload/Workload.cc and astraccl's Ring.cc of github.com/astra-sim/astra-sim (what the attributes mean).
//
// A file is a sequence of protobuf messages, each preceded by its length as a varint: GlobalMetadata, then a Node for
// each operation. Sizes (comm_size) are bytes of one rank's input: for an all-gather, its part of the result.

// Values of Chakra's NodeType; later ones (storage, batch, checkpoint) are refused by name.
enum class ChakraType : std::uint8_t { invalid, metadata, mem_load, mem_store, comp, comm_send, comm_recv, comm_coll };

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraType type = ChakraType::comp;
  std::vector<std::uint64_t> dependencies;  // data and control; written as data dependencies
  std::int64_t duration_us = 0;
  std::string input_values;                     // metadata nodes only: PyTorch's process groups as JSON
  std::map<std::string, std::int64_t> numbers;  // attributes: comm_size, is_cpu_op, ...
  std::map<std::string, std::string> texts;     // attributes: pg_name, ...
  std::vector<bool> involved_dim = {};          // attribute: the dimensions of the network that a collective spans
  std::vector<std::string> unread = {};         // fields and attributes that this struct has no place for
};

// The bytes of one rank's file.
std::string to_chakra_file(const std::vector<ChakraNode>& nodes);
// `file` names the file in errors. Throws a usage Error with the file, and the node where there is one, if the bytes
// are no trace, or of a schema whose fields have other numbers.
std::vector<ChakraNode> parse_chakra_file(std::string_view bytes, const std::string& file);

// Chakra's CollectiveCommType, by number. Comm::none: a Step has no word for it.
struct ChakraCollective {
  std::string_view name;
  Comm comm;
};
inline constexpr std::array<ChakraCollective, 10> kChakraCollectives{{
    {"ALL_REDUCE", Comm::all_reduce},
    {"REDUCE", Comm::reduce},
    {"ALL_GATHER", Comm::all_gather},
    {"GATHER", Comm::none},
    {"SCATTER", Comm::none},
    {"BROADCAST", Comm::broadcast},
    {"ALL_TO_ALL", Comm::all_to_all},
    {"REDUCE_SCATTER", Comm::reduce_scatter},
    {"REDUCE_SCATTER_BLOCK", Comm::reduce_scatter},
    {"BARRIER", Comm::none},
}};

// Members of each communicator group by its name (attribute pg_name).
using ChakraGroups = std::map<std::string, std::vector<std::int32_t>>;

std::string to_chakra_groups(const ChakraGroups& groups);
ChakraGroups parse_chakra_groups(const std::string& text, const std::string& file);

struct ChakraTrace {
  std::vector<std::vector<ChakraNode>> of_rank;
  ChakraGroups groups;
};

// File of a rank: "step.3.et" for the prefix "step".
std::string chakra_file_name(const std::string& prefix, std::size_t rank);

// `step`: all ranks (each group has all of its members). A node for each task, with dependencies on the task before it
// in its lane and on the tasks of its edges; a shift is a send and a receive. Each lane of a group is a communicator of
// its own. Times are in whole microseconds, as Chakra has them; attributes that other readers ignore (duration_ps,
// issue_ps, host_waits, lane, op, stage, microbatch, part, group) keep what the step knows beyond that, so that
// step_of() gives the same step.
ChakraTrace to_chakra(const Step& step);

// Times in picoseconds of nodes that have sizes and no duration.
struct ChakraPrices {
  std::function<std::int64_t(double flops, double bytes)> compute;
  std::function<std::int64_t(double bytes, bool is_local)> memory;  // local: of the device itself
};

struct ReadChakra {
  Step step;
  bool is_ours = false;                         // to_chakra() made it
  std::vector<std::vector<std::string>> names;  // [rank][task]: the nodes' names; empty if is_ours
  std::vector<std::string> notes;               // ways to take nodes that the trace does not state, with counts
};

// The step that a trace describes. Nodes of one rank are issued in the order of their numbers as far as dependencies
// allow. Without an attribute `lane`, compute nodes go to lane compute (on the CPU: host), messages to send and
// receive, memory nodes to copy, and the collectives of a group to one of four lanes. Dependencies on nodes that the
// file does not have are left out, and counted in a note, as is whatever else is not read. Throws a usage Error that
// names file and node for a cycle, a send without its receive, collectives in which members differ, and what a Step has
// no word for (gather, scatter, barrier).
ReadChakra read_chakra(const ChakraTrace& trace, const std::string& prefix, const ChakraPrices& prices);

}  // namespace lockstep::schedules
