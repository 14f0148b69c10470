#include "simulator/predict/search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "core/error.h"
#include "workload/memory.h"

namespace lockstep::simulator {
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
class Best {
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
    const auto winner = std::find_if(of_way_.begin(), of_way_.end(), [&](const auto& one) {
      return one.second.prediction.step_s <= (1 + kSameTime) * first;
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
  using Key = std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t, std::vector<std::int64_t>>;
  std::map<Key, schedules::Schedule> known;
  least_memory_bytes_ = std::numeric_limits<double>::infinity();
  for (const workload::Layout& layout : legal_layouts(model, fast, space)) {
    if (is_dominated(layout)) continue;
    ++legal_;
    const Key key{layout.schedule, layout.pp, layout.microbatches, layout.chunks, shape_of(layout).slice_tokens};
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
  Best best;
  Fastest made;
  for (Candidate& one : candidates_) {
    if (one.bound_s > best.limit_s()) break;
    if (one.bound_s >= best.step_s(one.way)) continue;
    Prediction prediction = predict(model_, one.layout, machine, {.detail = Detail::folded});
    one.bound_s = std::max(one.bound_s, prediction.step_s);
    best.take(one.way, {one.layout, one.bound_s, std::move(prediction)});
    ++made.simulated;
  }
  made.best = best.winner_and_next();
  return made;
}

}  // namespace lockstep::simulator
