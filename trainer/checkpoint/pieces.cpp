#include "trainer/checkpoint/pieces.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace lockstep::trainer {
namespace {

// True if the interval continues a row, whose stride may still be undefined.
bool continues(const IntervalRow& row, const Interval& next) {
  if (next.count != row.first.count) return false;
  const std::int64_t stride = next.begin - (row.first.begin + (row.times - 1) * row.stride);
  return row.times == 1 ? stride >= next.count : stride == row.stride;
}

}  // namespace

std::int64_t elems_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

std::vector<IntervalRow> fold(const std::vector<Interval>& intervals) {
  std::vector<IntervalRow> rows;
  for (const Interval& interval : intervals) {
    if (!rows.empty() && continues(rows.back(), interval)) {
      IntervalRow& row = rows.back();
      if (row.times == 1) row.stride = interval.begin - row.first.begin;
      ++row.times;
    } else {
      rows.push_back({interval});
    }
  }
  return rows;
}

std::vector<Interval> unfold(const std::vector<IntervalRow>& rows) {
  std::vector<Interval> intervals;
  for (const IntervalRow& row : rows) {
    for (std::int64_t k = 0; k < row.times; ++k) {
      intervals.push_back({row.first.begin + k * row.stride, row.first.count});
    }
  }
  return intervals;
}

std::vector<Interval> IntervalSet::add(const Interval& interval) {
  std::vector<Interval> added;
  std::int64_t begin = interval.begin;
  std::int64_t end = interval.begin + interval.count;
  std::int64_t open = begin;  // nothing from here on has been checked yet
  auto there = end_by_begin_.upper_bound(begin);
  if (there != end_by_begin_.begin() && std::prev(there)->second >= begin) --there;
  while (there != end_by_begin_.end() && there->first <= end) {
    if (open < there->first) added.push_back({open, there->first - open});
    open = std::max(open, there->second);
    begin = std::min(begin, there->first);
    end = std::max(end, there->second);
    there = end_by_begin_.erase(there);
  }
  const std::int64_t asked_end = interval.begin + interval.count;
  if (open < asked_end) added.push_back({open, asked_end - open});
  if (begin < end) end_by_begin_[begin] = end;
  return added;
}

std::string why_not_whole(std::vector<Interval> intervals, std::int64_t elems) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return std::pair(a.begin, a.count) < std::pair(b.begin, b.count);
  });
  std::int64_t end = 0;
  for (const Interval& interval : intervals) {
    if (interval.begin < end) return "element " + std::to_string(interval.begin) + " is there twice";
    if (interval.begin > end) break;
    end += interval.count;
  }
  if (end < elems) return "element " + std::to_string(end) + " is missing";
  return end > elems ? "there are " + std::to_string(end) + " elements instead of " + std::to_string(elems) : "";
}

}  // namespace lockstep::trainer
