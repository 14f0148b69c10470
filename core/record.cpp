#include "core/record.h"

#include "core/record_json.h"

namespace lockstep::core {
namespace {

Json machine_json(const Machine& machine) {
  return {{"fingerprint", machine.fingerprint()},
          {"cpu", nullable(machine.cpu)},
          {"cores", machine.cores},
          {"memory_bytes", nullable(machine.memory_bytes)},
          {"kernel", nullable_text(machine.kernel)},
          {"caches",
           {{"l1d_bytes", nullable(machine.caches.l1d_bytes)},
            {"l2_bytes", nullable(machine.caches.l2_bytes)},
            {"l3_bytes", nullable(machine.caches.l3_bytes)}}},
          {"mhz", nullable(machine.mhz)},
          {"gpus", Json(machine.gpus)},
          {"hosts", machine.hosts}};
}

Json build_json(const Build& build) {
  return {{"compiler", nullable_text(build.compiler)},
          {"flags", nullable_text(build.flags)},
          {"type", nullable_text(build.type)},
          {"version", nullable_text(build.version)}};
}

Json link_json(const std::optional<LinkRecord>& link) {
  if (!link) return nullptr;
  return {{"latency_us", nullable(link->latency_us)}, {"gbps", nullable(link->gbps)}};
}

Json devices_json(const std::vector<GpuDeviceRecord>& devices) {
  Json list = Json::array();
  for (const GpuDeviceRecord& device : devices) {
    list.push_back({{"pci_id", device.pci_id},
                    {"power_limit_watts", nullable(device.power_limit_watts)},
                    {"mig", nullable(device.mig)},
                    {"mps", nullable(device.mps)}});
  }
  return list;
}

// Left out where nothing is known: only runs on GPUs have it.
Json with_gpu_states(Json line, const std::vector<GpuStateRecord>& states) {
  for (const GpuStateRecord& state : states) {
    line["gpu_states"].push_back({{"pci_id", state.pci_id},
                                  {"sm_mhz", nullable(state.sm_mhz)},
                                  {"memory_mhz", nullable(state.memory_mhz)},
                                  {"temperature_c", nullable(state.temperature_c)},
                                  {"power_watts", nullable(state.power_watts)},
                                  {"clock_limits", nullable(state.clock_limits)}});
  }
  return line;
}

Json gpu_json(const std::optional<GpuRecord>& gpu) {
  if (!gpu) return nullptr;
  return {{"gpus", gpu->gpus},
          {"ranks_per_gpu", gpu->ranks_per_gpu},
          {"label", gpu->label},
          {"clock_mhz", nullable(gpu->clock_mhz)},
          {"devices", devices_json(gpu->devices)}};
}

Json plan_json(const std::optional<PlanRecord>& plan) {
  if (!plan) return nullptr;
  return {{"steps", plan->steps},
          {"wire_bytes_max", plan->wire_bytes_max},
          {"wire_bytes_total", plan->wire_bytes_total},
          {"predicted_us", nullable(plan->predicted_us)}};
}

Json operands_json(const std::vector<OperandRecord>& operands) {
  Json all = Json::array();
  for (const OperandRecord& o : operands) {
    all.push_back({{"name", o.name}, {"access", o.access}, {"dtype", o.dtype}, {"bytes", o.bytes}});
  }
  return all;
}

}  // namespace

std::string to_json(const RunRecord& run) {
  return line_of({{"record", "run"},
                  {"version", 1},
                  {"run", run.run},
                  {"program", run.program},
                  {"command", Json(public_command(run.command))},
                  {"started", run.started},
                  {"git", {{"revision", run.source.revision}, {"dirty", nullable(run.source.dirty)}}},
                  {"build", build_json(run.build)},
                  {"machine", machine_json(run.machine)},
                  {"libraries", Json(run.libraries)},
                  {"ranks", run.ranks},
                  {"transport", run.transport},
                  {"rank_kind", run.rank_kind},
                  {"oversubscribed", run.oversubscribed},
                  {"seed", nullable(run.seed)},
                  {"link", link_json(run.link)},
                  {"gpu", gpu_json(run.gpu)},
                  {"basis", run.basis}});
}

std::string to_json(const RowRecord& row) {
  return line_of(with_gpu_states({{"record", "row"},
                                  {"run", row.run},
                                  {"collective", row.collective},
                                  {"algorithm", row.algorithm},
                                  {"executor", row.executor},
                                  {"transport", row.transport},
                                  {"ranks", row.ranks},
                                  {"bytes", row.bytes},
                                  {"count", row.count},
                                  {"dtype", row.dtype},
                                  {"op", row.op},
                                  {"root", row.root},
                                  {"in_place", row.in_place},
                                  {"basis", row.basis},
                                  {"status", row.status},
                                  {"error", nullable(row.error)},
                                  {"wrong", nullable(row.wrong)},
                                  {"iterations", row.iterations},
                                  {"time_us", nullable(row.time_us)},
                                  {"queued_us", nullable(row.queued_us)},
                                  {"graph_iterations", row.graph_iterations},
                                  {"algbw_gbps", nullable(row.algbw_gbps)},
                                  {"busbw_gbps", nullable(row.busbw_gbps)},
                                  {"samples_us", Json(row.samples_us)},
                                  {"stats", stats_json(row.samples_us)},
                                  {"plan", plan_json(row.plan)}},
                                 row.gpu_states));
}

std::string to_json(const KernelRecord& kernel) {
  return line_of(with_gpu_states({{"record", "kernel"},
                                  {"run", kernel.run},
                                  {"kernel", kernel.kernel},
                                  {"shape", kernel.shape},
                                  {"dtype", kernel.dtype},
                                  {"device", kernel.device},
                                  {"threads", kernel.threads},
                                  {"cores", Json(kernel.cores)},
                                  {"cache", kernel.cache},
                                  {"timing", kernel.timing},
                                  {"implementation", nullable(kernel.implementation)},
                                  {"basis", kernel.basis},
                                  {"status", kernel.status},
                                  {"checked", kernel.checked},
                                  {"error", nullable(kernel.error)},
                                  {"flops", kernel.flops},
                                  {"bytes", kernel.bytes},
                                  {"operands", operands_json(kernel.operands)},
                                  {"iterations", kernel.iterations},
                                  {"time_us", nullable(kernel.time_us)},
                                  {"samples_us", Json(kernel.samples_us)},
                                  {"stats", stats_json(kernel.samples_us)},
                                  {"gbps", nullable(kernel.gbps)},
                                  {"gflops", nullable(kernel.gflops)},
                                  {"bound", nullable(kernel.bound)},
                                  {"ceiling_us", nullable(kernel.ceiling_us)},
                                  {"share", nullable(kernel.share)}},
                                 kernel.gpu_states));
}

std::string to_json(const CeilingRecord& ceiling) {
  return line_of({{"record", "ceiling"},
                  {"run", ceiling.run},
                  {"device", ceiling.device},
                  {"threads", ceiling.threads},
                  {"name", ceiling.name},
                  {"level", nullable(ceiling.level)},
                  {"dtype", nullable(ceiling.dtype)},
                  {"value", ceiling.value},
                  {"unit", ceiling.unit},
                  {"samples", Json(ceiling.samples)},
                  {"stats", stats_json(ceiling.samples)}});
}

}  // namespace lockstep::core
