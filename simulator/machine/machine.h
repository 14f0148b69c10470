// The simulator's description of a machine: one device, and the levels of the network between devices. Descriptions are
// JSON files (simulator/machine/machines/); docs/machine_format.md has the fields. Each description names the sources
// of its figures. A description of this machine is made from records of its benchmarks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::simulator {

// A share of a peak as a function of a kernel's work: linear in log(work) between points, constant outside.
struct EfficiencyPoint {
  double work = 0;  // FLOPs of a matrix product, or bytes of a pass over memory
  double share = 1;
};
using EfficiencyCurve = std::vector<EfficiencyPoint>;
double share_at(const EfficiencyCurve& curve, double work);

struct DeviceSpec {
  std::string name;               // "A100-SXM4-80GB"
  double matrix_tflops = 0;       // dense peak for the 16-bit type used in training; 1e12 FLOP/s
  double fp8_tflops = 0;          // dense peak for 8-bit floats; 0: not supported
  double vector_tflops = 0;       // f32 peak without matrix units, also for f32 products (never TF32)
  double memory_gbps = 0;         // 1e9 bytes/s
  std::int64_t memory_bytes = 0;  // capacity
  double launch_us = 0;           // fixed cost of each kernel
  // 0: unknown or not a GPU; the time of products then depends on their FLOPs alone.
  std::int32_t multiprocessors = 0;
  // Share of matrix_tflops that a product reaches, by its FLOPs; with known multiprocessors, the share that full waves
  // of the largest tiles reach.
  EfficiencyCurve product;
  EfficiencyCurve attention;  // share of matrix_tflops, by FLOPs of attention's two products
  EfficiencyCurve memory;     // share of memory_gbps, by bytes
};

// How messages share a link.
enum class Sharing : std::uint8_t {
  one_at_a_time,  // in order of arrival
  fair,           // all at once, with equal shares
};

// A torus: devices have links to their four neighbours in place of a switch. Device n is in column n % columns of row n
// / columns. Messages go along the row first, then along the column, each the shorter way around (the ascending one of
// two equal ways): dimension-ordered routing (Dally, Seitz 1987).
struct Torus {
  std::int32_t columns = 1;
  std::int32_t rows = 1;
  double hop_us = 0;  // added latency per link after the first
};

// A level of the network joins `ranks` devices, more than the level below it: an NVLink domain of 8, a rail group, a
// spine.
struct NetworkLevel {
  std::string name;
  std::int32_t ranks = 0;            // devices that one switch of this level joins; unlimited on the last level
  double gbps = 0;                   // per device and direction; 1e9 bytes/s
  double latency_us = 0;             // message latency between devices whose lowest common level is this one
  double efficiency = 1;             // share of gbps that large messages reach
  double collective_efficiency = 1;  // share of gbps that a ring's steps reach
  double oversubscription = 1;       // uplinks to this level have 1 / oversubscription of their devices' bandwidth
  Sharing sharing = Sharing::one_at_a_time;
  std::optional<Torus> torus = {};  // innermost level only; gbps is then per link and direction
};

// The interconnect inside a node, as NCCL distinguishes it.
enum class NodeLink : std::uint8_t { nvlink, pcie };
enum class GpuGeneration : std::uint8_t { volta, ampere, hopper, blackwell };

// How NCCL runs collectives on a machine whose innermost level is a node (simulator/network/nccl.h).
struct Nccl {
  GpuGeneration generation = GpuGeneration::ampere;
  NodeLink inside = NodeLink::nvlink;
  // The tuner's inputs: the rings that NCCL's search finds in a node, and the bandwidth that it assumes for each.
  double channels = 1;
  double channel_gbps = 0;
  double nvls_search_gbps = 0;  // all channels of NVLS together
  // The real times of collectives.
  double start_us = 0;          // added to NCCL's own latencies: host launch, and ranks that wait for each other
  double simple_step_us = 3.4;  // step inside the node with Simple, in place of NCCL's figure
  double ll = 0.5;              // share of collective_efficiency that rings with LL reach
  double ll128 = 0.92;          // same with LL128
  double last_copy = 0;         // time of a rank's last copy out of the buffer / time of these bytes on the wire
  double nvls = 0;              // share of gbps that NVLS reaches; 0: no NVLS
  std::int32_t blocks = 0;      // thread blocks of a collective; each takes a multiprocessor from concurrent kernels
  // For devices with direct links and no switch: (members, share) pairs, ascending. A group of at least that many
  // members has this share of its links among its members; empty: all links.
  std::vector<std::pair<double, double>> of_members;

  double share_of_links(std::int64_t members) const;
};

// The host that launches the device's kernels.
struct Host {
  double operator_us = 0;  // per operator of an eager framework: Python, dispatch, autograd, launch; 0: no limit
  double graph_us = 0;     // per kernel of a CUDA graph
};

// Measured times from our benchmarks on one host whose cores the ranks share. For kernels and collectives that were not
// measured, the formulas of the device and the levels are the fallback.
struct Measured {
  using Curve = std::vector<std::pair<double, double>>;  // (x, microseconds), ascending x
  struct Collective {
    std::string name;  // as a record has it: "all_reduce", "send_recv"
    std::int32_t ranks = 0;
    Curve us_of_bytes;
  };
  std::int32_t cores = 0;    // 0: no measurements
  std::int32_t threads = 1;  // threads per rank for kernels
  // By workload::signature_of(): the time over the number of copies that run at once, from 1.
  std::map<std::string, Curve> kernels;
  std::vector<Collective> collectives;

  const Collective* find(std::string_view name, std::int64_t ranks) const;  // null if not measured
};
// Linear interpolation between points, constant outside.
double value_at(const Measured::Curve& curve, double at);

struct Machine {
  std::string name;
  std::vector<std::string> sources;
  DeviceSpec device;
  std::vector<NetworkLevel> levels;  // from the innermost
  double host_gbps = 0;              // device to host memory, per direction
  double nvme_gbps = 0;              // device to files, both directions together; 0: unknown
  double host_memory_gbps = 0;       // host memory bandwidth per device, for updates on the host; 0: host_gbps
  double host_memory_bytes = 0;      // host memory per device; 0: unknown
  double nvme_bytes = 0;             // file storage per device; 0: unknown
  Host host;                         // default: the host is no limit
  std::optional<Nccl> nccl;          // without it, collectives run as this library's plans
  Measured measured;

  // Share of the device's multiprocessors that a collective takes from concurrent kernels; 0 if either number is
  // unknown.
  double taken_by_collectives() const;
};

// `name`: a built-in description, or the path of a JSON file (contains '/' or ends in .json). Throws a usage Error with
// the file, the field and what is allowed.
Machine load_machine(std::string_view name);
std::vector<std::string> machine_names();

// The JSON text of a description, which parse_machine() reads; `where` names the text in errors.
std::string to_json(const Machine& machine);
Machine parse_machine(std::string_view json, const std::string& where);

// The machine descriptions of machines/, embedded at build time.

struct EmbeddedMachine {
  std::string_view name;
  std::string_view json;
};
std::vector<EmbeddedMachine> embedded_machines();  // ordered by name

// Changes one number of a machine's description, named by its path in the JSON: "device.memory_gbps", "levels.0.gbps".
// A curve ("device.product") counts as one number, its largest share; its other shares keep their ratio to it.

struct MachineNumber {
  std::string path;
  double value = 0;
  bool whole = false;  // an integer: sizes, ranks
};
// All numbers in the order of the description, except measurements (Machine::measured).
std::vector<MachineNumber> numbers_of(const Machine& machine);

// The new machine's name includes the change. Throws a usage Error with the path and what is allowed.
Machine with_number(const Machine& machine, std::string_view path, double value);

// Reads the records (docs/record_format.md) from which a machine is calibrated: kernels, ceilings, and rows of
// collectives with the counts of their plans.

struct KernelLine {
  std::string kernel;
  std::string dtype;
  std::string device;     // "cpu", "cuda"
  std::string cache;      // "warm", "cold"
  std::string bound;      // "memory", "compute", "launch" or empty
  std::string signature;  // workload::signature_of()
  int threads = 1;
  int copies = 1;
  double flops = 0;
  double bytes = 0;
  double median_us = 0;
};

struct CeilingLine {
  std::string name;
  std::string level;
  std::string dtype;
  std::string device;
  int threads = 1;
  double value = 0;
};

struct RowLine {
  std::string collective;
  std::string algorithm;
  int ranks = 1;
  double time_us = 0;
  double steps = 0;       // steps on the plan's longest path
  double wire_bytes = 0;  // bytes that the busiest rank sends
  double bytes = 0;       // payload
  std::string transport = {};
};

struct RecordLines {
  std::string machine;  // CPU and GPUs as named by the first run
  std::int64_t memory_bytes = 0;
  int cores = 0;                    // cores that a program may use
  std::vector<KernelLine> kernels;  // kernels that ran with correct results
  std::vector<CeilingLine> ceilings;
  std::vector<RowLine> rows;       // measured rows with correct results and counts
  std::vector<RowLine> nccl_rows;  // measured, correct rows of NCCL's own collectives, which have no counts
};

// Throws a usage Error with `where` and the number of a line that is not a record.
RecordLines read_record_lines(std::string_view text, const std::string& where);

// Describes the machine on which the benchmarks ran, from their records: ceilings become peaks, kernels become shares
// of the peaks, rows of collectives become latency and bandwidth.

// Describes the GPU if there are records of device "cuda", else the CPU as the device of one rank: with the smallest
// number of threads for which kernels were timed from cold caches or, without such records, the largest number of
// threads of the ceilings. Needs the ceilings "gemm", "fma", "launch" and the memory ceilings (kernels_bench --json),
// and rows of ring or sendrecv at several sizes (all_reduce_perf --algo ring --json). Throws a usage Error that names
// missing ones. `where` names the records in errors.
Machine calibrate(const RecordLines& records, const std::string& where);

// The records of several files together; `where` names the files.
struct RecordFiles {
  RecordLines records;
  std::string where;
};
RecordFiles read_record_files(std::span<const std::string> paths);

// time_us = steps x latency_us + wire bytes / (1000 gbps), fitted by least squares of relative errors.
struct LinkFit {
  double latency_us = 0;
  double gbps = 0;
  double worst_error = 0;  // largest relative error of a row
};
LinkFit fit_link(std::span<const RowLine> rows);

}  // namespace lockstep::simulator
