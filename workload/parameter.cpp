#include "workload/parameter.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace lockstep::workload {
namespace {

// A parameter as [outer][blocks][length][inner], of which each rank has a part of every `length`.
struct Axes {
  std::int64_t outer = 1;
  std::int64_t blocks = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
  std::int64_t share = 1;  // of length; the last ranks may have less
};

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t first, std::size_t last) {
  const auto begin = shape.begin();
  return std::accumulate(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last),
                         std::int64_t{1}, std::multiplies<>());
}

std::size_t split_axis(const Parameter& parameter) {
  const std::size_t axis = parameter.split == Split::columns ? 1 : 0;
  LOCKSTEP_CHECK(axis < parameter.shape.size(), parameter.name + " has no axis to split");
  return axis;
}

Axes axes_of(const Parameter& parameter, std::int32_t ranks) {
  const std::vector<std::int64_t>& shape = parameter.shape;
  if (parameter.split == Split::none) return {.length = parameter.elems(), .share = parameter.elems()};
  const std::size_t axis = split_axis(parameter);
  Axes axes{.outer = product(shape, 0, axis),
            .blocks = parameter.blocks,
            .length = shape[axis] / parameter.blocks,
            .inner = product(shape, axis + 1, shape.size())};
  axes.share = (axes.length + ranks - 1) / ranks;
  const bool may_be_padded = parameter.split == Split::rows && parameter.blocks == 1;
  LOCKSTEP_CHECK(axes.length * axes.blocks == shape[axis] && (may_be_padded || axes.length % ranks == 0),
                 parameter.name + ": " + std::to_string(ranks) + " ranks do not divide what they share");
  return axes;
}

struct ElementRun {
  std::int64_t share_begin = 0;
  std::int64_t whole_begin = 0;
  std::int64_t count = 0;

  bool goes_on_in(const ElementRun& next) const {
    return share_begin + count == next.share_begin && whole_begin + count == next.whole_begin;
  }
};

}  // namespace

std::int64_t Parameter::elems() const {
  return product(shape, 0, shape.size());
}

std::vector<std::int64_t> shape_of_share(const Parameter& parameter, std::int32_t tensor_ranks) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (parameter.split == Split::none) return shape;
  const Axes axes = axes_of(parameter, tensor_ranks);
  shape[split_axis(parameter)] = axes.blocks * axes.share;
  return shape;
}

std::int64_t elems_of_share(const Parameter& parameter, std::int32_t tensor_ranks) {
  const std::vector<std::int64_t> shape = shape_of_share(parameter, tensor_ranks);
  return product(shape, 0, shape.size());
}

void for_each_run(const Parameter& parameter, TensorPlace place,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const bool whole = parameter.split == Split::none;
  const Axes axes = axes_of(parameter, whole ? 1 : place.ranks);
  const std::int64_t first = whole ? 0 : place.index * axes.share;  // of length
  const std::int64_t count = std::clamp<std::int64_t>(axes.length - first, 0, axes.share) * axes.inner;
  if (count == 0) return;
  ElementRun run;
  for (std::int64_t block = 0; block < axes.outer * axes.blocks; ++block) {
    const ElementRun next{block * axes.share * axes.inner, (block * axes.length + first) * axes.inner, count};
    if (run.goes_on_in(next)) {
      run.count += count;
      continue;
    }
    if (run.count > 0) visit(run.share_begin, run.whole_begin, run.count);
    run = next;
  }
  visit(run.share_begin, run.whole_begin, run.count);
}

}  // namespace lockstep::workload
