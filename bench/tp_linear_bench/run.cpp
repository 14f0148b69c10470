#include "bench/tp_linear_bench/tp_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bench/step/layer_part.h"
#include "bench/step/part.h"
#include "bench/step/values.h"
#include "core/error.h"

namespace lockstep::tp_linear {
namespace {

using step_bench::Mode;
using step_bench::PartSite;

// Number of additions in the longest sum of a result, and of roundings to the dtype before it, on one rank.
struct Roundings {
  std::int64_t longest_sum;
  int on_the_way;
};
Roundings roundings_of(Block kind, const Shape& shape) {
  const std::int64_t rows = shape.rows();
  switch (kind) {
    case Block::up:
    case Block::down:
      return {std::max(rows, shape.inner()), 1};
    case Block::mlp:
      return {std::max(rows, shape.hidden + shape.inner()), 3};
    case Block::attention:  // roundings of a score, of the weighted values, of the projection
      return {std::max(rows, 4 * shape.hidden + 2 * shape.length), 5};
    case Block::embedding:
      return {rows, 1};
    default:  // a logit is larger than one, and its rounding counts that many times in its exponential
      return {shape.vocabulary + shape.hidden, 5};
  }
}

}  // namespace

TpLayer layer_of(const Case& bench_case, const Shape& shape, int tiles, int rank) {
  return {.kind = bench_case.block,
          .shape = shape,
          .rank = {bench_case.ranks, rank},
          .sequence_parallel = bench_case.sequence_parallel,
          .tiles = tiles,
          .grid = bench_case.grid,
          .biases = !bench_case.grid};
}

Reference reference_of(const Case& bench_case, const Shape& shape, int threads) {
  const TpLayer layer{.kind = bench_case.block, .shape = shape, .biases = !bench_case.grid};
  Reference reference;
  on_one_rank(block_of(layer), inputs_of(layer), threads,
              [&](step_bench::LayerRank& rank, const parallel::Workspace& /*workspace*/) {
                rank.run_alone();
                for (Result& result : results_of(layer, rank)) {
                  reference[result.name] = std::move(result.found);
                }
              });
  return reference;
}

double allowed_difference(Block kind, const Shape& shape, int ranks) {
  const Roundings roundings = roundings_of(kind, shape);
  const int of_dtype = ranks + 2 * roundings.on_the_way;
  return core::sum_tolerance(core::DType::f32, static_cast<std::size_t>(roundings.longest_sum)) +
         core::sum_tolerance(shape.dtype, static_cast<std::size_t>(of_dtype));
}

std::int64_t wrong_elems(const Result& result, const std::vector<float>& whole, double allowed) {
  const double largest = step_bench::largest_of(whole);
  const std::vector<float>& found = result.found;
  std::int64_t wrong = 0;
  std::vector<bool> is_padding(found.size(), true);
  const auto check_run = [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      is_padding.at(static_cast<std::size_t>(to + i)) = false;
      const float wanted = whole.at(static_cast<std::size_t>(from + i));
      const double bound = allowed * (result.elementwise ? std::fabs(static_cast<double>(wanted)) : largest);
      wrong += step_bench::is_beyond(found.at(static_cast<std::size_t>(to + i)), wanted, bound) ? 1 : 0;
    }
  };
  result.runs(check_run);
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

step_bench::PartRow row_of(const TpLinearFlags& flags, const Case& bench_case) {
  const step_bench::LayerBlock block = block_of(layer_of(bench_case, flags.shape, 1, 0));
  return {
      .num_ranks = bench_case.ranks, .channels = step_bench::channels_of(step_of(block)), .tokens = flags.shape.rows()};
}

// Compares the results of a rank with one rank's, and their bits with the first pass, in one tile.
class Checker {
 public:
  Checker(const Case& bench_case, const Shape& shape, const Reference& reference)
      : reference_(reference), allowed_(allowed_difference(bench_case.block, shape, bench_case.ranks)) {}

  void check(std::vector<Result> results, step_bench::Findings& findings) {
    const bool is_first = first_.empty();
    for (std::size_t i = 0; i < results.size(); ++i) {
      findings.wrong += wrong_elems(results[i], reference_.at(results[i].name), allowed_);
      if (is_first) {
        first_.push_back(std::move(results[i].found));
      } else {
        findings.unlike += unlike_elems(results[i].found, first_[i]);
      }
    }
  }

 private:
  const Reference& reference_;
  const double allowed_;
  std::vector<std::vector<float>> first_;
};

// A layer in one number of tiles.
class TiledLayer final : public step_bench::LayerPart {
 public:
  TiledLayer(const TpLinearFlags& flags, const TpLayer& layer, PartSite& site, std::shared_ptr<Checker> checker)
      : TiledLayer(flags, layer, site, std::move(checker), parallel::total_of(site.memory.now())) {}

  void begin(Mode mode) override {
    if (is_whole(mode)) site_.memory.restart_peaks();
    before_bytes_ = parallel::total_of(site_.memory.now());
    LayerPart::begin(mode);
  }
  void end(Mode mode) override {
    const std::int64_t peak_bytes = parallel::total_of(site_.memory.at_peak()) - before_bytes_;
    if (is_whole(mode)) pass_bytes_ = std::max(pass_bytes_, peak_bytes);
    LayerPart::end(mode);
  }
  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    if (direction == Direction::backward) checker_->check(results_of(spec_, layer_), findings);
  }

  std::int64_t memory_bytes() const override { return held_bytes_ + pass_bytes_; }
  std::array<double, 2> formula_bytes() override { return wire_bytes_of(block_); }

 private:
  TiledLayer(const TpLinearFlags& flags, const TpLayer& layer, PartSite& site, std::shared_ptr<Checker> checker,
             std::int64_t before_bytes)
      : LayerPart(site, block_of(layer), flags.algorithm, inputs_of(layer)),
        spec_(layer),
        site_(site),
        checker_(std::move(checker)),
        held_bytes_(parallel::total_of(site.memory.now()) - before_bytes) {}

  const TpLayer spec_;
  PartSite& site_;
  const std::shared_ptr<Checker> checker_;  // shared by all numbers of tiles
  const std::int64_t held_bytes_;           // between passes
  std::int64_t before_bytes_ = 0;           // before a pass, held by all numbers of tiles
  std::int64_t pass_bytes_ = 0;             // most in a pass, beyond that
};

step_bench::MakeParts parts_of(const TpLinearFlags& flags, const Case& bench_case, const Reference& reference) {
  return [&](PartSite& site) {
    const auto checker = std::make_shared<Checker>(bench_case, flags.shape, reference);
    step_bench::Parts parts;
    for (const int tiles : bench_case.tiles) {
      parts.push_back(
          std::make_unique<TiledLayer>(flags, layer_of(bench_case, flags.shape, tiles, site.index()), site, checker));
    }
    return parts;
  };
}

// "mlp/f32/B4_T128_C256/tp 2, sequence-parallel/tiles:4/beside": each number of tiles in each of kServed.
std::vector<std::string> served_names(const TpLinearFlags& flags, const Case& bench_case) {
  const Shape& shape = flags.shape;
  const std::string shared =
      bench_case.grid ? "grid " + workload::text_of(*bench_case.grid) : "tp " + std::to_string(bench_case.ranks);
  std::vector<std::string> names;
  for (const int tiles : bench_case.tiles) {
    for (const auto& [mode, name] : kServed) {
      names.push_back(fmt::format("{}/{}/B{}_T{}_C{}/{}{}/tiles:{}/threads:{}/{}", name_of(bench_case.block),
                                  core::short_name_of(shape.dtype), shape.batch, shape.length, shape.hidden, shared,
                                  bench_case.sequence_parallel ? ", sequence-parallel" : "", tiles, flags.threads,
                                  name));
    }
  }
  return names;
}

}  // namespace

void serve_case(const TpLinearFlags& flags, const Case& bench_case) {
  const Reference none;
  std::vector<Mode> modes;
  for (const auto& [mode, name] : kServed) modes.push_back(mode);
  serve_row(flags, row_of(flags, bench_case), modes, served_names(flags, bench_case),
            parts_of(flags, bench_case, none));
}

std::vector<step_bench::PartResult> run_case(const TpLinearFlags& flags, const Case& bench_case,
                                             const Reference& reference) {
  return run_parts(flags, row_of(flags, bench_case), parts_of(flags, bench_case, reference));
}

}  // namespace lockstep::tp_linear
