// BPipe (Kim et al. 2023, "BPipe: Memory-Balanced Pipeline Parallelism for Training Large Language Models", ICML, PMLR
// 202:16639-16653), section 3. In 1F1B rank r holds the activations of p - r microbatches, so early ranks are full
// while late ones have room. Ranks r and p - 1 - r hold p + 1 together: the early one evicts its excess to the late one
// and fetches it before the backward, so that no rank holds more than ceil((p + 2) / 2).
//
// The paper gives the bound but not which microbatch to evict. Here it is the one whose backward is farthest away
// (Belady 1966): each eviction then lasts longest, and the fewest are needed. An eviction overlaps the computation that
// follows it. A fetch overlaps the forward before its backward or, where no forwards are left, the gap before it. Both
// count against the bound meanwhile.
#include <algorithm>
#include <set>

#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

Schedule one_f_one_b(const PipelineShape& shape);

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
  Schedule made = one_f_one_b(shape);
  made.name = "bpipe";
  const std::int32_t most = (shape.ranks + 3) / 2;  // ceil((p + 2) / 2)
  for (std::int32_t rank = 0; shape.ranks - rank > most; ++rank) {
    auto& list = made.of_rank[static_cast<std::size_t>(rank)];
    list = Evictor(list, most).run();
  }
  return made;
}

}  // namespace lockstep::schedules
