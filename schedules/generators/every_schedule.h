// For tests: all schedules of the catalogue at many shapes.
#pragma once

#include <functional>

#include "schedules/generators/catalogue.h"
#include "schedules/slices.h"

namespace lockstep::schedules {

// Calls visit(entry, shape, schedule) for each entry and each valid shape with up to `most_ranks` ranks.
inline void for_every_schedule(
    std::int32_t most_ranks,
    const std::function<void(const CatalogueEntry&, const PipelineShape&, const Schedule&)>& visit) {
  for (const CatalogueEntry& entry : catalogue()) {
    for (std::int32_t ranks = 1; ranks <= most_ranks; ++ranks) {
      for (std::int32_t microbatches : {1, 2, 3, ranks, 2 * ranks, 2 * ranks + 1, 3 * ranks, 17, 4 * ranks}) {
        for (std::int32_t chunks = 1; chunks <= (entry.takes_chunks ? 4 : 1); ++chunks) {
          for (std::int32_t slices = 1; slices <= (entry.takes_slices ? 2 : 1); ++slices) {
            PipelineShape shape{ranks, microbatches, chunks};
            if (slices > 1) shape.slice_tokens = even_slices(slices, slices);
            if (why_invalid(entry, shape).empty()) visit(entry, shape, entry.make(shape));
          }
        }
      }
    }
  }
}

}  // namespace lockstep::schedules
