#include <functional>

#include "schedules/generators/catalogue.h"
#include "simulator/predict/predict.h"
#include "simulator/predict/search.h"

namespace lockstep::simulator {
namespace {

std::vector<std::int32_t> divisors_up_to(std::int64_t number, std::int64_t most) {
  std::vector<std::int32_t> found;
  for (std::int64_t d = 1; d <= std::min(number, most); ++d) {
    if (number % d == 0) found.push_back(static_cast<std::int32_t>(d));
  }
  return found;
}

using Visit = std::function<void(const workload::Layout&)>;

// Ways to distribute devices over the kinds of parallelism. Tensor-parallel ranks stay within the innermost network
// level.
void for_sizes(const workload::Model& model, const Machine& machine, const SearchSpace& space, const Visit& visit) {
  workload::Layout layout = space.base;
  if (space.gpus % layout.cp != 0) return;
  const std::int64_t gpus = space.gpus / layout.cp;
  for (const std::int32_t tp : divisors_up_to(gpus, machine.levels.front().ranks)) {
    for (const std::int32_t pp : divisors_up_to(gpus / tp, model.layers)) {
      layout.tp = tp;
      layout.pp = pp;
      layout.dp = static_cast<std::int32_t>(gpus / tp / pp);
      const std::int64_t experts = model.experts == 0 ? 1 : model.experts;
      for (const std::int32_t ep : divisors_up_to(experts, std::int64_t{layout.dp} * layout.cp)) {
        layout.ep = ep;
        visit(layout);
      }
    }
  }
}

// Token slices as the user set them, for schedules that take slices.
void take_slices(workload::Layout& layout, const SearchSpace& space, bool takes) {
  const workload::Layout usual;
  const workload::Layout& from = takes ? space.base : usual;
  layout.slices = from.slices;
  layout.slice_tokens = from.slice_tokens;
  layout.balanced_slices = from.balanced_slices;
}

void for_schedules(const SearchSpace& space, const workload::Layout& sizes, const Visit& visit) {
  workload::Layout layout = sizes;
  if (sizes.pp == 1) {
    layout.schedule = "1f1b";
    layout.chunks = 1;
    take_slices(layout, space, false);
    return visit(layout);
  }
  for (const std::string& name : space.schedules) {
    layout.schedule = name;
    layout.chunks = 1;
    take_slices(layout, space, schedules::entry_named(name).takes_slices);
    if (!schedules::entry_named(name).takes_chunks) {
      visit(layout);
      continue;
    }
    for (const std::int32_t chunks : space.chunks) {
      layout.chunks = chunks;
      visit(layout);
    }
  }
}

void for_memory_choices(const SearchSpace& space, const workload::Layout& shape, const Visit& visit) {
  workload::Layout layout = shape;
  for (const std::int64_t microbatch : space.microbatches) {
    const std::int64_t each = layout.dp * microbatch;
    if (space.global_batch % each != 0) continue;
    layout.microbatch_size = microbatch;
    layout.microbatches = static_cast<std::int32_t>(space.global_batch / each);
    for (const workload::Recompute recompute :
         {workload::Recompute::none, workload::Recompute::selective, workload::Recompute::full}) {
      if (recompute == workload::Recompute::selective && layout.flash) continue;  // scores are not kept in any case
      layout.recompute = recompute;
      for (const std::int32_t zero : {0, 1, 2, 3}) {
        if (zero > 0 && layout.dp * layout.cp == 1) continue;
        layout.zero = zero;
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && layout.tp == 1) continue;
          layout.sequence_parallel = sequence_parallel;
          visit(layout);
        }
      }
    }
  }
}

}  // namespace

std::vector<workload::Layout> legal_layouts(const workload::Model& model, const Machine& machine,
                                            const SearchSpace& space) {
  std::vector<workload::Layout> found;
  for_sizes(model, machine, space, [&](const workload::Layout& sizes) {
    for_schedules(space, sizes, [&](const workload::Layout& shape) {
      for_memory_choices(space, shape, [&](const workload::Layout& layout) {
        // A stage with more layers would make the others wait.
        const bool even =
            layout.balanced_layers || !layout.layers_of.empty() || model.layers % stages_per_pipe(layout) == 0;
        if (even && why_invalid(model, layout).empty()) found.push_back(balanced_on(machine, model, layout));
      });
    });
  });
  return found;
}

}  // namespace lockstep::simulator
