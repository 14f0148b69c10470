#include "bench/simulate/records.h"

#include "bench/pipeline/parts.h"
#include "bench/pipeline/records.h"
#include "bench/simulate/table.h"

namespace lockstep::simulate {
namespace {

// Below ZeRO 2 gradients are reduced in place, and below ZeRO 3 weights are gathered in place: in memory that is
// already counted.
bool is_counted(schedules::Held kind, const workload::Layout& layout) {
  if (kind == schedules::Held::gradients) return layout.zero >= 2;
  return kind != schedules::Held::parameters || layout.zero == 3;
}

std::string kind_text(schedules::Held kind) {
  return kind == schedules::Held::gradients ? "gradients in reduction" : std::string(name_of(kind));
}

// The bytes that are held all the time, and those that are held temporarily.
core::MemoryRecord memory_record(const simulator::Prediction& made, const workload::Layout& layout) {
  core::MemoryRecord record{"bytes", {}};
  const std::size_t ranks_a_place = made.memory_over_time.size() / made.memory.size();
  for (std::size_t r = 0; r < made.memory_over_time.size(); ++r) {
    const workload::MemoryBytes& place = made.memory[r / ranks_a_place];
    auto& kinds = record.of_rank.emplace_back();
    kinds["weights"] = {{0, place.weights}};
    kinds["gradients"] = {{0, place.gradients}};
    kinds["optimizer"] = {{0, place.optimizer}};
    for (std::size_t k = 0; k < schedules::kNumHeld; ++k) {
      const schedules::MemoryCurve& curve = made.memory_over_time[r][k];
      const auto kind = static_cast<schedules::Held>(k);
      if (curve.empty() || !is_counted(kind, layout)) continue;
      auto& points = kinds[kind_text(kind)];
      for (const schedules::MemoryPoint& point : curve) {
        points.push_back({static_cast<double>(point.time_ps) / 1e9, static_cast<double>(point.bytes)});
      }
    }
  }
  return record;
}

}  // namespace

core::RunRecord run_record(const program::Invocation& flags) {
  core::RunRecord run = core::new_run(flags.program, flags.command);
  run.basis = "simulated";
  return run;
}

core::SimulationRecord simulation_record(const core::RunRecord& run, const workload::Model& model,
                                         const workload::Layout& layout, const simulator::Machine& machine,
                                         const simulator::Prediction& made, double wall_s) {
  core::SimulationRecord record;
  record.run = run.run;
  record.program = run.program;
  record.model.name = model.name;
  const auto number = [](auto value) { return static_cast<double>(value); };
  record.model.numbers = {{"layers", number(model.layers)},         {"hidden", number(model.hidden)},
                          {"heads", number(model.heads)},           {"kv_heads", number(model.kv_heads)},
                          {"ffn_hidden", number(model.ffn_hidden)}, {"vocabulary", number(model.vocabulary)},
                          {"sequence", number(model.sequence)},     {"experts", number(model.experts)}};
  record.model.parameters = parameters_of(model);
  record.layout.text = text_of(layout);
  record.layout.numbers = {
      {"tp", layout.tp},    {"cp", layout.cp},     {"ep", layout.ep},         {"dp", layout.dp},
      {"pp", layout.pp},    {"zero", layout.zero}, {"chunks", layout.chunks}, {"microbatch", layout.microbatch_size},
      {"skew", layout.skew}};
  record.schedule = layout.schedule;
  record.machine = machine.name;
  record.link_gbps = machine.levels.back().gbps;
  record.compression = text_of(layout.compression);
  record.weight_compression = text_of(workload::Compression(layout.weight_compression));
  record.ranks = layout.ranks();
  record.global_batch = layout.global_batch();
  record.step_ms = made.step_s * 1e3;
  for (const auto& [name, ps] : pipeline::named_parts(made.parts[made.busiest])) {
    record.parts_ms.emplace_back(name, static_cast<double>(ps) / 1e9);
  }
  const schedules::Bubbles& b = made.bubbles;
  record.bubbles = {b.of_ideal, b.of_makespan, b.of_own_span, b.own_of_ideal};
  record.mfu = made.mfu;
  record.hfu = made.hfu;
  record.flop_convention = workload::kFlopConvention;
  const double device_tera_seconds = made.step_s * number(layout.ranks()) * 1e12;
  record.model_tflops_a_gpu = made.model_flops / device_tera_seconds;
  record.hardware_tflops_a_gpu = made.hardware_flops / device_tera_seconds;
  record.tokens_per_s = made.tokens_per_s;
  const workload::MemoryBytes& memory = made.memory[made.fullest];
  record.memory_bytes = {{"weights", memory.weights},     {"gradients", memory.gradients},
                         {"optimizer", memory.optimizer}, {"activations", memory.activations},
                         {"buffers", memory.buffers},     {"total", memory.total()}};
  record.capacity_bytes = number(machine.device.memory_bytes);
  record.fits = made.fits;
  record.sent_bytes = named_bytes(made.sent[made.busiest]);
  if (machine.levels.size() > 1) record.sent_beyond_bytes = named_levels(made.sent_beyond[made.busiest], machine);
  record.events = made.events;
  record.engine_s = made.engine_s;
  record.wall_s = wall_s;
  if (!made.timeline.empty()) {
    record.timeline = pipeline::timeline_record(made.step, made.timeline);
    record.memory = memory_record(made, layout);
  }
  return record;
}

}  // namespace lockstep::simulate
