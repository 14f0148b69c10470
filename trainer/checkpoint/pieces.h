// Whole tensors, the pieces of them that ranks have, and a check that pieces make up the whole.
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

// Elements of a tensor, flattened by rows, that a rank has contiguously in host memory. (The counterpart of
// parallel::ParameterStore::Run for one state of the optimizer.)
struct Piece {
  std::size_t tensor = 0;  // index in a list of whole tensors
  std::int64_t whole_begin = 0;
  std::int64_t count = 0;
  float* data = nullptr;
};

struct Interval {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const Interval&) const = default;
};

// Intervals of equal length and distance, such as some columns of a matrix: `times` intervals, `stride` apart.
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
  // Adds an interval and returns its parts that were not in the set before, ascending.
  std::vector<Interval> add(const Interval& interval);

 private:
  std::map<std::int64_t, std::int64_t> end_by_begin_;  // intervals that neither overlap nor touch
};

// Returns an empty text if the intervals contain each of the elements [0, elems) exactly once, otherwise a description
// of the first element that they do not.
std::string why_not_whole(std::vector<Interval> intervals, std::int64_t elems);

}  // namespace lockstep::trainer
