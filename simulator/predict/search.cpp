#include "simulator/predict/search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "schedules/generators/catalogue.h"
#include "simulator/predict/for_all.h"
#include "simulator/predict/step_bound.h"
#include "simulator/prices/kernel_price.h"
#include "workload/memory.h"

namespace lockstep::simulator {
namespace {

// Cache of schedules, which many layouts share.
using ShapeKey = std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t, std::vector<std::int64_t>>;
ShapeKey key_of(const workload::Layout& layout) {
  const schedules::PipelineShape shape = shape_of(layout);
  return {layout.schedule, shape.ranks, shape.microbatches, shape.chunks, shape.slice_tokens};
}

struct Candidate {
  std::size_t index = 0;  // index of the layout
  double memory_bytes = 0;
  double bound_s = 0;
};

class Search {
 public:
  Search(const workload::Model& model, const Machine& machine, std::vector<workload::Layout> layouts, std::size_t top,
         int threads)
      : model_(model), machine_(machine), layouts_(std::move(layouts)), top_(top), threads_(threads) {}

  SearchResult run() {
    result_.legal = static_cast<std::int64_t>(layouts_.size());
    std::vector<Candidate> fitting = weighed();
    std::sort(fitting.begin(), fitting.end(), [](const Candidate& a, const Candidate& b) {
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
    }
    result_.simulated = static_cast<std::int64_t>(next);
    result_.beaten = static_cast<std::int64_t>(fitting.size() - next);
    return std::move(result_);
  }

 private:
  // Memory and bound of all layouts that fit. Layouts of one schedule are processed together.
  std::vector<Candidate> weighed() {
    std::map<ShapeKey, std::vector<std::size_t>> by_shape;
    for (std::size_t i = 0; i < layouts_.size(); ++i) by_shape[key_of(layouts_[i])].push_back(i);
    std::vector<const std::vector<std::size_t>*> groups;
    for (const auto& entry : by_shape) groups.push_back(&entry.second);
    std::vector<Candidate> all(layouts_.size());
    for_all(groups.size(), threads_, [&](std::size_t g) {
      const workload::Layout& first = layouts_[groups[g]->front()];
      const schedules::Schedule schedule = schedules::make_schedule(first.schedule, shape_of(first));
      for (const std::size_t i : *groups[g]) all[i] = weigh(i, schedule);
    });
    const auto capacity = static_cast<double>(machine_.device.memory_bytes);
    std::vector<Candidate> fitting;
    result_.least_memory_bytes = all.empty() ? 0 : all.front().memory_bytes;
    for (const Candidate& candidate : all) {
      result_.least_memory_bytes = std::min(result_.least_memory_bytes, candidate.memory_bytes);
      if (candidate.memory_bytes <= capacity) fitting.push_back(candidate);
    }
    result_.too_large = static_cast<std::int64_t>(all.size() - fitting.size());
    return fitting;
  }

  Candidate weigh(std::size_t index, const schedules::Schedule& schedule) const {
    const workload::Layout& layout = layouts_[index];
    Candidate made{.index = index, .memory_bytes = needed_bytes(layout, machine_, memory_of(model_, layout, schedule))};
    if (made.memory_bytes > static_cast<double>(machine_.device.memory_bytes)) return made;
    workload::Pricing pricing = pricing_of(model_, layout, schedule, machine_, Detail::folded);
    pricing.kernel = [this](const workload::KernelCall& call) { return least_kernel_ps(machine_, call); };
    made.bound_s = step_bound_s(schedule, works_of(model_, layout, schedule, pricing));
    return made;
  }

  void simulate_all(const std::vector<Candidate>& candidates) {
    std::vector<FoundLayout> found(candidates.size());
    for_all(candidates.size(), threads_, [&](std::size_t i) {
      const workload::Layout& layout = layouts_[candidates[i].index];
      found[i] = {layout, candidates[i].bound_s, predict(model_, layout, machine_, {.detail = Detail::folded})};
    });
    for (FoundLayout& one : found) result_.best.push_back(std::move(one));
    std::stable_sort(result_.best.begin(), result_.best.end(), [](const FoundLayout& a, const FoundLayout& b) {
      return a.prediction.step_s < b.prediction.step_s;
    });
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
  std::stable_sort(best.begin(), best.end(), [](const FoundLayout& a, const FoundLayout& b) {
    return a.prediction.step_s < b.prediction.step_s;
  });
}

SearchResult search_layouts(const workload::Model& model, const Machine& machine, const SearchSpace& space,
                            std::size_t top, int threads) {
  return Search(model, machine, legal_layouts(model, machine, space), top, threads).run();
}

}  // namespace lockstep::simulator
