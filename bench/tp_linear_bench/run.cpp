#include "bench/tp_linear_bench/tp_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bench/step/part.h"
#include "bench/step/values.h"
#include "bench/tp_linear_bench/block.h"
#include "bench/tp_linear_bench/grid_layer.h"
#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::tp_linear {
namespace {

using step_bench::Mode;
using step_bench::PartSite;

using Visit = std::function<void(std::int64_t, std::int64_t, std::int64_t)>;

void for_each_run(const Result& result, workload::TensorRank place, const Visit& visit) {
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
  for (const Direction direction : step_bench::kDirections) {
    for (const step_bench::Task& task : block->pass(direction).tasks()) task.run();
  }
  Reference reference;
  for (const Result& result : block->results())
    reference[result.whole.name] = step_bench::host_values(memory.device(), result.found->in());
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

std::int64_t wrong_elems(const Result& result, workload::TensorRank place, const std::vector<float>& found,
                         const std::vector<float>& whole, double allowed) {
  const double largest = step_bench::largest_of(whole);
  std::int64_t wrong = 0;
  std::vector<bool> is_padding(found.size(), true);
  for_each_run(result, place, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      is_padding.at(static_cast<std::size_t>(to + i)) = false;
      const float wanted = whole.at(static_cast<std::size_t>(from + i));
      const double bound = allowed * (result.elementwise ? std::fabs(static_cast<double>(wanted)) : largest);
      wrong += step_bench::is_beyond(found.at(static_cast<std::size_t>(to + i)), wanted, bound) ? 1 : 0;
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

namespace {

constexpr std::array kServed{std::pair{Mode::serial, "one by one"}, std::pair{Mode::overlapped, "beside"}};

// The groups of several ranks along an axis.
std::vector<backends::Channel> groups_of(const workload::Grid& grid, std::size_t axis) {
  const auto which = static_cast<workload::GridAxis>(axis);
  if (workload::members_along(grid, which) == 1) return {};
  return workload::groups_along(grid, which);
}

step_bench::PartRow row_of(const TpLinearFlags& flags, const Case& one) {
  step_bench::PartRow row{.num_ranks = one.ranks, .tokens = flags.shape.batch * flags.shape.length};
  for (std::size_t axis = 0; one.grid && axis < workload::kNumGridAxes; ++axis) {
    for (backends::Channel& group : groups_of(*one.grid, axis)) row.channels.push_back(std::move(group));
  }
  return row;
}

// Shared by all numbers of tiles of a layer on a rank.
struct LayerOfRank {
  std::array<std::unique_ptr<Exchanger>, workload::kNumGridAxes> exchangers;  // the first, or by axis of a grid
  std::vector<std::vector<float>> first;                                      // results of the first pass
};

std::shared_ptr<LayerOfRank> layer_of(const TpLinearFlags& flags, const Case& one, const PartSite& site) {
  auto layer = std::make_shared<LayerOfRank>();
  if (!one.grid) layer->exchangers.front() = std::make_unique<Exchanger>(site.rank, 0, flags.algorithm);
  std::size_t channel = 0;
  for (std::size_t axis = 0; one.grid && axis < workload::kNumGridAxes; ++axis) {
    for (const backends::Channel& group : groups_of(*one.grid, axis)) {
      const bool is_member = std::binary_search(group.begin(), group.end(), site.index());
      if (is_member) layer->exchangers[axis] = std::make_unique<Exchanger>(site.rank, channel, flags.algorithm);
      ++channel;
    }
  }
  return layer;
}

// A layer in one number of tiles.
class TiledLayer final : public step_bench::PassPart {
 public:
  TiledLayer(const TpLinearFlags& flags, const Case& one, int tiles, const Reference& reference, PartSite& site,
             std::shared_ptr<LayerOfRank> layer)
      : PassPart(site.runner),
        shape_(flags.shape),
        case_(one),
        sharing_{one.ranks, site.index(), one.sequence_parallel, tiles},
        reference_(reference),
        memory_(site.memory),
        layer_(std::move(layer)) {
    const std::int64_t before = parallel::total_of(memory_.now());
    block_ = make_block(site);
    memory_bytes_ = parallel::total_of(memory_.now()) - before;
  }

  const Pass& pass(Mode /*mode*/, Direction direction) const override { return block_->pass(direction); }
  // Kernels or exchanges alone work on data that the previous pass has left.
  void begin(Mode mode) override {
    if (is_whole(mode)) block_->reset();
  }

  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    if (direction == Direction::forward) return;
    const double allowed = allowed_difference(case_.block, shape_, case_.ranks);
    const auto results = block_->results();
    const bool is_first = layer_->first.empty();
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::vector<float> found = step_bench::host_values(memory_.device(), results[i].found->in());
      if (results[i].in_tiles) found = out_of_tiles(Tiles{shape_.rows(), sharing_}, found);
      findings.wrong +=
          wrong_elems(results[i], {case_.ranks, sharing_.index}, found, reference_.at(results[i].whole.name), allowed);
      if (is_first) {
        layer_->first.push_back(std::move(found));
      } else {
        findings.unlike += unlike_elems(found, layer_->first[i]);
      }
    }
  }

  // Matrices, gradients, buffers of exchanges.
  std::int64_t memory_bytes() const override { return memory_bytes_; }
  std::array<double, 2> formula_bytes() override {
    return case_.grid ? grid_formula_bytes_of(case_.block, shape_, *case_.grid)
                      : formula_bytes_of(case_.block, shape_, sharing_);
  }

 private:
  std::unique_ptr<TimedBlock> make_block(const PartSite& site) const {
    if (!case_.grid) {
      return std::make_unique<Block>(case_.block,
                                     NodeContext{shape_, sharing_, site.workspace, layer_->exchangers.front().get()});
    }
    GridSite grid_site{shape_, *case_.grid, sharing_.index, site.workspace};
    for (std::size_t axis = 0; axis < workload::kNumGridAxes; ++axis) {
      grid_site.exchangers[axis] = layer_->exchangers[axis].get();
    }
    return std::make_unique<GridLayer>(case_.block, grid_site);
  }

  const Shape& shape_;
  const Case& case_;
  const Sharing sharing_;
  const Reference& reference_;
  parallel::Memory& memory_;
  const std::shared_ptr<LayerOfRank> layer_;
  std::unique_ptr<TimedBlock> block_;
  std::int64_t memory_bytes_ = 0;
};

step_bench::MakeParts parts_of(const TpLinearFlags& flags, const Case& one, const Reference& reference) {
  return [&](PartSite& site) {
    const auto layer = layer_of(flags, one, site);
    step_bench::Parts parts;
    for (const int tiles : one.tiles) {
      parts.push_back(std::make_unique<TiledLayer>(flags, one, tiles, reference, site, layer));
    }
    return parts;
  };
}

// "mlp/f32/B4_T128_C256/tp 2, sequence-parallel/tiles:4/beside": each number of tiles in each of kServed.
std::vector<std::string> served_names(const TpLinearFlags& flags, const Case& one) {
  const Shape& shape = flags.shape;
  const std::string shared = one.grid ? "grid " + workload::text_of(*one.grid) : "tp " + std::to_string(one.ranks);
  std::vector<std::string> names;
  for (const int tiles : one.tiles) {
    for (const auto& [mode, name] : kServed) {
      names.push_back(fmt::format("{}/{}/B{}_T{}_C{}/{}{}/tiles:{}/threads:{}/{}", name_of(one.block),
                                  core::short_name_of(shape.dtype), shape.batch, shape.length, shape.hidden, shared,
                                  one.sequence_parallel ? ", sequence-parallel" : "", tiles, flags.threads, name));
    }
  }
  return names;
}

}  // namespace

void serve_case(const TpLinearFlags& flags, const Case& one) {
  const Reference none;
  std::vector<Mode> modes;
  for (const auto& [mode, name] : kServed) modes.push_back(mode);
  serve_row(flags, row_of(flags, one), modes, served_names(flags, one), parts_of(flags, one, none));
}

std::vector<step_bench::PartResult> run_case(const TpLinearFlags& flags, const Case& one, const Reference& reference) {
  return run_parts(flags, row_of(flags, one), parts_of(flags, one, reference));
}

}  // namespace lockstep::tp_linear
