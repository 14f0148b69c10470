#include "core/scaling_record.h"

#include "core/record_json.h"

namespace lockstep::core {
namespace {

Json steps_json(const std::vector<StepTimeRecord>& steps) {
  Json list = Json::array();
  for (const StepTimeRecord& s : steps) {
    list.push_back({{"kind", s.kind},
                    {"step_ms", s.step_ms},
                    {"samples_ms", Json(s.samples_ms)},
                    {"stats", stats_json(s.samples_ms)},
                    {"parts_ms", object_of(s.parts_ms)},
                    {"timeline", timeline_json(s.timeline)}});
  }
  return list;
}

Json slowdowns_json(const std::vector<SlowdownRecord>& slowdowns) {
  Json list = Json::array();
  for (const SlowdownRecord& s : slowdowns) {
    list.push_back(
        {{"of", s.of}, {"beside", s.beside}, {"ranks", s.ranks}, {"factor", s.factor}, {"samples", s.samples}});
  }
  return list;
}

}  // namespace

std::string to_json(const ScalingRecord& r) {
  return line_of({{"record", "scaling"},
                  {"run", r.run},
                  {"program", r.program},
                  {"basis", r.basis},
                  {"mode", r.mode},
                  {"model", model_json(r.model)},
                  {"layout", layout_json(r.layout)},
                  {"dtype", r.dtype},
                  {"ranks", r.ranks},
                  {"threads", r.threads},
                  {"oversubscribed", r.oversubscribed},
                  {"sequences_a_step", r.sequences_a_step},
                  {"tokens_a_step", r.tokens_a_step},
                  {"steps", steps_json(r.steps)},
                  {"slowdowns", slowdowns_json(r.slowdowns)},
                  {"tokens_per_s", r.tokens_per_s},
                  {"efficiency", nullable(r.efficiency)}});
}

}  // namespace lockstep::core
