// Whole tensors, the pieces of them that ranks have, and whether pieces make up the whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::trainer {

using Shape = std::vector<std::int64_t>;
std::int64_t elems_of(const Shape& shape);
std::string shape_text(const Shape& shape);  // "[2, 3]"

struct WholeTensor {
  std::string name;
  Shape shape;
};

// Elements of a tensor, flattened row by row, that a rank has side by side in host memory. (What
// parallel::ParameterStore::Run is to one state of the optimizer.)
struct Piece {
  std::size_t tensor = 0;  // in a list of whole tensors
  std::int64_t whole_begin = 0;
  std::int64_t count = 0;
  float* data = nullptr;
};

struct Interval {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const Interval&) const = default;
};

// Intervals of equal length and distance, as columns of a matrix are: `times` intervals, `stride` apart.
struct IntervalRow {
  Interval first;
  std::int64_t stride = 0;
  std::int64_t times = 1;

  bool operator==(const IntervalRow&) const = default;
};
std::vector<IntervalRow> fold(const std::vector<Interval>& intervals);
std::vector<Interval> unfold(const std::vector<IntervalRow>& rows);

// A set of elements.
class IntervalSet {
 public:
  // The parts of an interval that are not in the set, ascending; they are in it from here on.
  std::vector<Interval> add(const Interval& interval);

 private:
  std::map<std::int64_t, std::int64_t> end_by_begin_;  // of intervals that neither overlap nor touch
};

// Where the elements [0, elems) are not exactly once in the intervals: the first such element, in words; empty if all
// are.
std::string why_not_whole(std::vector<Interval> intervals, std::int64_t elems);

}  // namespace lockstep::trainer
