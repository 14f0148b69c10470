// Schedules in which each rank takes its chunks in a fixed order of groups: some warm-up forwards, then one forward and
// one backward alternately. These are 1F1B, interleaved 1F1B, their variants with split backwards, and those whose
// units are token slices (Seq1F1B).
#include <algorithm>
#include <functional>

#include "schedules/generators/rank_list.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {
namespace {

// Microbatches per group: p, or a few more where p does not divide m (PyTorch's microbatches_per_round).
std::int32_t group_of(const PipelineShape& shape) {
  return shape.microbatches / std::max(1, shape.microbatches / shape.ranks);
}

// The chunk of each unit of forward work: groups of microbatches go through one chunk after another (Narayanan et al.
// 2021, section 2.2.2, and Megatron-LM's schedule table). Backwards take them in the same groups, the last chunk first.
std::vector<std::int32_t> chunks_in_turn(const PipelineShape& shape) {
  std::vector<std::int32_t> chunks;
  const std::int32_t group = group_of(shape);
  for (std::int32_t begin = 0; begin < shape.microbatches; begin += group) {
    const std::int32_t count = std::min(group, shape.microbatches - begin);
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      chunks.insert(chunks.end(), static_cast<std::size_t>(count), chunk);
    }
  }
  return chunks;
}

// The shape with slices as its units: k times as many as microbatches.
PipelineShape in_units(PipelineShape shape) {
  shape.microbatches *= shape.slices();
  return shape;
}

struct Order {
  std::function<std::int32_t(std::int32_t rank)> warm_up;  // forwards before the first backward
  bool split = false;  // splits backwards; from the (rank + 1)-th on, each I is followed by the oldest pending W
};

std::vector<Action> list_of(const PipelineShape& shape, const Order& order, std::int32_t rank) {
  const std::vector<std::int32_t> chunks = chunks_in_turn(shape);
  const auto units = static_cast<std::int32_t>(chunks.size());
  RankList list(shape.ranks * shape.chunks, shape.microbatches, shape.slices());
  const auto stage_of = [&](std::int32_t chunk) { return chunk * shape.ranks + rank; };
  const auto forward = [&](std::int32_t k) { list.forward(stage_of(chunks[static_cast<std::size_t>(k)])); };
  const auto backward = [&](std::int32_t k) {
    const std::int32_t stage = stage_of(shape.chunks - 1 - chunks[static_cast<std::size_t>(k)]);
    if (!order.split) {
      list.backward(stage);
      return;
    }
    list.input_gradient(stage);
    if (k >= rank) list.weight_gradient();
  };
  const std::int32_t warm_up = std::min(units, order.warm_up(rank));
  for (std::int32_t k = 0; k < warm_up; ++k) forward(k);
  for (std::int32_t k = warm_up; k < units; ++k) {
    forward(k);
    backward(k - warm_up);
  }
  for (std::int32_t k = units - warm_up; k < units; ++k) backward(k);
  while (list.weight_gradient()) {
  }
  return list.take();
}

// `shape` counts units.
Schedule looped(const char* name, const PipelineShape& shape, const Order& order) {
  Schedule made{.name = name,
                .num_microbatches = shape.microbatches,
                .stages_per_pipe = shape.ranks * shape.chunks,
                .rank_of_stage = looped_placement(shape.ranks, shape.chunks),
                .of_rank = {},
                .slice_tokens = shape.slice_tokens};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) made.of_rank.push_back(list_of(shape, order, rank));
  return made;
}

}  // namespace

Schedule one_f_one_b(const PipelineShape& shape) {
  return looped("1f1b", shape, {.warm_up = [p = shape.ranks](std::int32_t r) { return p - 1 - r; }});
}

Schedule naive(const PipelineShape& shape) {
  return looped("naive", shape, {.warm_up = [](std::int32_t) { return 0; }});
}

Schedule pipedream(const PipelineShape& shape) {
  Schedule made = one_f_one_b(shape);
  made.name = "pipedream";
  return made;
}

Schedule pipedream_2bw(const PipelineShape& shape) {
  Schedule made = one_f_one_b(shape);
  made.name = "pipedream_2bw";
  return made;
}

Schedule eager_1f1b(const PipelineShape& shape) {
  return looped("eager_1f1b", shape, {.warm_up = [p = shape.ranks](std::int32_t r) { return 2 * (p - 1 - r) + 1; }});
}

Schedule interleaved(const PipelineShape& shape) {
  return looped("interleaved", shape, {.warm_up = [s = shape](std::int32_t r) {
                  return 2 * (s.ranks - 1 - r) + (s.chunks - 1) * group_of(s);
                }});
}

// Sun et al. 2024 (arXiv:2406.03488), section 3.2: the last slice of a microbatch goes backward first, so all k slices
// go forward before it; the warm-up has k - 1 more forwards than 1F1B.
Schedule seq1f1b(const PipelineShape& shape) {
  return looped("seq1f1b", in_units(shape),
                {.warm_up = [p = shape.ranks, k = shape.slices()](std::int32_t r) { return p - 1 - r + k - 1; }});
}

// Section 3.3, Seq1F1B-I.
Schedule seq1f1b_i(const PipelineShape& shape) {
  return looped("seq1f1b_i", in_units(shape), {.warm_up = [s = in_units(shape)](std::int32_t r) {
                  return 2 * (s.ranks - 1 - r) + (s.chunks - 1) * group_of(s) + s.slices() - 1;
                }});
}

Schedule zb_h1(const PipelineShape& shape) {
  return looped("zb_h1", shape, {.warm_up = [p = shape.ranks](std::int32_t r) { return p - 1 - r; }, .split = true});
}

Schedule interleaved_zb(const PipelineShape& shape) {
  return looped("interleaved_zb", shape,
                {.warm_up = [s = shape](std::int32_t r) { return s.ranks - 1 - r + (s.chunks - 1) * group_of(s); },
                 .split = true});
}

}  // namespace lockstep::schedules
