#include "simulator/predict/search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "simulator/predict/predict.h"
#include "simulator/prices/prices.h"
#include "workload/memory.h"

namespace lockstep::simulator {
namespace {

using schedules::Action;
using schedules::Op;
using schedules::Schedule;

struct StageTimes {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t input_gradient = 0;
  std::int64_t weight_gradient = 0;
  std::int64_t of(Op op) const {
    switch (op) {
      case Op::forward:
        return forward;
      case Op::backward:
        return backward;
      case Op::input_gradient:
        return input_gradient;
      default:
        return weight_gradient;
    }
  }
};

// Sums of the pieces' times.
StageTimes times_of(const schedules::StageRecipe& recipe, std::int64_t schedules::Piece::*time) {
  const auto sum = [&](const std::vector<schedules::Piece>& pieces) {
    std::int64_t of_all = 0;
    for (const schedules::Piece& piece : pieces) of_all += piece.*time;
    return of_all;
  };
  return {sum(recipe.forward), sum(recipe.backward), sum(recipe.input_gradient), sum(recipe.weight_gradient)};
}

class StepTimeBound {
 public:
  StepTimeBound(const Schedule& schedule, const std::vector<workload::StageWork>& works) : slices_(schedule.slices()) {
    for (const workload::StageWork& work : works) {
      times_.push_back(times_of(work.recipe, &schedules::Piece::amount));
      issues_.push_back(times_of(work.recipe, &schedules::Piece::issue_ps));
    }
    const auto slices = static_cast<std::size_t>(slices_);
    for (std::size_t i = 0; i < times_.size(); ++i) {
      const bool first = schedule.is_first(static_cast<std::int32_t>(i / slices));
      before_.push_back(first ? 0 : before_[i - slices] + times_[i - slices].forward);
      // A full backward counts only with the part that every kind of backward contains.
      const std::int64_t least = first ? 0 : std::min(times_[i - slices].backward, times_[i - slices].input_gradient);
      after_.push_back(first ? 0 : after_[i - slices] + least);
    }
  }

  std::int64_t of_rank(const std::vector<Action>& list) const {
    if (list.empty()) return 0;
    std::int64_t now = before_[index_of(list.front())];
    std::int64_t bound = 0;
    std::int64_t issue = 0;  // host time, over all actions
    for (const Action& action : list) {
      if (!is_compute(action.op)) continue;
      const std::size_t i = index_of(action);
      now += times_[i].of(action.op);
      issue += issues_[i].of(action.op);
      if (action.op == Op::backward || action.op == Op::input_gradient) bound = std::max(bound, now + after_[i]);
    }
    return std::max({bound, now, issue});
  }

 private:
  std::size_t index_of(const Action& action) const {
    return schedules::work_index(action.stage, action.microbatch, slices_);
  }

  std::int32_t slices_;
  std::vector<StageTimes> times_;     // per stage and slice
  std::vector<StageTimes> issues_;    // host times, per stage and slice
  std::vector<std::int64_t> before_;  // forwards of earlier stages
  std::vector<std::int64_t> after_;   // backwards of earlier stages
};

}  // namespace

double step_bound_s(const Schedule& schedule, const std::vector<workload::StageWork>& works) {
  const StepTimeBound bound(schedule, works);
  std::int64_t longest = 0;
  for (const auto& list : schedule.of_rank) longest = std::max(longest, bound.of_rank(list));
  std::vector<std::int64_t> optimizer(schedule.of_rank.size());
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const auto rank = static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
    optimizer[rank] += works[schedules::work_index(stage, 0, schedule.slices())].optimizer_ps;
  }
  longest += *std::max_element(optimizer.begin(), optimizer.end());
  return static_cast<double>(longest) / 1e12;
}

// ---- the legal layouts

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

// ---- the search

namespace {

// Cache of schedules, which many layouts share.
using ShapeKey = std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t, std::vector<std::int64_t>>;
ShapeKey key_of(const workload::Layout& layout) {
  const schedules::PipelineShape shape = shape_of(layout);
  return {layout.schedule, shape.ranks, shape.microbatches, shape.chunks, shape.slice_tokens};
}

void sort_by_time(std::vector<FoundLayout>& layouts) {
  std::stable_sort(layouts.begin(), layouts.end(), [](const FoundLayout& a, const FoundLayout& b) {
    return a.prediction.step_s < b.prediction.step_s;
  });
}

struct SizedLayout {
  std::size_t index = 0;  // index of the layout
  double memory_bytes = 0;
  double bound_s = 0;
};

class Search {
 public:
  Search(const workload::Model& model, const Machine& machine, std::vector<workload::Layout> layouts, std::size_t top,
         int threads)
      : model_(model), machine_(machine), layouts_(std::move(layouts)), top_(top), threads_(threads) {}

  // `decided`: SearchSpace::decided. Weighing a layout and simulating it are half of the work each.
  SearchResult run(const std::function<void(std::size_t done, std::size_t all)>& decided) {
    result_.legal = static_cast<std::int64_t>(layouts_.size());
    std::vector<SizedLayout> fitting = weighed([&](std::size_t done) { decided(done / 2, layouts_.size()); });
    std::sort(fitting.begin(), fitting.end(), [](const SizedLayout& a, const SizedLayout& b) {
      return std::tie(a.bound_s, a.index) < std::tie(b.bound_s, b.index);
    });
    // A fixed batch size, so that the number of threads does not change what is simulated.
    constexpr std::size_t kAtOnce = 16;
    std::size_t next = 0;
    while (next < fitting.size() && fitting[next].bound_s <= worst_of_best()) {
      const std::size_t end = std::min(next + kAtOnce, fitting.size());
      simulate_all(
          {fitting.begin() + static_cast<std::ptrdiff_t>(next), fitting.begin() + static_cast<std::ptrdiff_t>(end)});
      next = end;
      decided(layouts_.size() / 2 + next * layouts_.size() / fitting.size() / 2, layouts_.size());
    }
    result_.simulated = static_cast<std::int64_t>(next);
    result_.beaten = static_cast<std::int64_t>(fitting.size() - next);
    return std::move(result_);
  }

 private:
  // Memory and bound of all layouts that fit. Layouts of one schedule are processed together.
  template <class Done>
  std::vector<SizedLayout> weighed(const Done& done) {
    std::map<ShapeKey, std::vector<std::size_t>> by_shape;
    for (std::size_t i = 0; i < layouts_.size(); ++i) by_shape[key_of(layouts_[i])].push_back(i);
    std::vector<const std::vector<std::size_t>*> groups;
    for (const auto& entry : by_shape) groups.push_back(&entry.second);
    std::vector<SizedLayout> all(layouts_.size());
    std::atomic<std::size_t> so_far{0};
    for_all(groups.size(), threads_, [&](std::size_t g) {
      const workload::Layout& first = layouts_[groups[g]->front()];
      const schedules::Schedule schedule = schedules::make_schedule(first.schedule, shape_of(first));
      for (const std::size_t i : *groups[g]) all[i] = weigh(i, schedule);
      done(so_far += groups[g]->size());
    });
    const auto capacity = static_cast<double>(machine_.device.memory_bytes);
    std::vector<SizedLayout> fitting;
    result_.least_memory_bytes = all.empty() ? 0 : all.front().memory_bytes;
    for (const SizedLayout& candidate : all) {
      result_.least_memory_bytes = std::min(result_.least_memory_bytes, candidate.memory_bytes);
      if (candidate.memory_bytes <= capacity) fitting.push_back(candidate);
    }
    result_.too_large = static_cast<std::int64_t>(all.size() - fitting.size());
    return fitting;
  }

  SizedLayout weigh(std::size_t index, const schedules::Schedule& schedule) const {
    const workload::Layout& layout = layouts_[index];
    SizedLayout candidate{.index = index,
                          .memory_bytes = needed_bytes(layout, machine_, memory_of(model_, layout, schedule))};
    if (candidate.memory_bytes > static_cast<double>(machine_.device.memory_bytes)) return candidate;
    workload::Pricing pricing = pricing_of(model_, layout, schedule, machine_, Detail::folded);
    pricing.kernel = [this](const workload::KernelCall& call) { return least_kernel_ps(machine_, call); };
    candidate.bound_s = step_bound_s(schedule, works_of(model_, layout, schedule, pricing));
    return candidate;
  }

  void simulate_all(const std::vector<SizedLayout>& candidates) {
    std::vector<FoundLayout> found(candidates.size());
    for_all(candidates.size(), threads_, [&](std::size_t i) {
      const workload::Layout& layout = layouts_[candidates[i].index];
      found[i] = {layout, candidates[i].bound_s, predict(model_, layout, machine_, {.detail = Detail::folded})};
    });
    for (FoundLayout& layout : found) result_.best.push_back(std::move(layout));
    sort_by_time(result_.best);
    if (result_.best.size() > top_) result_.best.resize(top_);
  }

  double worst_of_best() const {
    return result_.best.size() < top_ ? std::numeric_limits<double>::infinity() : result_.best.back().prediction.step_s;
  }

  const workload::Model& model_;
  const Machine& machine_;
  std::vector<workload::Layout> layouts_;
  std::size_t top_;
  int threads_;
  SearchResult result_;
};

}  // namespace

void predict_in_pieces(const workload::Model& model, const Machine& machine, std::vector<FoundLayout>& best,
                       int threads) {
  for_all(best.size(), threads, [&](std::size_t i) { best[i].prediction = predict(model, best[i].layout, machine); });
  sort_by_time(best);
}

SearchResult search_layouts(const workload::Model& model, const Machine& machine, const SearchSpace& space,
                            std::size_t top, int threads) {
  return Search(model, machine, legal_layouts(model, machine, space), top, threads).run(space.decided);
}

// ---- the kinds of parallelism

namespace {

std::size_t index_of(std::string_view way) {
  const auto& all = ways();
  const auto found = std::find(all.begin(), all.end(), way);
  LOCKSTEP_CHECK(found != all.end(), "a way to divide a step");
  return static_cast<std::size_t>(found - all.begin());
}

// With tensor parallelism, sequence parallelism saves memory at no cost (arXiv:2205.05198, section 4.2.2).
bool is_dominated(const workload::Layout& layout) {
  return layout.tp > 1 && !layout.sequence_parallel;
}

// The best layout of each way so far.
class BestLayouts {
 public:
  void take(std::string_view way, FoundLayout found) {
    const auto at = of_way_.find(index_of(way));
    if (at == of_way_.end()) {
      of_way_.emplace(index_of(way), std::move(found));
    } else if (found.prediction.step_s < at->second.prediction.step_s) {
      at->second = std::move(found);
    }
  }
  double step_s(std::string_view way) const {
    const auto at = of_way_.find(index_of(way));
    return at == of_way_.end() ? std::numeric_limits<double>::infinity() : at->second.prediction.step_s;
  }
  // A layout whose bound is above this cannot be the winner or the runner-up.
  double limit_s() const {
    double first = std::numeric_limits<double>::infinity();
    double second = first;
    for (const auto& [way, found] : of_way_) {
      const double step_s = found.prediction.step_s;
      second = std::min(second, std::max(first, step_s));
      first = std::min(first, step_s);
    }
    return std::max(second, (1 + kSameTime) * first);
  }
  // The simplest way within kSameTime of the fastest, and the fastest of the others.
  std::vector<FoundLayout> winner_and_next() const {
    double first = std::numeric_limits<double>::infinity();
    for (const auto& [way, found] : of_way_) first = std::min(first, found.prediction.step_s);
    const auto winner = std::find_if(of_way_.begin(), of_way_.end(), [&](const auto& way_and_layout) {
      return way_and_layout.second.prediction.step_s <= (1 + kSameTime) * first;
    });
    if (winner == of_way_.end()) return {};
    std::vector<FoundLayout> chosen{winner->second};
    const FoundLayout* next = nullptr;
    for (const auto& [way, found] : of_way_) {
      if (way == winner->first) continue;
      if (next == nullptr || found.prediction.step_s < next->prediction.step_s) next = &found;
    }
    if (next != nullptr) chosen.push_back(*next);
    return chosen;
  }

 private:
  std::map<std::size_t, FoundLayout> of_way_;  // by way, the simplest first
};

}  // namespace

const std::vector<std::string_view>& ways() {
  static const std::vector<std::string_view> kWays{"one device", "DP",        "ZeRO-1",    "ZeRO-2",      "ZeRO-3",
                                                   "TP",         "PP",        "TP+PP",     "TP+DP",       "PP+DP",
                                                   "TP+PP+DP",   "TP+ZeRO-3", "PP+ZeRO-3", "TP+PP+ZeRO-3"};
  return kWays;
}

std::string_view way_of(const workload::Layout& layout) {
  std::string name;
  const auto add = [&](const std::string& part) { name += (name.empty() ? "" : "+") + part; };
  if (layout.tp > 1) add("TP");
  if (layout.pp > 1) add("PP");
  const bool alone = name.empty();
  if (layout.dp * layout.cp > 1) {
    const bool sharded = layout.zero == 3 || (alone && layout.zero > 0);
    add(sharded ? "ZeRO-" + std::to_string(layout.zero) : "DP");
  }
  return ways()[index_of(name.empty() ? "one device" : name)];
}

WaySearch::WaySearch(const workload::Model& model, const Machine& fast, const SearchSpace& space)
    : model_(model), least_of_way_(ways().size(), 0) {
  std::map<ShapeKey, schedules::Schedule> known;
  least_memory_bytes_ = std::numeric_limits<double>::infinity();
  for (const workload::Layout& layout : legal_layouts(model, fast, space)) {
    if (is_dominated(layout)) continue;
    ++legal_;
    const ShapeKey key = key_of(layout);
    auto at = known.find(key);
    if (at == known.end()) at = known.emplace(key, schedule_of(layout)).first;
    const schedules::Schedule& schedule = at->second;
    const std::vector<workload::MemoryBytes> memory = memory_of(model, layout, schedule);
    const double bytes = memory[worst_of(memory)].total();
    const std::string_view way = way_of(layout);
    double& least = least_of_way_[index_of(way)];
    least = least == 0 ? bytes : std::min(least, bytes);
    least_memory_bytes_ = std::min(least_memory_bytes_, bytes);
    if (bytes > static_cast<double>(fast.device.memory_bytes)) continue;
    const auto works = works_of(model, layout, schedule, pricing_of(model, layout, schedule, fast, Detail::folded));
    candidates_.push_back({layout, way, step_bound_s(schedule, works)});
  }
}

double WaySearch::least_memory_bytes(std::string_view way) const {
  return least_of_way_[index_of(way)];
}

Fastest WaySearch::fastest_on(const Machine& machine) {
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bound_s < b.bound_s; });
  BestLayouts best;
  Fastest fastest;
  for (Candidate& candidate : candidates_) {
    if (candidate.bound_s > best.limit_s()) break;
    if (candidate.bound_s >= best.step_s(candidate.way)) continue;
    Prediction prediction = predict(model_, candidate.layout, machine, {.detail = Detail::folded});
    candidate.bound_s = std::max(candidate.bound_s, prediction.step_s);
    best.take(candidate.way, {candidate.layout, candidate.bound_s, std::move(prediction)});
    ++fastest.simulated;
  }
  fastest.best = best.winner_and_next();
  return fastest;
}

}  // namespace lockstep::simulator
