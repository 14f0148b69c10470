#include "core/layer_record.h"

#include <utility>

#include "core/record_json.h"

namespace lockstep::core {
namespace {

Json time_json(const LayerTimeRecord& time) {
  return {{"direction", time.direction},
          {"way", time.way},
          {"samples_us", Json(time.samples_us)},
          {"stats", stats_json(time.samples_us)},
          {"parts_us", object_of(time.parts_us)},
          {"exposed_us", Json(time.exposed_us)},
          {"exposed_stats", stats_json(time.exposed_us)}};
}

}  // namespace

std::string to_json(const LayerRecord& r) {
  Json times = Json::array();
  for (const LayerTimeRecord& time : r.times) times.push_back(time_json(time));
  return line_of({{"record", "layer"},
                  {"run", r.run},
                  {"program", r.program},
                  {"basis", r.basis},
                  {"layer", r.layer},
                  {"ranks", r.ranks},
                  {"threads", r.threads},
                  {"sequence_parallel", r.sequence_parallel},
                  {"tiles", r.tiles},
                  {"dtype", r.dtype},
                  {"sizes", object_of(r.sizes)},
                  {"algorithm", r.algorithm},
                  {"times", std::move(times)},
                  {"sent_bytes", r.sent_bytes},
                  {"formula_bytes", r.formula_bytes},
                  {"checked_passes", r.checked_passes},
                  {"wrong", r.wrong},
                  {"unlike", r.unlike},
                  {"status", r.status},
                  {"error", nullable(r.error)}});
}

}  // namespace lockstep::core
