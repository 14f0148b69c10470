#include "core/training_record.h"

#include "core/record_json.h"

namespace lockstep::core {
namespace {

Json steps_json(const std::vector<TrainingStepRecord>& steps) {
  Json list = Json::array();
  for (const TrainingStepRecord& s : steps) {
    list.push_back({{"step", s.step},
                    {"loss", s.loss},
                    {"norm", s.norm},
                    {"rate", s.rate},
                    {"skipped", s.skipped},
                    {"ms", s.ms},
                    {"tokens_per_s", s.tokens_per_s},
                    {"mfu", s.mfu}});
  }
  return list;
}

Json validation_json(const TrainingRecord& r) {
  if (r.validations.empty()) return nullptr;
  Json curve = Json::array();
  for (const ValidationRecord& v : r.validations) curve.push_back({v.step, v.loss});
  return {{"loss", r.validations.back().loss},
          {"unigram", r.unigram_loss},
          {"bigram", r.bigram_loss},
          {"curve", std::move(curve)}};
}

Json gemm_json(const GemmRecord& g) {
  return {{"implementation", g.implementation}, {"chosen_by", g.chosen_by}, {"probe_us", object_of(g.probe_us)}};
}

Json energy_json(const EnergyRecord& e) {
  return {{"source", e.source},
          {"devices", e.devices},
          {"steps", e.steps},
          {"seconds", e.seconds},
          {"joules_a_step", e.joules_a_step},
          {"watts", e.watts},
          {"tokens_per_joule", e.tokens_per_joule}};
}

}  // namespace

std::string to_json(const TrainingRecord& r) {
  Json line{{"record", "training"},
            {"run", r.run},
            {"program", r.program},
            {"basis", r.basis},
            {"model", model_json(r.model)},
            {"layout", layout_json(r.layout)},
            {"schedule", r.schedule},
            {"dtype", r.dtype},
            {"ranks", r.ranks},
            {"threads", r.threads},
            {"data", r.data},
            {"tokens_a_step", r.tokens_a_step},
            {"flop_convention", r.flop_convention},
            {"peak_flops", r.peak_flops},
            {"steps", steps_json(r.steps)},
            {"validation", validation_json(r)},
            {"timed_step", r.timed_step},
            {"parts_ms", object_of(r.parts_ms)},
            {"memory_bytes", object_of(r.memory_bytes)},
            {"timeline", timeline_json(r.timeline)}};
  if (r.graph) line["graph"] = true;
  if (r.gemm) line["gemm"] = gemm_json(*r.gemm);
  if (r.energy) line["energy"] = energy_json(*r.energy);
  return line_of(line);
}

}  // namespace lockstep::core
