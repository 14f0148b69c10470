#include "bench/pipeline/exposed.h"

#include <algorithm>

namespace lockstep::pipeline {
namespace {

using schedules::Lane;
using schedules::TaskSpan;

// Rising, and without overlaps.
std::vector<TaskSpan> joined(std::vector<TaskSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.start_ps < b.start_ps; });
  std::vector<TaskSpan> joined;
  for (const TaskSpan& span : spans) {
    if (!joined.empty() && span.start_ps <= joined.back().end_ps) {
      joined.back().end_ps = std::max(joined.back().end_ps, span.end_ps);
    } else {
      joined.push_back(span);
    }
  }
  return joined;
}

std::int64_t length_of(const std::vector<TaskSpan>& spans) {
  std::int64_t length = 0;
  for (const TaskSpan& span : spans) length += span.end_ps - span.start_ps;
  return length;
}

// Two joined lists.
std::int64_t overlap_of(const std::vector<TaskSpan>& a, const std::vector<TaskSpan>& b) {
  std::int64_t overlap = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    overlap += std::max<std::int64_t>(0, std::min(a[i].end_ps, b[j].end_ps) - std::max(a[i].start_ps, b[j].start_ps));
    if (a[i].end_ps < b[j].end_ps) {
      ++i;
    } else {
      ++j;
    }
  }
  return overlap;
}

}  // namespace

std::vector<double> exposed_ms(const schedules::Step& step, const schedules::StepTimeline& timeline) {
  std::vector<double> exposed;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::vector<TaskSpan> computing;
    std::vector<TaskSpan> communicating;
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      const Lane lane = step.of_rank[r].tasks[i].lane;
      if (lane == Lane::compute) computing.push_back(timeline[r][i]);
      if (lane != Lane::compute && lane != Lane::send) communicating.push_back(timeline[r][i]);
    }
    computing = joined(std::move(computing));
    communicating = joined(std::move(communicating));
    exposed.push_back(static_cast<double>(length_of(communicating) - overlap_of(communicating, computing)) / 1e9);
  }
  return exposed;
}

}  // namespace lockstep::pipeline
