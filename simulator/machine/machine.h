// A machine as the simulator sees it: one device, and the levels of the network that joins many of them. Descriptions
// are JSON files (simulator/machine/machines/); docs/machine_format.md has the fields. Every figure in one names its
// source.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::simulator {

// A share of a peak that depends on how much work a kernel has: straight between points in log(work), constant outside.
struct EfficiencyPoint {
  double work = 0;  // FLOPs of a product, or bytes of a pass over memory
  double share = 1;
};
using EfficiencyCurve = std::vector<EfficiencyPoint>;
double share_at(const EfficiencyCurve& curve, double work);

struct DeviceSpec {
  std::string name;               // "A100-SXM4-80GB"
  double matrix_tflops = 0;       // dense, of the 16-bit type that training uses; 1e12 FLOP/s
  double fp8_tflops = 0;          // likewise, of 8-bit floats; 0: it has none
  double vector_tflops = 0;       // f32, outside of matrix units: products in f32, too (never TF32)
  double memory_gbps = 0;         // 1e9 bytes/s
  std::int64_t memory_bytes = 0;  // capacity
  double launch_us = 0;           // what each kernel costs whatever it does
  // 0: not known, or no GPU; products depend on their FLOPs alone.
  std::int32_t multiprocessors = 0;
  // By FLOPs of a product, the share of matrix_tflops that it reaches; where multiprocessors are known, that full waves
  // of the largest tiles reach.
  EfficiencyCurve product;
  EfficiencyCurve attention;  // of matrix_tflops, by FLOPs of the two products of attention
  EfficiencyCurve memory;     // of memory_gbps, by bytes
};

// How messages share a link.
enum class Sharing : std::uint8_t {
  one_at_a_time,  // in the order in which they come
  fair,           // all at once, each with an equal part
};

// Devices that have links to their four neighbours in place of a switch. Device number n of a torus is in column
// n % columns of row n / columns. A message goes along its row first, then along the column, each the shorter way
// around (the ascending one of two that are as long): dimension-ordered routing (Dally, Seitz 1987).
struct Torus {
  std::int32_t columns = 1;
  std::int32_t rows = 1;
  double hop_us = 0;  // of latency for each link after the first
};

// A level joins `ranks` devices (of which each level below joins fewer): an NVLink domain of 8, a rail group, a spine.
struct NetworkLevel {
  std::string name;
  std::int32_t ranks = 0;            // joined by one switch of this level; the last level: any number
  double gbps = 0;                   // of a device, each way; 1e9 bytes/s
  double latency_us = 0;             // of a message between two devices whose lowest common level is this one
  double efficiency = 1;             // of gbps, that large messages reach
  double collective_efficiency = 1;  // of gbps, that a ring's steps reach
  double oversubscription = 1;  // uplinks to this level carry 1 / oversubscription of what their devices could send
  Sharing sharing = Sharing::one_at_a_time;
  std::optional<Torus> torus = {};  // of the innermost level: gbps is each of the four links', each way
};

// What joins the devices of a node, as NCCL tells them apart.
enum class NodeLink : std::uint8_t { nvlink, pcie };
enum class GpuGeneration : std::uint8_t { volta, ampere, hopper, blackwell };

// How NCCL runs collectives on a machine whose innermost level is a node (simulator/network/nccl_time.h).
struct Nccl {
  GpuGeneration generation = GpuGeneration::ampere;
  NodeLink inside = NodeLink::nvlink;
  // What its tuner goes by: the rings that its search finds in a node, and what it credits each with.
  double channels = 1;
  double channel_gbps = 0;
  double nvls_search_gbps = 0;  // of all channels of NVLS
  // What a collective takes in truth.
  double start_us = 0;          // on top of NCCL's own latencies: the host's launch, and ranks that wait for each other
  double simple_step_us = 3.4;  // a step inside the node with Simple, in place of NCCL's own figure
  double ll = 0.5;              // of collective_efficiency, that rings with LL reach
  double ll128 = 0.92;          // likewise
  double last_copy = 0;         // time of a rank's last copy out of the buffer, over that of the same bytes on the wire
  double nvls = 0;              // of gbps, that NVLS reaches; 0: there is none
  std::int32_t blocks = 0;      // thread blocks of a collective: each takes a multiprocessor from kernels beside it
  // Where devices have links to each other and no switch: so many of them, and those that are more, have this share of
  // their links among them. Ascending; all of them where nothing is said.
  std::vector<std::pair<double, double>> of_members;

  double share_of_links(std::int64_t members) const;
};

// The host that launches a device's kernels.
struct Host {
  double operator_us = 0;  // an operator of an eager framework: Python, dispatch, autograd, launch; 0: no limit
  double graph_us = 0;     // a kernel of a CUDA graph
};

// Times of our own benchmarks on one host whose cores the ranks share. The formulas of the device and the levels are
// the fallback for kernels and collectives that were not measured.
struct Measured {
  using Curve = std::vector<std::pair<double, double>>;  // microseconds by something that ascends
  struct Collective {
    std::string name;  // as a record has it: "all_reduce", "send_recv"
    std::int32_t ranks = 0;
    Curve us_of_bytes;
  };
  std::int32_t cores = 0;    // 0: nothing was measured
  std::int32_t threads = 1;  // of a rank's kernels
  // By workload::signature_of(): the time while so many copies of it run at once, from 1.
  std::map<std::string, Curve> kernels;
  std::vector<Collective> collectives;

  const Collective* find(std::string_view name, std::int64_t ranks) const;  // or null
};
// On straight lines between points, and constant outside of them.
double value_at(const Measured::Curve& curve, double at);

struct Machine {
  std::string name;
  std::vector<std::string> sources;
  DeviceSpec device;
  std::vector<NetworkLevel> levels;  // from the innermost
  double host_gbps = 0;              // device to host memory, each way
  double nvme_gbps = 0;              // device to files, both ways together; 0: not known
  double host_memory_gbps = 0;       // that the host's update of one device's share has; 0: as host_gbps
  double host_memory_bytes = 0;      // of the host, for each device; 0: not known
  double nvme_bytes = 0;             // of files, for each device; 0: not known
  Host host;                         // that launches kernels; without: it is no limit
  std::optional<Nccl> nccl;          // none: collectives are run by this library's plans
  Measured measured;

  // The share of the device's multiprocessors that a collective takes from kernels beside it; 0 where either is not
  // known.
  double taken_by_collectives() const;
};

// `name`: of a description that is built in, or a path of a JSON file (has a '/' or ends in .json). Throws a usage
// Error that says what is wrong, where, and what is allowed.
Machine load_machine(std::string_view name);
std::vector<std::string> machine_names();

// A description's text, which parse_machine() takes back; `where` names it in what is thrown.
std::string to_json(const Machine& machine);
Machine parse_machine(std::string_view json, const std::string& where);

}  // namespace lockstep::simulator
