#include "simulator/prices/prices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::simulator {
namespace {

struct ProductTile {
  double m;
  double n;
  // Multiply-adds of a step along k, plus the cost of its loads.
  double work() const { return m * n + kLoad * (m + n); }

  static constexpr double kLoad = 19.2;
};

// Tile sizes of cuBLAS (the guide, section 2.3), the largest first.
constexpr std::array kTiles{ProductTile{256, 128}, ProductTile{128, 256}, ProductTile{128, 128}, ProductTile{256, 64},
                            ProductTile{64, 256},  ProductTile{128, 64},  ProductTile{64, 128},  ProductTile{64, 64}};
constexpr std::array kSplits{1.0, 2.0, 4.0, 8.0};
constexpr double kShortestSplit = 512;  // fewest steps along k per part

// Between the chosen numbers a fit to published products on H100 and one on A100 differ little (docs/validation.md).
constexpr double kTileUs = 1.0;   // loads before the first multiply-add, and the tile's store to memory
constexpr double kSplitUs = 1.5;  // summing the parts

}  // namespace

double product_us(const DeviceSpec& device, const workload::Product& product, double tflops) {
  const double multiprocessors = device.multiprocessors;
  const ProductTile& largest = kTiles.front();
  const double share_of_loads = largest.m * largest.n / largest.work();
  const double works_per_us = tflops * 1e6 / 2 / multiprocessors / share_of_loads;
  double fastest = std::numeric_limits<double>::infinity();
  for (const ProductTile& tile : kTiles) {
    const double tiles = std::ceil(product.m / tile.m) * std::ceil(product.n / tile.n);
    for (const double split : kSplits) {
      if (split > 1 && product.k / split < kShortestSplit) continue;
      const double waves = std::ceil(tiles * split / multiprocessors);
      const double tile_us = kTileUs + tile.work() * product.k / split / works_per_us;
      fastest = std::min(fastest, waves * tile_us + (split > 1 ? kSplitUs : 0));
    }
  }
  return fastest;
}

namespace {

using schedules::Comm;
using schedules::Lane;
using schedules::Op;
using schedules::Task;
using workload::KernelClass;

// 8-bit floats where a device has no units for them are decoded (kernels/fp8/gemm_fp8.h).
double peak_tflops(const DeviceSpec& device, core::DType dtype) {
  if (dtype == core::DType::f32) return device.vector_tflops;
  return kernels::kFp8.contains(dtype) && device.fp8_tflops > 0 ? device.fp8_tflops : device.matrix_tflops;
}

// 1e12 FLOP/s are one FLOP per picosecond.
double compute_ps(const DeviceSpec& device, const workload::KernelCall& call, double flops) {
  const KernelClass of = workload::class_of(call);
  if (of == KernelClass::pass) return flops / device.vector_tflops;
  const double matrix = workload::matrix_flops_of(call);
  const double tflops = peak_tflops(device, workload::dtype_of(call)) *
                        share_at(of == KernelClass::product ? device.product : device.attention, matrix);
  const std::optional<workload::Product> product = workload::product_of(call);
  if (!product || device.multiprocessors == 0) return matrix / tflops;
  return product_us(device, *product, tflops) * 1e6;
}

// Measured times by the number of copies; null if the kernel was not measured.
const Measured::Curve* measured_curve(const Machine& machine, const workload::KernelCall& call) {
  if (machine.measured.kernels.empty()) return nullptr;
  const auto found = machine.measured.kernels.find(workload::signature_of(call));
  return found == machine.measured.kernels.end() ? nullptr : &found->second;
}

}  // namespace

std::int64_t kernel_ps(const DeviceSpec& device, const workload::KernelCall& call) {
  const kernels::Cost cost = workload::cost_of(call);
  const double memory_ps = cost.bytes / (device.memory_gbps * share_at(device.memory, cost.bytes)) * 1e3;
  return std::llround(std::max(compute_ps(device, call, cost.flops), memory_ps) + device.launch_us * 1e6);
}

std::int64_t roofline_ps(const DeviceSpec& device, double flops, double bytes) {
  constexpr double kMost = 4e18;  // above all times that a caller takes
  return std::llround(std::min(kMost, std::max(flops / device.matrix_tflops, bytes / device.memory_gbps * 1e3)));
}

bool is_measured(const Machine& machine, const workload::KernelCall& call) {
  return measured_curve(machine, call) != nullptr;
}

std::int64_t kernel_ps(const Machine& machine, const workload::KernelCall& call, std::int32_t copies) {
  const Measured::Curve* const us = measured_curve(machine, call);
  return us == nullptr ? kernel_ps(machine.device, call) : std::llround(value_at(*us, copies) * 1e6);
}

std::int64_t least_kernel_ps(const Machine& machine, const workload::KernelCall& call) {
  const Measured::Curve* const us = measured_curve(machine, call);
  if (us == nullptr) return kernel_ps(machine.device, call);
  const auto least =
      std::min_element(us->begin(), us->end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::llround(least->second * 1e6);
}

namespace {

std::int64_t ps_of(double us) {
  return std::llround(us * 1e6);
}

// The parameters that an update applies to: a bucket's, a stage's, or all of the rank's.
std::size_t parameters_of(const Task& update, std::size_t rank, const schedules::Step& step,
                          const std::vector<workload::StagePlan>& plans) {
  if (update.stage >= 0) {
    const workload::StagePlan& plan = plans[static_cast<std::size_t>(update.stage)];
    return update.part < 0 ? plan.parameters.size() : plan.buckets[static_cast<std::size_t>(update.part)].size();
  }
  std::size_t parameters = 0;
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    if (step.rank_of_stage[stage] == static_cast<std::int32_t>(rank)) parameters += plans[stage].parameters.size();
  }
  return parameters;
}

}  // namespace

workload::IssueTimes issue_times_of(const Host& host, const workload::Layout& layout) {
  if (layout.graphs) return {ps_of(host.graph_us), ps_of(host.graph_us)};
  return {ps_of(kOperatorsOfKernel * host.operator_us), ps_of(kOperatorsOfExchange * host.operator_us)};
}

void add_host(schedules::Step& step, const workload::Layout& layout, const std::vector<workload::StagePlan>& plans,
              const Host& host) {
  if (host.operator_us == 0) return;
  const workload::IssueTimes issue = issue_times_of(host, layout);
  for (std::size_t rank = 0; rank < step.of_rank.size(); ++rank) {
    for (Task& task : step.of_rank[rank].tasks) {
      if (task.lane == Lane::copy) continue;  // issued by a separate thread
      const bool receives = schedules::is_recv(task.op);
      if (task.comm != Comm::none || receives || schedules::is_send(task.op)) task.issue_ps = issue.collective_ps;
      task.host_waits = receives && !layout.overlap_p2p;
      // The update begins when the host has seen the norm, and takes as long as the slower of host and device.
      if (task.op == Op::optimizer && task.lane == Lane::compute) {
        const auto operators = static_cast<std::int64_t>(parameters_of(task, rank, step, plans));
        task.amount = std::max(task.amount, issue.kernel_ps * operators);
      }
    }
  }
}

std::int64_t list_ps(const Host& host, const workload::Layout& layout, const schedules::Group& group) {
  if (!layout.gather_lists || group.kind != schedules::GroupKind::data) return 0;
  return ps_of(kOperatorsOfListed * host.operator_us * static_cast<double>(group.size()));
}

}  // namespace lockstep::simulator
