#include "simulator/layout/layout.h"

#include <limits>
#include <numeric>

#include "schedules/catalogue.h"

namespace lockstep::simulator {
namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string divisors_of(std::int64_t value) {
  std::string found;
  int listed = 0;
  for (std::int64_t d = 1; d <= value; ++d) {
    if (value % d != 0) continue;
    if (++listed > 16) return found + " ...";
    found += (found.empty() ? "" : " ") + number(d);
  }
  return found;
}

// "tp is 5, and heads is 12; allowed: 1 2 3 4 6 12"
std::string must_divide(const char* what, std::int64_t value, const char* of, std::int64_t total) {
  if (total % value == 0) return "";
  return std::string(what) + " is " + number(value) + ", and " + of + " is " + number(total) +
         "; allowed: " + divisors_of(total);
}

std::string first_of(std::initializer_list<std::string> answers) {
  for (const std::string& answer : answers) {
    if (!answer.empty()) return answer;
  }
  return "";
}

std::string tensor_misfit(const Model& model, const Layout& layout) {
  return first_of({must_divide("tp", layout.tp, "heads", model.heads),
                   must_divide("tp", layout.tp, "kv_heads", model.kv_heads),
                   must_divide("tp", layout.tp, "ffn_hidden", model.ffn_hidden)});
}

std::string sequence_misfit(const Model& model, const Layout& layout) {
  if (auto cut = must_divide("cp", layout.cp, "sequence", model.sequence); !cut.empty()) return cut;
  if (!layout.sequence_parallel) return "";
  return must_divide("tp", layout.tp, "sequence / cp", model.sequence / layout.cp);
}

std::string expert_misfit(const Model& model, const Layout& layout) {
  if (model.experts == 0) {
    return layout.ep == 1 ? "" : "ep is " + number(layout.ep) + "; allowed: 1, as the model has no experts";
  }
  if (layout.tp > 1 && !layout.sequence_parallel) {
    return "sp is no; allowed: yes, as experts with tp above 1 exchange tokens that are spread over tensor ranks";
  }
  return first_of({must_divide("ep", layout.ep, "experts", model.experts),
                   must_divide("ep", layout.ep, "dp x cp", std::int64_t{layout.dp} * layout.cp)});
}

std::string batch_misfit(const Layout& layout) {
  const std::int64_t each = layout.dp * layout.microbatch_size;
  if (layout.global_batch % each == 0) return "";
  const std::int64_t below = layout.global_batch / each * each;
  const std::string lower = below > 0 ? number(below) + " or " : "";
  return "batch is " + number(layout.global_batch) + ", which is no multiple of dp x microbatch, " + number(each) +
         "; allowed: such as " + lower + number(below + each);
}

std::string shard_misfit(const Layout& layout) {
  if (layout.shard_ranks == 0) return "";
  if (layout.zero == 0) return "shard_ranks is " + number(layout.shard_ranks) + "; allowed: 0, as zero is 0";
  if (layout.ep > 1) {
    return "shard_ranks is " + number(layout.shard_ranks) + "; allowed: 0, as ep is " + number(layout.ep) +
           " and experts are sharded over all ranks that have them";
  }
  return must_divide("shard_ranks", layout.shard_ranks, "dp x cp", std::int64_t{layout.dp} * layout.cp);
}

std::string schedule_misfit(const Layout& layout) {
  if (layout.microbatches() > std::numeric_limits<std::int32_t>::max()) {
    return "batch gives " + number(layout.microbatches()) + " microbatches; allowed: below 2^31";
  }
  const std::string misfit = schedules::misfit_of(schedules::entry_named(layout.schedule), shape_of(layout));
  return misfit.empty() ? "" : "schedule " + layout.schedule + ": " + misfit;
}

std::string split_misfit(const Model& model, const Layout& layout) {
  const std::int32_t stages = stages_a_pipe(layout);
  if (layout.layers_of.empty()) {
    if (model.layers % stages == 0) return "";
    return "layers is " + number(model.layers) + ", which " + number(stages) +
           " stages cannot have alike; allowed: " + divisors_of(model.layers) + " stages, or layers of each stage";
  }
  if (layout.layers_of.size() != static_cast<std::size_t>(stages)) {
    return "layers names " + number(static_cast<std::int64_t>(layout.layers_of.size())) +
           " stages; allowed: " + number(stages);
  }
  const std::int64_t sum = std::accumulate(layout.layers_of.begin(), layout.layers_of.end(), std::int64_t{0});
  if (sum == model.layers) return "";
  return "layers of the stages add up to " + number(sum) + "; allowed: " + number(model.layers);
}

}  // namespace

std::string misfit_of(const Model& model, const Layout& layout) {
  if (auto misfit = first_of({tensor_misfit(model, layout), sequence_misfit(model, layout),
                              expert_misfit(model, layout), batch_misfit(layout), shard_misfit(layout)});
      !misfit.empty()) {
    return misfit;
  }
  if (auto misfit = schedule_misfit(layout); !misfit.empty()) return misfit;
  return split_misfit(model, layout);
}

schedules::PipelineShape shape_of(const Layout& layout) {
  return {layout.pp, static_cast<std::int32_t>(layout.microbatches()), layout.chunks};
}

std::int32_t stages_a_pipe(const Layout& layout) {
  if (layout.chunks > 1) return layout.pp * layout.chunks;
  // What a schedule has a rank does not depend on the shape: a small one shows it. Four microbatches fit all.
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  const schedules::PipelineShape small{2, 4, 1};
  if (!schedules::misfit_of(entry, small).empty()) return layout.pp;
  return layout.pp * entry.make(small).chunks();
}

StageSlice slice_of(const Model& model, const Layout& layout, std::int32_t stages, std::int32_t stage) {
  StageSlice slice;
  slice.embedding = stage == 0;
  slice.head = stage == stages - 1;
  if (layout.layers_of.empty()) {
    slice.layers = model.layers / stages;
    slice.first_layer = slice.layers * stage;
    return slice;
  }
  const auto end = layout.layers_of.begin() + stage;
  slice.first_layer = std::accumulate(layout.layers_of.begin(), end, std::int64_t{0});
  slice.layers = *end;
  return slice;
}

}  // namespace lockstep::simulator
