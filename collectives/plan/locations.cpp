#include "collectives/plan/locations.h"

namespace lockstep::plan {

Locations::Locations(const Plan& plan, bool in_place) : ranks_(static_cast<std::size_t>(plan.num_ranks)) {
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    Rank& r = ranks_[at(rank)];
    r.begin = size();
    const int inputs = input_chunks(plan, rank);
    output_chunk_.resize(output_chunk_.size() + at(inputs), -1);
    const auto alias = collectives::in_place_alias(plan.kind, plan.num_ranks, plan.root, rank);
    const int shift = (alias.input_block - alias.output_block) * plan.chunks_per_block;
    for (int chunk = 0; chunk < output_chunks(plan, rank); ++chunk) {
      const bool shared = in_place && chunk + shift >= 0 && chunk + shift < inputs;
      r.output.push_back(shared ? r.begin + chunk + shift : size());
      if (shared) {
        output_chunk_[at(r.output.back())] = chunk;
      } else {
        output_chunk_.push_back(chunk);
      }
    }
    r.scratch_begin = size();
    output_chunk_.resize(output_chunk_.size() + at(plan.scratch_chunks), -1);
  }
}

}  // namespace lockstep::plan
