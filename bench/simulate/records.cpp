#include "bench/simulate/records.h"

#include "bench/pipeline/records.h"
#include "bench/simulate/table.h"

namespace lockstep::simulate {

core::RunRecord run_record(const SimulateFlags& flags) {
  core::RunRecord run;
  run.run = core::new_run_id();
  run.program = flags.program;
  run.command = flags.command;
  run.started = core::utc_now();
  run.source = core::source();
  run.build = core::build();
  run.machine = core::this_machine();
  run.transport = "local";
  run.rank_kind = "threads";
  run.basis = "simulated";
  return run;
}

core::SimulationRecord simulation_record(const core::RunRecord& run, const simulator::Model& model,
                                         const simulator::Layout& layout, const simulator::Machine& machine,
                                         const simulator::Prediction& made, double wall_s) {
  core::SimulationRecord record;
  record.run = run.run;
  record.program = run.program;
  record.model = model.name;
  const auto number = [](auto value) { return static_cast<double>(value); };
  record.model_numbers = {{"layers", number(model.layers)},         {"hidden", number(model.hidden)},
                          {"heads", number(model.heads)},           {"kv_heads", number(model.kv_heads)},
                          {"ffn_hidden", number(model.ffn_hidden)}, {"vocabulary", number(model.vocabulary)},
                          {"sequence", number(model.sequence)},     {"experts", number(model.experts)}};
  record.parameters = parameters_of(model);
  record.layout = text_of(layout);
  record.layout_numbers = {
      {"tp", layout.tp}, {"cp", layout.cp},     {"ep", layout.ep},         {"dp", layout.dp},
      {"pp", layout.pp}, {"zero", layout.zero}, {"chunks", layout.chunks}, {"microbatch", layout.microbatch_size}};
  record.schedule = layout.schedule;
  record.machine = machine.name;
  record.ranks = layout.ranks();
  record.global_batch = layout.global_batch;
  record.step_ms = made.step_s * 1e3;
  for (const auto& [name, ps] : named_parts(made.parts[made.busiest])) {
    record.parts_ms.emplace_back(name, static_cast<double>(ps) / 1e9);
  }
  const schedules::Bubbles& b = made.bubbles;
  record.bubbles = {b.of_ideal, b.of_makespan, b.of_own_span, b.own_of_ideal};
  record.mfu = made.mfu;
  record.hfu = made.hfu;
  record.flop_convention = flop_convention();
  const double device_tera_seconds = made.step_s * number(layout.ranks()) * 1e12;
  record.model_tflops_a_gpu = made.model_flops / device_tera_seconds;
  record.hardware_tflops_a_gpu = made.hardware_flops / device_tera_seconds;
  record.tokens_per_s = made.tokens_per_s;
  const simulator::MemoryBytes& memory = made.memory[made.fullest];
  record.memory_bytes = {{"weights", memory.weights},     {"gradients", memory.gradients},
                         {"optimizer", memory.optimizer}, {"activations", memory.activations},
                         {"buffers", memory.buffers},     {"total", memory.total()}};
  record.capacity_bytes = number(machine.device.memory_bytes);
  record.fits = made.fits;
  record.events = made.events;
  record.wall_s = wall_s;
  if (!made.timeline.empty()) record.timeline = pipeline::timeline_record(made.step, made.timeline);
  return record;
}

}  // namespace lockstep::simulate
