#include "workload/parameter.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "core/error.h"

namespace lockstep::workload {
namespace {

// A parameter as [outer][blocks of given lengths][inner]; a rank has a share of each block.
struct Axes {
  std::int64_t outer = 1;
  std::vector<std::int64_t> lengths = {};
  std::vector<std::int64_t> shares = {};  // shares of the lengths; the last ranks may have less
  std::int64_t inner = 1;
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

// The lengths that ranks split one by one.
std::span<const std::int64_t> blocks_of(const Parameter& parameter) {
  if (parameter.blocks.empty()) return std::span(parameter.shape).subspan(split_axis(parameter), 1);
  return parameter.blocks;
}

// Length of one rank's share of all blocks of the split axis.
std::int64_t length_of_share(const Parameter& parameter, std::int32_t ranks) {
  const bool may_be_padded = parameter.split == Split::rows && parameter.blocks.empty();
  bool divides = true;
  std::int64_t whole = 0;
  std::int64_t share = 0;
  for (const std::int64_t length : blocks_of(parameter)) {
    whole += length;
    share += (length + ranks - 1) / ranks;
    divides = divides && (may_be_padded || length % ranks == 0);
  }
  LOCKSTEP_CHECK(divides && whole == parameter.shape[split_axis(parameter)],
                 parameter.name + ": " + std::to_string(ranks) + " ranks do not divide what they share");
  return share;
}

Axes axes_of(const Parameter& parameter, std::int32_t ranks) {
  const std::vector<std::int64_t>& shape = parameter.shape;
  if (parameter.split == Split::none) return {.lengths = {parameter.elems()}, .shares = {parameter.elems()}};
  length_of_share(parameter, ranks);  // checks
  const std::size_t axis = split_axis(parameter);
  const std::span<const std::int64_t> blocks = blocks_of(parameter);
  Axes axes{.outer = product(shape, 0, axis),
            .lengths = {blocks.begin(), blocks.end()},
            .inner = product(shape, axis + 1, shape.size())};
  for (const std::int64_t length : blocks) axes.shares.push_back((length + ranks - 1) / ranks);
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
  if (parameter.split != Split::none) shape[split_axis(parameter)] = length_of_share(parameter, tensor_ranks);
  return shape;
}

std::int64_t elems_of_share(const Parameter& parameter, std::int32_t tensor_ranks) {
  if (parameter.split == Split::none) return parameter.elems();
  return parameter.elems() / parameter.shape[split_axis(parameter)] * length_of_share(parameter, tensor_ranks);
}

void for_each_run(const Parameter& parameter, TensorPlace place,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const bool whole = parameter.split == Split::none;
  const Axes axes = axes_of(parameter, whole ? 1 : place.ranks);
  ElementRun run;
  ElementRun next;  // its beginnings; a rank's padding is only in the share
  for (std::int64_t outer = 0; outer < axes.outer; ++outer) {
    for (std::size_t block = 0; block < axes.lengths.size(); ++block) {
      const std::int64_t length = axes.lengths[block];
      const std::int64_t share = axes.shares[block];
      const std::int64_t first = whole ? 0 : place.index * share;
      const std::int64_t count = std::clamp<std::int64_t>(length - first, 0, share) * axes.inner;
      const ElementRun here{next.share_begin, next.whole_begin + first * axes.inner, count};
      next.share_begin += share * axes.inner;
      next.whole_begin += length * axes.inner;
      if (run.goes_on_in(here)) {
        run.count += count;
        continue;
      }
      if (run.count > 0) visit(run.share_begin, run.whole_begin, run.count);
      run = here;
    }
  }
  if (run.count > 0) visit(run.share_begin, run.whole_begin, run.count);
}

}  // namespace lockstep::workload
