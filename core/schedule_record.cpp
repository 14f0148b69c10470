#include "core/schedule_record.h"

#include "core/record_json.h"

namespace lockstep::core {
namespace {

Json times_json(const std::optional<StageTimesRecord>& times) {
  if (!times) return nullptr;
  return {{"forward", times->forward_ms},
          {"input_gradient", times->input_gradient_ms},
          {"weight_gradient", times->weight_gradient_ms},
          {"message", times->message_ms}};
}

Json hangs_json(const ScheduleRecord& record) {
  Json hangs = Json::object();
  for (const auto& [transport, text] : record.hangs) hangs[transport] = nullable(text);
  return hangs;
}

Json closed_form_json(const std::optional<ClosedFormRecord>& form) {
  if (!form) return nullptr;
  return {{"cost", form->cost_ms}, {"of", form->of}};
}

Json versions_json(const std::vector<std::int32_t>& versions) {
  return versions.empty() ? Json(nullptr) : Json(versions);
}

Json reductions_json(const std::optional<ReductionsRecord>& reductions) {
  if (!reductions) return nullptr;
  return {{"compression", reductions->compression},
          {"backward_ms", reductions->backward_ms},
          {"one_by_one_ms", reductions->one_by_one_ms},
          {"exposed_ms", reductions->exposed_ms},
          {"exposed_samples_ms", Json(reductions->exposed_samples_ms)},
          {"sent_bytes", reductions->sent_bytes},
          {"formula_bytes", reductions->formula_bytes},
          {"wrong", reductions->wrong},
          {"status", reductions->status}};
}

Json overlap_json(const std::optional<OverlapRecord>& overlap) {
  if (!overlap) return nullptr;
  return {{"layers", overlap->layers},
          {"bytes_a_layer", overlap->bytes_a_layer},
          {"replicas", overlap->replicas},
          {"bucket_cap_bytes", overlap->bucket_cap_bytes},
          {"zero_stage", overlap->zero_stage},
          {"prefetch", overlap->prefetch},
          {"algorithm", overlap->algorithm},
          {"collectives", overlap->collectives},
          {"compute_alone_ms", overlap->compute_alone_ms},
          {"communication_alone_ms", overlap->communication_alone_ms},
          {"efficiency", overlap->efficiency},
          {"reductions", reductions_json(overlap->reductions)}};
}

}  // namespace

std::string to_json(const ScheduleRecord& r) {
  return line_of({{"record", "schedule"},
                  {"run", r.run},
                  {"program", r.program},
                  {"schedule", r.schedule},
                  {"source", nullable(r.source)},
                  {"ranks", r.ranks},
                  {"microbatches", r.microbatches},
                  {"chunks", r.chunks},
                  {"pipes", r.pipes},
                  {"basis", r.basis},
                  {"times_ms", times_json(r.times)},
                  {"memory_limit", nullable(r.memory_limit)},
                  {"w_memory", nullable(r.w_memory)},
                  {"bound_ms", nullable(r.bound_ms)},
                  {"makespan_ms", r.makespan_ms},
                  {"own_span_ms", r.own_span_ms},
                  {"own_span_ms_of_rank", Json(r.own_span_ms_of_rank)},
                  {"work_ms", r.work_ms},
                  {"bubbles", bubbles_json(r.bubbles)},
                  {"peak_activations", {{"until_w", Json(r.peak_until_w)}, {"until_b", Json(r.peak_until_b)}}},
                  {"sends", Json(r.sends)},
                  {"weight_versions", versions_json(r.weight_versions)},
                  {"hangs", hangs_json(r)},
                  {"ordering",
                   {{"pairs", r.ordering.pairs},
                    {"pairs_out_of_order", r.ordering.pairs_out_of_order},
                    {"set_aside", r.ordering.set_aside}}},
                  {"closed_form_ms", closed_form_json(r.closed_form)},
                  {"exposed_ms", Json(r.exposed_ms)},
                  {"samples_ms", Json(r.samples_ms)},
                  {"stats", stats_json(r.samples_ms)},
                  {"late_us", nullable(r.late_us)},
                  {"simulated_ms", nullable(r.simulated_ms)},
                  {"timeline", timeline_json(r.timeline)},
                  {"memory", memory_json(r.memory)},
                  {"overlap", overlap_json(r.overlap)}});
}

}  // namespace lockstep::core
