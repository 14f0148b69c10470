#include "core/simulation_record.h"

#include "core/record_json.h"

namespace lockstep::core {

std::string to_json(const SimulationRecord& r) {
  return line_of({{"record", "simulation"},
                  {"run", r.run},
                  {"program", r.program},
                  {"basis", "simulated"},
                  {"model", {{"name", r.model}, {"parameters", r.parameters}, {"numbers", object_of(r.model_numbers)}}},
                  {"layout", {{"text", r.layout}, {"numbers", Json(r.layout_numbers)}}},
                  {"schedule", r.schedule},
                  {"machine", r.machine},
                  {"ranks", r.ranks},
                  {"global_batch", r.global_batch},
                  {"step_ms", r.step_ms},
                  {"parts_ms", object_of(r.parts_ms)},
                  {"bubbles", bubbles_json(r.bubbles)},
                  {"mfu", r.mfu},
                  {"hfu", r.hfu},
                  {"flop_convention", r.flop_convention},
                  {"model_tflops_a_gpu", r.model_tflops_a_gpu},
                  {"hardware_tflops_a_gpu", r.hardware_tflops_a_gpu},
                  {"tokens_per_s", r.tokens_per_s},
                  {"memory_bytes", object_of(r.memory_bytes)},
                  {"capacity_bytes", r.capacity_bytes},
                  {"fits", r.fits},
                  {"sent_bytes", object_of(r.sent_bytes)},
                  {"events", r.events},
                  {"engine_s", r.engine_s},
                  {"wall_s", r.wall_s},
                  {"timeline", r.timeline ? timeline_json(*r.timeline) : Json(nullptr)},
                  {"memory", memory_json(r.memory)}});
}

}  // namespace lockstep::core
