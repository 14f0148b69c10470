#include "schedules/passes/passes.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "schedules/schedule.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

struct Bubble {
  std::int64_t start_ps = 0;
  std::int64_t end_ps = 0;
  std::uint32_t kernel = kNoTask;      // last kernel before the bubble; kNoTask at the beginning of the step
  std::uint32_t collective = kNoTask;  // collective in the same gap that has to end first
};

std::int64_t end_of_step(const StepTimeline& timeline) {
  std::int64_t end = 0;
  for (const auto& rank : timeline) {
    for (const TaskSpan& span : rank) end = std::max(end, span.end_ps);
  }
  return end;
}

// Times in which the compute lane is idle and no collective of the rank runs, in order.
class RankBubbles {
 public:
  RankBubbles(const RankStep& rank, const std::vector<TaskSpan>& spans) : rank_(rank), spans_(spans) {
    for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
      if (rank.tasks[i].comm != Comm::none && spans[i].end_ps > spans[i].start_ps) collectives_.push_back(i);
    }
    std::stable_sort(collectives_.begin(), collectives_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return spans[a].start_ps < spans[b].start_ps; });
  }

  std::vector<Bubble> until(std::int64_t end_ps) {
    std::int64_t cursor = 0;
    std::uint32_t kernel = kNoTask;
    for (std::uint32_t i = 0; i < rank_.tasks.size(); ++i) {
      if (rank_.tasks[i].lane != Lane::compute) continue;
      add({cursor, spans_[i].start_ps, kernel, kNoTask}, i);
      cursor = std::max(cursor, spans_[i].end_ps);
      kernel = i;
    }
    add({cursor, end_ps, kernel, kNoTask}, static_cast<std::uint32_t>(rank_.tasks.size()));
    return std::move(bubbles_);
  }

 private:
  // Adds what collectives leave of the gap before kernel `next`. An item waits only for tasks issued before that
  // kernel.
  void add(Bubble gap, std::uint32_t next) {
    for (const std::uint32_t c : collectives_) {
      const TaskSpan& span = spans_[c];
      if (span.end_ps <= gap.start_ps || span.start_ps >= gap.end_ps) continue;
      if (span.start_ps > gap.start_ps) {
        bubbles_.push_back({gap.start_ps, span.start_ps, gap.kernel, gap.collective});
      }
      gap.start_ps = c < next ? span.end_ps : gap.end_ps;
      gap.collective = c;
    }
    if (gap.end_ps > gap.start_ps) bubbles_.push_back(gap);
  }

  const RankStep& rank_;
  const std::vector<TaskSpan>& spans_;
  std::vector<std::uint32_t> collectives_;  // sorted by start
  std::vector<Bubble> bubbles_;
};

struct PlacedWork {
  std::uint32_t item = 0;
  Bubble in;
};

// Places one rank's items into its bubbles, step by step, most urgent first.
class Filling {
 public:
  Filling(std::vector<Bubble> bubbles, const std::vector<FillerItem>& items)
      : bubbles_(std::move(bubbles)), items_(items), placed_(items.size(), false), left_(items.size()) {}

  bool done() const { return left_ == 0; }
  std::int64_t longest_bubble_ps() const {
    std::int64_t longest = 0;
    for (const Bubble& bubble : bubbles_) longest = std::max(longest, bubble.end_ps - bubble.start_ps);
    return longest;
  }

  std::vector<PlacedWork> next_step() {
    std::vector<PlacedWork> placed;
    for (const Bubble& bubble : bubbles_) {
      std::int64_t cursor = bubble.start_ps;
      for (std::uint32_t i = 0; i < items_.size() && left_ > 0; ++i) {
        if (placed_[i] || cursor + items_[i].task.amount > bubble.end_ps || !is_ready(items_[i], bubble)) continue;
        cursor += items_[i].task.amount;
        placed_[i] = true;
        --left_;
        placed.push_back({i, bubble});
      }
    }
    first_ = false;
    return placed;
  }

 private:
  bool is_ready(const FillerItem& item, const Bubble& bubble) const {
    const bool has_run = bubble.kernel != kNoTask && item.after_kernel <= bubble.kernel;
    if (first_ && item.after_kernel != FillerItem::kNoKernel && !has_run) return false;
    return std::all_of(item.after_items.begin(), item.after_items.end(),
                       [&](std::uint32_t earlier) { return placed_[earlier]; });
  }

  std::vector<Bubble> bubbles_;
  const std::vector<FillerItem>& items_;
  std::vector<bool> placed_;
  std::size_t left_ = 0;
  bool first_ = true;  // in the first of the steps
};

// Items are issued after the task before their bubble and the sends that follow it, and before the next receive, on
// which a host may block.
RankStep with_items(const RankStep& old, const std::vector<PlacedWork>& placed, const std::vector<FillerItem>& items) {
  RankRewriter out(old);
  std::size_t next = 0;
  const auto put_due = [&](std::uint32_t before) {
    for (; next < placed.size(); ++next) {
      const Bubble& in = placed[next].in;
      const auto is_ahead = [&](std::uint32_t task) { return task != kNoTask && task >= before; };
      if (is_ahead(in.kernel) || is_ahead(in.collective)) return;
      std::uint32_t after = in.collective;
      if (after != kNoTask) after = out.new_of(after);
      out.put(items[placed[next].item].task, std::span(&after, after == kNoTask ? 0 : 1));
    }
  };
  for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
    if (old.tasks[i].lane == Lane::compute || is_recv(old.tasks[i].op)) put_due(i);
    out.keep(i);
  }
  put_due(static_cast<std::uint32_t>(old.tasks.size()));
  return out.take();
}

std::string ms_text(std::int64_t ps) {
  std::string text = std::to_string(static_cast<double>(ps) / 1e9);
  return text + " ms";
}

void check_fits(std::size_t rank, const std::vector<FillerItem>& items, std::int64_t longest_ps) {
  const auto longest = std::max_element(items.begin(), items.end(), [](const FillerItem& a, const FillerItem& b) {
    return a.task.amount < b.task.amount;
  });
  if (longest == items.end() || longest->task.amount <= longest_ps) return;
  throw core::usage_error("rank " + std::to_string(rank) + ": " + std::string(name_of(longest->task.op)) + " takes " +
                          ms_text(longest->task.amount) + ", and the longest bubble is " + ms_text(longest_ps) +
                          "; allowed: shorter kernels (more of them), or a schedule with longer bubbles");
}

}  // namespace

std::vector<Step> fill_bubbles(const Step& step, const StepTimeline& timeline,
                               std::span<const std::vector<FillerItem>> items) {
  LOCKSTEP_CHECK(items.size() == step.of_rank.size(), "items of each rank");
  const std::int64_t end_ps = end_of_step(timeline);
  std::vector<Filling> fillings;
  for (std::size_t r = 0; r < items.size(); ++r) {
    fillings.emplace_back(RankBubbles(step.of_rank[r], timeline[r]).until(end_ps), items[r]);
    check_fits(r, items[r], fillings.back().longest_bubble_ps());
  }
  std::vector<Step> steps;
  const auto all_done = [&] {
    return std::all_of(fillings.begin(), fillings.end(), [](const Filling& filling) { return filling.done(); });
  };
  while (!all_done()) {
    Step& filled = steps.emplace_back(step);
    for (std::size_t r = 0; r < items.size(); ++r) {
      filled.of_rank[r] = with_items(step.of_rank[r], fillings[r].next_step(), items[r]);
    }
  }
  return steps;
}

std::vector<std::int64_t> bubble_ps_of_ranks(const Step& step, const StepTimeline& timeline) {
  const std::int64_t end_ps = end_of_step(timeline);
  std::vector<std::int64_t> idle;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::int64_t& ps = idle.emplace_back(0);
    for (const Bubble& bubble : RankBubbles(step.of_rank[r], timeline[r]).until(end_ps)) {
      ps += bubble.end_ps - bubble.start_ps;
    }
  }
  return idle;
}

namespace {

class SecondOrderItems {
 public:
  SecondOrderItems(const RankStep& rank, std::span<const std::vector<SecondOrderMatrix>> matrices, std::int32_t slices)
      : matrices_(matrices), slices_(slices) {
    for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
      const Task& task = rank.tasks[i];
      if (task.lane != Lane::compute || task.microbatch < 0) continue;
      const std::pair key{task.stage, task.microbatch};
      if (task.op == Op::forward) forwards_[key] = i;
      if (task.op == Op::backward || task.op == Op::input_gradient) backwards_[key] = i;
    }
  }

  std::vector<FillerItem> take() {
    add_curvature(forwards_, 0, &SecondOrderMatrix::input_curvature_ps);
    add_curvature(backwards_, 1, &SecondOrderMatrix::output_curvature_ps);
    for (const auto& [factor, curvature] : curvature_of_) {
      const auto [side, stage, place] = factor;
      const SecondOrderMatrix& matrix = matrices_[static_cast<std::size_t>(stage)][place];
      const std::int64_t ps = side == 0 ? matrix.input_inversion_ps : matrix.output_inversion_ps;
      if (ps > 0) items_.push_back({.task = task_of(Op::inversion, factor, ps), .after_items = curvature});
    }
    return std::move(items_);
  }

 private:
  using Kernels = std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t>;  // by (stage, microbatch)
  using Factor = std::tuple<std::uint32_t, std::int32_t, std::uint32_t>;           // 0 input or 1 output, stage, matrix

  Task task_of(Op op, const Factor& factor, std::int64_t ps) const {
    const auto [side, stage, place] = factor;
    return {.op = op,
            .what = 2 * place + side,
            .stage = stage,
            .part = matrices_[static_cast<std::size_t>(stage)][place].part,
            .amount = ps};
  }

  void add_curvature(const Kernels& kernels, std::uint32_t side, std::int64_t SecondOrderMatrix::*ps) {
    for (const auto& [key, kernel] : kernels) {
      const std::vector<SecondOrderMatrix>& of_stage = matrices_[static_cast<std::size_t>(key.first)];
      for (std::uint32_t place = 0; place < of_stage.size(); ++place) {
        const Factor factor{side, key.first, place};
        auto& of_factor = curvature_of_[factor];
        if (of_stage[place].*ps == 0) continue;
        of_factor.push_back(static_cast<std::uint32_t>(items_.size()));
        Task task = task_of(Op::curvature, factor, of_stage[place].*ps / slices_);
        task.microbatch = key.second;
        items_.push_back({.task = task, .after_kernel = kernel});
      }
    }
  }

  std::span<const std::vector<SecondOrderMatrix>> matrices_;
  std::int32_t slices_;
  Kernels forwards_;  // last kernel of each
  Kernels backwards_;
  std::vector<FillerItem> items_;
  std::map<Factor, std::vector<std::uint32_t>> curvature_of_;
};

}  // namespace

std::vector<std::vector<FillerItem>> second_order_items(const Step& step,
                                                        std::span<const std::vector<SecondOrderMatrix>> matrices) {
  LOCKSTEP_CHECK(matrices.size() == step.rank_of_stage.size(), "matrices of each stage");
  std::vector<std::vector<FillerItem>> items;
  for (const RankStep& rank : step.of_rank) items.push_back(SecondOrderItems(rank, matrices, step.slices).take());
  return items;
}

}  // namespace lockstep::schedules
