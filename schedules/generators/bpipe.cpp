// BPipe (Kim et al. 2023, "BPipe: Memory-Balanced Pipeline Parallelism for Training Large Language Models", ICML, PMLR
// 202:16639-16653), section 3: 1F1B, whose rank r holds the activations of p - r microbatches, so that early ranks are
// full while late ones are empty. Rank r and rank p - 1 - r hold p + 1 together: the early one evicts what it holds too
// much to the late one, and fetches it before its backward, so that none holds more than ceil((p + 2) / 2).
//
// The paper says that bound and leaves open which microbatch goes. Here it is the one whose backward is farthest
// (Belady 1966): each eviction then lasts longest, and fewest are needed. An eviction runs beside the computation that
// follows it. A fetch runs beside the forward before its backward or, where forwards are done, in the gap before it.
// Both take a place of the bound meanwhile.
#include <algorithm>
#include <set>

#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

Schedule one_f_one_b(const PipelineShape& shape);

namespace {

// Goes through a rank's computations and puts moves in front of them.
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

  // What stands here while the next computation runs has to fit: what is evicted beside this one makes room.
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

  // Its backward is this computation or one of the next two.
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
