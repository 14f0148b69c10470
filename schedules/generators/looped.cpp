// Schedules in which each rank takes its chunks in a fixed order of groups: some warm-up forwards, then one forward and
// one backward alternately. These are 1F1B, interleaved 1F1B, their variants with split backwards, and those whose
// units are token slices (Seq1F1B).
#include <algorithm>
#include <functional>
#include <set>

#include "schedules/generators/rank_list.h"
#include "schedules/schedule.h"

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

struct UnitOrder {
  std::function<std::int32_t(std::int32_t rank)> warm_up;  // forwards before the first backward
  bool split = false;  // splits backwards; from the (rank + 1)-th on, each I is followed by the oldest pending W
};

std::vector<Action> list_of(const PipelineShape& shape, const UnitOrder& order, std::int32_t rank) {
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

// `shape` counts units. make_list(rank) makes the list of each rank.
template <class MakeList>
Schedule in_a_loop(const PipelineShape& shape, const MakeList& make_list) {
  Schedule schedule = schedule_of(shape.ranks, shape.microbatches, shape.ranks * shape.chunks,
                                  looped_placement(shape.ranks, shape.chunks), make_list);
  schedule.slice_tokens = shape.slice_tokens;
  return schedule;
}

Schedule looped(const PipelineShape& shape, const UnitOrder& order) {
  return in_a_loop(shape, [&](std::int32_t rank) { return list_of(shape, order, rank); });
}

}  // namespace

Schedule one_f_one_b(const PipelineShape& shape) {
  return looped(shape, {.warm_up = [p = shape.ranks](std::int32_t r) { return p - 1 - r; }});
}

Schedule naive(const PipelineShape& shape) {
  return looped(shape, {.warm_up = [](std::int32_t) { return 0; }});
}

Schedule eager_1f1b(const PipelineShape& shape) {
  return looped(shape, {.warm_up = [p = shape.ranks](std::int32_t r) { return 2 * (p - 1 - r) + 1; }});
}

Schedule interleaved(const PipelineShape& shape) {
  return looped(
      shape, {.warm_up = [s = shape](std::int32_t r) { return 2 * (s.ranks - 1 - r) + (s.chunks - 1) * group_of(s); }});
}

// Sun et al. 2024 (arXiv:2406.03488), section 3.2: the last slice of a microbatch goes backward first, so all k slices
// go forward before it; the warm-up has k - 1 more forwards than 1F1B.
Schedule seq1f1b(const PipelineShape& shape) {
  return looped(in_units(shape),
                {.warm_up = [p = shape.ranks, k = shape.slices()](std::int32_t r) { return p - 1 - r + k - 1; }});
}

// Section 3.3, Seq1F1B-I.
Schedule seq1f1b_i(const PipelineShape& shape) {
  return looped(in_units(shape), {.warm_up = [s = in_units(shape)](std::int32_t r) {
                  return 2 * (s.ranks - 1 - r) + (s.chunks - 1) * group_of(s) + s.slices() - 1;
                }});
}

Schedule zb_h1(const PipelineShape& shape) {
  return looped(shape, {.warm_up = [p = shape.ranks](std::int32_t r) { return p - 1 - r; }, .split = true});
}

Schedule interleaved_zb(const PipelineShape& shape) {
  return looped(shape,
                {.warm_up = [s = shape](std::int32_t r) { return s.ranks - 1 - r + (s.chunks - 1) * group_of(s); },
                 .split = true});
}

// All forwards before all backwards, chunk by chunk (Lamy-Poirier 2022); with one chunk GPipe (Huang et al. 2019), with
// slices TeraPipe (Li et al. 2021).
Schedule breadth_first(const PipelineShape& shape) {
  return in_a_loop(in_units(shape), [&](std::int32_t rank) {
    RankList list(shape.ranks * shape.chunks, shape.microbatches * shape.slices(), shape.slices());
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      while (list.forward(chunk * shape.ranks + rank)) {
      }
    }
    for (std::int32_t chunk = shape.chunks - 1; chunk >= 0; --chunk) {
      while (list.backward(chunk * shape.ranks + rank)) {
      }
    }
    return list.take();
  });
}

// BPipe (Kim et al. 2023, "BPipe: Memory-Balanced Pipeline Parallelism for Training Large Language Models", ICML, PMLR
// 202:16639-16653), section 3. In 1F1B rank r holds the activations of p - r microbatches, so early ranks are full
// while late ones have room. Ranks r and p - 1 - r hold p + 1 together: the early one evicts its excess to the late one
// and fetches it before the backward, so that no rank holds more than ceil((p + 2) / 2).
//
// The paper gives the bound but not which microbatch to evict. Here it is the one whose backward is farthest away
// (Belady 1966): each eviction then lasts longest, and the fewest are needed. An eviction overlaps the computation that
// follows it. A fetch overlaps the forward before its backward or, where no forwards are left, the gap before it. Both
// count against the bound meanwhile.
namespace {

// Walks a rank's computations and inserts evictions and fetches before them.
class Evictor {
 public:
  Evictor(const std::vector<Action>& computations, std::int32_t most) : list_(computations), most_(most) {}

  std::vector<Action> run() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      fetch(i);
      if (is_forward(i)) fetch(i + 1);
      make_room_after(i);
      out_.push_back(list_[i]);
      if (list_[i].op == Op::forward) here_.insert(list_[i].microbatch);
      if (list_[i].op == Op::backward) here_.erase(list_[i].microbatch);
    }
    return std::move(out_);
  }

 private:
  bool is_away_backward(std::size_t i) const {
    return i < list_.size() && list_[i].op == Op::backward && away_.contains(list_[i].microbatch);
  }

  bool is_forward(std::size_t i) const { return i < list_.size() && list_[i].op == Op::forward; }

  void fetch(std::size_t backward) {
    if (!is_away_backward(backward)) return;
    const Action& wants = list_[backward];
    out_.push_back({Op::fetch, wants.stage, wants.microbatch});
    away_.erase(wants.microbatch);
    here_.insert(wants.microbatch);
  }

  // Everything held while the next computation runs must fit; evictions that overlap this one make room.
  void make_room_after(std::size_t i) {
    const auto held = static_cast<std::int32_t>(here_.size());
    std::int32_t over = held + (is_forward(i) ? 1 : -1) - most_;
    if (is_forward(i + 1)) over += 1 + (is_away_backward(i + 2) ? 1 : 0);
    for (auto newest = here_.rbegin(); over > 0 && newest != here_.rend();) {
      const std::int32_t microbatch = *newest++;
      if (is_soon(microbatch, i)) continue;
      out_.push_back({Op::evict, list_[i].stage, microbatch});
      away_.insert(microbatch);
      here_.erase(microbatch);
      newest = here_.rbegin();
      --over;
    }
  }

  // True if its backward is this computation or one of the next two.
  bool is_soon(std::int32_t microbatch, std::size_t i) const {
    const auto begin = list_.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = list_.begin() + static_cast<std::ptrdiff_t>(std::min(i + 3, list_.size()));
    return std::any_of(
        begin, end, [&](const Action& action) { return action.op == Op::backward && action.microbatch == microbatch; });
  }

  const std::vector<Action>& list_;
  std::int32_t most_;
  std::set<std::int32_t> here_;  // microbatches whose activations are on this rank, the latest backward last
  std::set<std::int32_t> away_;
  std::vector<Action> out_;
};

}  // namespace

Schedule bpipe(const PipelineShape& shape) {
  Schedule schedule = one_f_one_b(shape);
  const std::int32_t most = (shape.ranks + 3) / 2;  // ceil((p + 2) / 2)
  for (std::int32_t rank = 0; shape.ranks - rank > most; ++rank) {
    auto& list = schedule.of_rank[static_cast<std::size_t>(rank)];
    list = Evictor(list, most).run();
  }
  return schedule;
}

}  // namespace lockstep::schedules
