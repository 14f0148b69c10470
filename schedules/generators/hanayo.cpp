// Hanayo, Liu et al. 2023 (arXiv:2308.15762): chunks folded into waves, 2w stages per rank, and each rank takes a
// backward whenever one is ready. The paper publishes no action lists, so these result from playing that rule with a
// forward of 1 and a backward of 2 time units and at most 2p microbatches in flight.
#include <algorithm>
#include <limits>
#include <optional>

#include "schedules/schedule.h"

namespace lockstep::schedules {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::infinity();

class Waves {
 public:
  explicit Waves(const PipelineShape& shape)
      : m_(shape.microbatches),
        under_way_(2 * shape.ranks),
        stages_(shape.ranks * shape.chunks),
        forward_ends_(cells(), kNotYet),
        backward_ends_(cells(), kNotYet),
        clocks_(static_cast<std::size_t>(shape.ranks)) {
    made_.num_microbatches = m_;
    made_.stages_per_pipe = stages_;
    made_.rank_of_stage = folded_placement(shape.ranks, shape.chunks);
    made_.of_rank.resize(static_cast<std::size_t>(shape.ranks));
    next_.resize(static_cast<std::size_t>(stages_));
  }

  Schedule run() {
    while (const std::optional<Turn> turn = next_turn()) take(*turn);
    return std::move(made_);
  }

 private:
  struct Turn {
    Action action;
    double start = 0;
  };
  struct NextMicrobatch {
    std::int32_t forward = 0;
    std::int32_t backward = 0;
  };

  std::size_t cells() const { return static_cast<std::size_t>(stages_) * static_cast<std::size_t>(m_); }
  std::size_t cell(std::int32_t stage, std::int32_t j) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(m_) + static_cast<std::size_t>(j);
  }
  std::size_t rank_of(std::int32_t stage) const {
    return static_cast<std::size_t>(made_.rank_of_stage[static_cast<std::size_t>(stage)]);
  }

  double forward_start(std::int32_t stage) const {
    const std::int32_t j = next_[static_cast<std::size_t>(stage)].forward;
    if (j == m_) return kNotYet;
    const double clock = clocks_[rank_of(stage)];
    if (stage > 0) return std::max(clock, forward_ends_[cell(stage - 1, j)]);
    return j < under_way_ ? clock : std::max(clock, backward_ends_[cell(0, j - under_way_)]);
  }
  double backward_start(std::int32_t stage) const {
    const std::int32_t j = next_[static_cast<std::size_t>(stage)].backward;
    if (j == m_) return kNotYet;
    const double own = std::max(clocks_[rank_of(stage)], forward_ends_[cell(stage, j)]);
    return stage + 1 == stages_ ? own : std::max(own, backward_ends_[cell(stage + 1, j)]);
  }

  // The earliest work that any rank can do; ties go to backwards, then to the forward of the furthest stage.
  std::optional<Turn> next_turn() const {
    std::optional<Turn> best;
    const auto consider = [&](Op op, std::int32_t stage, std::int32_t j, double start) {
      if (start != kNotYet && (!best || start < best->start)) best = Turn{{op, stage, j}, start};
    };
    for (std::int32_t s = 0; s < stages_; ++s) {
      consider(Op::backward, s, next_[static_cast<std::size_t>(s)].backward, backward_start(s));
    }
    for (std::int32_t s = stages_ - 1; s >= 0; --s) {
      consider(Op::forward, s, next_[static_cast<std::size_t>(s)].forward, forward_start(s));
    }
    return best;
  }

  void take(const Turn& turn) {
    const Op op = turn.action.op;
    const std::int32_t stage = turn.action.stage;
    const std::int32_t j = turn.action.microbatch;
    NextMicrobatch& next = next_[static_cast<std::size_t>(stage)];
    const double end = turn.start + (op == Op::forward ? 1 : 2);
    clocks_[rank_of(stage)] = end;
    if (op == Op::forward) {
      forward_ends_[cell(stage, j)] = end;
      ++next.forward;
    } else {
      backward_ends_[cell(stage, j)] = end;
      ++next.backward;
    }
    made_.of_rank[rank_of(stage)].push_back(turn.action);
  }

  std::int32_t m_;
  std::int32_t under_way_;
  std::int32_t stages_;
  std::vector<double> forward_ends_;
  std::vector<double> backward_ends_;
  std::vector<double> clocks_;
  std::vector<NextMicrobatch> next_;
  Schedule made_;
};

}  // namespace

Schedule hanayo(const PipelineShape& shape) {
  return Waves(shape).run();
}

}  // namespace lockstep::schedules
