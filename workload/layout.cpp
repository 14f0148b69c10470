#include "workload/layout.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/schedule.h"
#include "schedules/slices.h"

namespace lockstep::workload {

schedules::PipelineShape shape_of(const Layout& layout) {
  schedules::PipelineShape shape{layout.pp, layout.microbatches, layout.chunks, layout.slice_tokens};
  if (layout.slices > 1 && shape.slice_tokens.empty()) {
    shape.slice_tokens = schedules::even_slices(layout.slices, layout.slices);
  }
  return shape;
}

schedules::Schedule schedule_of(const Layout& layout) {
  if (layout.own_schedule != nullptr) return *layout.own_schedule;
  return schedules::make_schedule(layout.schedule, shape_of(layout));
}

bool evicts_activations(const Layout& layout) {
  return layout.own_schedule == nullptr ? schedules::entry_named(layout.schedule).evicts
                                        : evicts_activations(*layout.own_schedule);
}

schedules::Versions versions_of(const Layout& layout) {
  if (layout.own_schedule != nullptr) return schedules::Versions::one;
  return schedules::entry_named(layout.schedule).versions;
}

std::int32_t stages_per_pipe(const Layout& layout) {
  if (layout.own_schedule != nullptr) return layout.own_schedule->stages_per_pipe;
  if (layout.chunks > 1) return layout.pp * layout.chunks;
  // The number of stages per rank does not depend on the shape of a schedule: a small one shows it. Four microbatches
  // fit all.
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  const schedules::PipelineShape small{2, 4, 1};
  if (!schedules::why_invalid(entry, small).empty()) return layout.pp;
  return layout.pp * entry.make(small).chunks();
}

std::int32_t pipes_of(const Layout& layout) {
  if (layout.own_schedule != nullptr) return layout.own_schedule->num_pipes();
  return schedules::entry_named(layout.schedule).weight_copies;
}

std::vector<std::int64_t> tokens_of_slices(const Model& model, const Layout& layout) {
  if (!layout.slice_tokens.empty()) return layout.slice_tokens;
  return schedules::even_slices(model.sequence, layout.slices);
}

Model of_tokens(const Model& model, const StageSlice& slice) {
  Model part = model;
  if (slice.tokens > 0) part.sequence = slice.tokens;
  return part;
}

StageSlice slice_of(const Model& model, const Layout& layout, std::int32_t stages, std::int32_t stage,
                    std::int32_t token_slice) {
  StageSlice slice = slice_of(model, layout, stages, stage);
  if (layout.slices == 1) return slice;
  const std::vector<std::int64_t> tokens = tokens_of_slices(model, layout);
  slice.first_token = std::accumulate(tokens.begin(), tokens.begin() + token_slice, std::int64_t{0});
  slice.tokens = tokens[static_cast<std::size_t>(token_slice)];
  return slice;
}

StageSlice slice_of(const Model& model, const Layout& layout, std::int32_t stages, std::int32_t stage) {
  LOCKSTEP_CHECK(stage >= 0 && stage < stages, "a stage of the pipeline");
  StageSlice slice;
  slice.embedding = stage == 0;
  slice.head = stage == stages - 1;
  if (layout.layers_of.empty()) {
    const std::int64_t even = model.layers / stages;
    const std::int64_t longer = model.layers % stages;  // stages with one more layer
    slice.first_layer = stage * even + std::min<std::int64_t>(stage, longer);
    slice.layers = even + (stage < longer ? 1 : 0);
    return slice;
  }
  const auto end = layout.layers_of.begin() + stage;
  slice.first_layer = std::accumulate(layout.layers_of.begin(), end, std::int64_t{0});
  slice.layers = *end;
  return slice;
}

}  // namespace lockstep::workload
