#include "collectives/plan/sizes.h"

#include "collectives/plan/chunk_range.h"
#include "core/error.h"

namespace lockstep::plan {

std::int64_t chunk_elems(const Plan& plan, const collectives::Operation& operation, const Moved& moved) {
  const int block = moved.chunk / plan.chunks_per_block;
  const std::int64_t count = operation.matrix ? operation.matrix->at(moved.origin, block) : operation.count;
  return chunk_size(count, plan.chunks_per_block, moved.chunk % plan.chunks_per_block);
}

std::vector<std::int64_t> step_bytes(const Plan& plan, const Contents& contents,
                                     const collectives::Operation& operation) {
  const bool by_pair = plan.kind == collectives::Kind::all_to_all_v;
  LOCKSTEP_CHECK(operation.kind == plan.kind && by_pair == (operation.matrix != nullptr),
                 "the plan is for another collective, or all_to_all_v came without its matrix");
  const auto element_bytes = static_cast<std::int64_t>(core::size_of(operation.dtype));
  std::vector<std::int64_t> bytes;
  for (int id = 0; id < contents.ids().num_steps(); ++id) {
    std::int64_t elems = 0;
    const int chunks = chunks_of(step_at(plan, contents.ids().place(id)));
    for (int i = 0; i < chunks; ++i) elems += chunk_elems(plan, operation, contents.at(id, i));
    bytes.push_back(elems * element_bytes);
  }
  return bytes;
}

}  // namespace lockstep::plan
