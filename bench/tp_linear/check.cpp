#include "bench/tp_linear/check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "bench/tp_linear/block.h"
#include "bench/tp_linear/grid_layer.h"
#include "bench/tp_linear/values.h"
#include "core/device_cpu.h"
#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::tp_linear {
namespace {

using Visit = std::function<void(std::int64_t, std::int64_t, std::int64_t)>;

void for_each_run(const Result& result, workload::TensorPlace place, const Visit& visit) {
  if (result.runs) return result.runs(visit);
  workload::for_each_run(result.whole, place, visit);
}

// Number of additions in the longest sum of a result, and of roundings to the dtype before it, on one rank.
struct Roundings {
  std::int64_t longest_sum;
  int on_the_way;
};
Roundings roundings_of(BlockKind kind, const Shape& shape) {
  const std::int64_t rows = shape.rows();
  switch (kind) {
    case BlockKind::column:
    case BlockKind::row:
      return {std::max(rows, shape.inner()), 1};
    case BlockKind::mlp:
      return {std::max(rows, shape.hidden + shape.inner()), 3};
    case BlockKind::attention:  // roundings of a score, of the weighted values, of the projection
      return {std::max(rows, 4 * shape.hidden + 2 * shape.length), 5};
    case BlockKind::embedding:
      return {rows, 1};
    default:  // a logit is larger than one, and its rounding counts that many times in its exponential
      return {shape.vocabulary + shape.hidden, 5};
  }
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

template <class Make>
Reference reference_by(int threads, const Make& make) {
  kernels::ThreadPool pool(threads);
  const kernels::Context where(pool);
  kernels::choose_gemms_by_rule(where);
  const auto device = core::make_cpu_device();
  parallel::Memory memory(*device);
  const parallel::Workspace workspace{memory, where};
  const std::unique_ptr<TimedBlock> block = make(workspace);
  block->reset();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const Task& task : block->pass(direction).tasks()) task.run();
  }
  Reference reference;
  for (const Result& result : block->results()) reference[result.whole.name] = host_values(memory, *result.found);
  return reference;
}

}  // namespace

Reference reference_of(BlockKind kind, const Shape& shape, int threads) {
  return reference_by(threads, [&](const parallel::Workspace& workspace) {
    return std::make_unique<Block>(kind, NodeContext{shape, {}, workspace});
  });
}

Reference grid_reference_of(BlockKind kind, const Shape& shape, int threads) {
  return reference_by(threads, [&](const parallel::Workspace& workspace) {
    return std::make_unique<GridLayer>(kind, GridSite{shape, {}, 0, workspace});
  });
}

double allowed_difference(BlockKind kind, const Shape& shape, int ranks) {
  const Roundings roundings = roundings_of(kind, shape);
  const int of_dtype = ranks + 2 * roundings.on_the_way;
  return core::sum_tolerance(core::DType::f32, static_cast<std::size_t>(roundings.longest_sum)) +
         core::sum_tolerance(shape.dtype, static_cast<std::size_t>(of_dtype));
}

std::int64_t wrong_elems(const Result& result, workload::TensorPlace place, const std::vector<float>& found,
                         const std::vector<float>& whole, double allowed) {
  const double largest = largest_of(whole);
  std::int64_t wrong = 0;
  std::vector<bool> is_padding(found.size(), true);
  for_each_run(result, place, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      is_padding.at(static_cast<std::size_t>(to + i)) = false;
      const double wanted = static_cast<double>(whole.at(static_cast<std::size_t>(from + i)));
      const double is = static_cast<double>(found.at(static_cast<std::size_t>(to + i)));
      const double bound = allowed * (result.elementwise ? std::fabs(wanted) : largest);
      wrong += std::fabs(is - wanted) <= bound ? 0 : 1;  // written so that a NaN is wrong
    }
  });
  for (std::size_t i = 0; i < found.size(); ++i) wrong += is_padding[i] && found[i] != 0 ? 1 : 0;
  return wrong;
}

std::int64_t unlike_elems(const std::vector<float>& found, const std::vector<float>& wanted) {
  LOCKSTEP_CHECK(found.size() == wanted.size(), "both have the same number of elements");
  std::int64_t unlike = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    unlike += std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i]) ? 1 : 0;
  }
  return unlike;
}

}  // namespace lockstep::tp_linear
