#include "core/sharding_record.h"

#include "core/record_json.h"

namespace lockstep::core {

std::string to_json(const ShardingRecord& r) {
  return line_of({{"record", "sharding"},
                  {"run", r.run},
                  {"program", r.program},
                  {"basis", r.basis},
                  {"model", model_json(r.model)},
                  {"ranks", r.ranks},
                  {"threads", r.threads},
                  {"zero_stage", r.zero_stage},
                  {"shard_ranks", r.shard_ranks},
                  {"prefetch", r.prefetch},
                  {"dtype", r.dtype},
                  {"gradient_dtype", r.gradient_dtype},
                  {"microbatches", r.microbatches},
                  {"padded_elems", r.padded_elems},
                  {"held_bytes", object_of(r.held_bytes)},
                  {"peak_bytes", object_of(r.peak_bytes)},
                  {"formula_bytes", object_of(r.formula_bytes)},
                  {"sent_bytes", object_of(r.sent_bytes)},
                  {"formula_sent_bytes", object_of(r.formula_sent_bytes)},
                  {"status", r.status},
                  {"error", nullable(r.error)},
                  {"samples_ms", Json(r.samples_ms)},
                  {"stats", stats_json(r.samples_ms)}});
}

}  // namespace lockstep::core
