#include "bench/tp_linear_bench/tp_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/options.h"

namespace lockstep::tp_linear {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<TpLinearFlags>;

constexpr int kLeastRanks = 2;
constexpr int kMostRanks = 64;

constexpr std::array kBlocks{
    std::pair{"column", Block::up},
    std::pair{"row", Block::down},
    std::pair{"mlp", Block::mlp},
    std::pair{"attention", Block::attention},
    std::pair{"embedding", Block::embedding},
    std::pair{"cross-entropy", Block::loss},
};

std::vector<Block> blocks_of(const FlagValue& value) {
  std::vector<Block> blocks;
  for (const FlagValue& part : value.list()) {
    if (part.text == "all") {
      for (const auto& block : kBlocks) blocks.push_back(block.second);
      continue;
    }
    const auto* const found =
        std::find_if(kBlocks.begin(), kBlocks.end(), [&](const auto& one) { return part.text == one.first; });
    if (found == kBlocks.end()) {
      throw part.refused("not a layer", "all column row mlp attention embedding cross-entropy");
    }
    blocks.push_back(found->second);
  }
  return blocks;
}

const std::array kFlagsOfLayers{
    Flag{"--block", "all", "layers, a list: column, row, mlp, attention, embedding, cross-entropy; or all",
         [](TpLinearFlags& f, const FlagValue& v) { f.blocks = blocks_of(v); }},
    Flag{"--hidden", "256", "hidden size h; column is a product from h to 4 h, row a product from 4 h to h",
         [](TpLinearFlags& f, const FlagValue& v) { f.shape.hidden = v.integer(1, 1 << 16); }},
    Flag{"--heads", "8", "attention heads",
         [](TpLinearFlags& f, const FlagValue& v) { f.shape.heads = v.integer(1, 4096); }},
    Flag{"--batch", "4", "sequences per step, b",
         [](TpLinearFlags& f, const FlagValue& v) { f.shape.batch = v.integer(1, 65536); }},
    Flag{"--length", "128", "tokens per sequence s",
         [](TpLinearFlags& f, const FlagValue& v) { f.shape.length = v.integer(1, 1 << 20); }},
    Flag{"--vocabulary", "8191", "vocabulary size; padded to a multiple of the ranks",
         [](TpLinearFlags& f, const FlagValue& v) { f.shape.vocabulary = v.integer(1, 1 << 24); }},
    Flag{"--dtype", "f32", "dtype of weights and activations: f32 or bf16",
         [](TpLinearFlags& f, const FlagValue& v) { f.shape.dtype = step_bench::dtype_of(v); }},
};

std::vector<workload::Grid> grids_of(const FlagValue& value) {
  std::vector<workload::Grid> grids;
  for (const FlagValue& part : value.list()) {
    grids.push_back(part.parsed_by(workload::parse_grid));
  }
  return grids;
}

const std::array kFlagsOfRun{
    Flag{"--tp", "2", "tensor-parallel ranks, a list",
         [](TpLinearFlags& f, const FlagValue& v) { f.ranks = program::integer_list(v, kLeastRanks, kMostRanks); }},
    Flag{"--grid", "",
         "grids of ranks that share a linear layer or the MLP in two or more dimensions, a list: 2x2 (2-D, SUMMA), "
         "2.5d:2x2x2 (Tesseract), 2x2x2 (3-D); with --tp as well, both are timed [none]",
         [](TpLinearFlags& f, const FlagValue& v) { f.grids = grids_of(v); }},
    Flag{"--sequence-parallel", "0,1",
         "sequence parallelism, a list; 0: each rank has all rows between layers; 1: a share of the rows",
         [](TpLinearFlags& f, const FlagValue& v) { f.sequence_parallel = program::integer_list(v, 0, 1); }},
    Flag{"--tiles", "1,4",
         "number of tiles into which rows are cut, a list; a tile is exchanged during the next tile's product; 1 is "
         "always run",
         [](TpLinearFlags& f, const FlagValue& v) { f.tiles = program::integer_list(v, 1, 1024); }},
    Flag{"--algo", "ring",
         "algorithm of the collectives (docs/adding.md); the column `formula` has the fewest bytes that any algorithm "
         "can send",
         [](TpLinearFlags& f, const FlagValue& v) { f.algorithm = v.text; }},
};

bool has_grids(Block kind) {
  return kind == Block::up || kind == Block::down || kind == Block::mlp;
}

// Lists the numbers up to `most` that would do: "1 2 3 6".
std::string numbers_that(std::int64_t most, const std::function<bool(std::int64_t)>& would_do) {
  std::string text;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (would_do(n)) text += (text.empty() ? "" : " ") + std::to_string(n);
  }
  return text.empty() ? "none" : text;
}

void check_tiles(const Case& bench_case, const Shape& shape) {
  const std::int64_t shares = bench_case.sequence_parallel ? bench_case.ranks : 1;
  for (const int tiles : bench_case.tiles) {
    if (shape.rows() % (shares * tiles) == 0) continue;
    throw core::usage_error(fmt::format(
        "--tiles {}: does not divide the {} rows (--batch {} x --length {}){}; allowed: {}", tiles,
        shape.rows() / shares, shape.batch, shape.length,
        bench_case.sequence_parallel ? fmt::format(" of a share of {} sequence-parallel ranks", shares) : "",
        numbers_that(64, [&](std::int64_t n) { return shape.rows() % (shares * n) == 0; })));
  }
}

// Blocks of all matrices of the block's layers have equal sizes.
void check_grid(const Case& bench_case, const Shape& shape) {
  const workload::GridDivisors divisors = workload::divisors_of(*bench_case.grid);
  const auto check = [&](std::int64_t size, std::int64_t divisor, const std::string& what) {
    if (size % divisor == 0) return;
    throw core::usage_error(
        fmt::format("--grid {}: {} {}, and blocks need a multiple of {}; allowed: another --grid or size",
                    workload::text_of(*bench_case.grid), what, size, divisor));
  };
  check(shape.rows(), divisors.rows, "--batch x --length is");
  check(shape.hidden, std::max(divisors.inputs, divisors.outputs), "--hidden is");
}

void check_case(const Case& bench_case, const Shape& shape) {
  if (bench_case.grid) return check_grid(bench_case, shape);
  if (bench_case.ranks < kLeastRanks || bench_case.ranks > kMostRanks) {
    throw core::usage_error(
        fmt::format("--tp {} is out of range; allowed: {} to {}; with --transport mpi, start that many ranks with "
                    "mpirun",
                    bench_case.ranks, kLeastRanks, kMostRanks));
  }
  const step_bench::LayerBlock block = block_of(layer_of(bench_case, shape, 1, 0));
  if (const std::string reason = why_invalid(block.model, block.layout); !reason.empty()) {
    throw core::usage_error(fmt::format("--block {} --tp {}: {}", name_of(bench_case.block), bench_case.ranks, reason));
  }
  check_tiles(bench_case, shape);
}

// Counts the tensors of all ranks with every number of tiles, the tensors of one rank that has the whole layer, and the
// same again for host copies that are compared.
void check_memory(const Case& bench_case, const Shape& shape) {
  const auto parts = static_cast<std::int64_t>(bench_case.tiles.size()) * bench_case.ranks;
  const std::int64_t needed = needed_bytes({.kind = bench_case.block, .shape = shape}) +
                              parts * needed_bytes(layer_of(bench_case, shape, 1, 0));
  const auto available = static_cast<std::int64_t>(core::available_host_bytes());
  if (needed <= available) return;
  const bool has_words = bench_case.block == Block::embedding || bench_case.block == Block::loss;
  throw core::usage_error(
      fmt::format("--block {} on {} ranks needs about {}, and there are {}; what helps: a smaller {}, or fewer --tiles",
                  name_of(bench_case.block), bench_case.ranks, core::format_size(needed), core::format_size(available),
                  has_words ? "--vocabulary, --hidden, --batch or --length" : "--hidden, --batch or --length"));
}

}  // namespace

void check_cases(const TpLinearFlags& flags) {
  const Shape& shape = flags.shape;
  if (shape.hidden % shape.heads != 0) {
    throw core::usage_error(fmt::format("--heads {}: does not divide --hidden {}; allowed: {}", shape.heads,
                                        shape.hidden,
                                        numbers_that(64, [&](std::int64_t n) { return shape.hidden % n == 0; })));
  }
  for (const Case& bench_case : cases_of(flags)) {
    check_case(bench_case, shape);
    check_algorithm(block_of(layer_of(bench_case, shape, 1, 0)), flags.algorithm);
    if (flags.mpi == nullptr && !flags.place.device.cuda) check_memory(bench_case, shape);
  }
}

int most_ranks(const TpLinearFlags& flags) {
  int most = 0;
  for (const Case& bench_case : cases_of(flags)) most = std::max(most, bench_case.ranks);
  return most;
}

std::string name_of(Block kind) {
  const auto* const found =
      std::find_if(kBlocks.begin(), kBlocks.end(), [&](const auto& one) { return one.second == kind; });
  return found->first;
}

TpLinearFlags parse_tp_linear_flags(int argc, const char* const* argv) {
  TpLinearFlags flags;
  flags.rounds = 11;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program +
                            ": time and bytes of tensor-parallel layers, and how much of the time is communication.");
  parse_part({.layers = "Layers", .rounds = "11", .warmup_rounds = "2", .serves = true}, line, argc, argv,
             kFlagsOfLayers, kFlagsOfRun, flags);
  flags.all_ranks = !line.value("--tp") && flags.grids.empty();
  if (!line.value("--tp") && !flags.grids.empty()) flags.ranks.clear();
  if (flags.blocks.empty()) {
    for (const auto& [name, kind] : kBlocks) flags.blocks.push_back(kind);
  }
  const bool has_grid_block = std::any_of(flags.blocks.begin(), flags.blocks.end(), has_grids);
  if (!flags.grids.empty() && !has_grid_block) {
    throw core::usage_error(
        fmt::format("--grid together with --block {}: grids do not support it; allowed: column row mlp",
                    name_of(flags.blocks.front())));
  }
  return flags;
}

// Cross-entropy has a single exchange, with or without sequence parallelism.
std::vector<Case> cases_of(const TpLinearFlags& flags) {
  std::vector<int> tiles{1};
  for (const int t : flags.tiles) {
    if (std::find(tiles.begin(), tiles.end(), t) == tiles.end()) tiles.push_back(t);
  }
  std::vector<Case> cases;
  for (const Block block : flags.blocks) {
    for (const int ranks : flags.ranks) {
      if (block == Block::loss) {
        cases.push_back({block, ranks, false, {1}});
        continue;
      }
      for (const int sequence : flags.sequence_parallel) cases.push_back({block, ranks, sequence != 0, tiles});
    }
    if (!has_grids(block)) continue;
    for (const workload::Grid& grid : flags.grids) cases.push_back({block, grid.ranks(), false, {1}, grid});
  }
  return cases;
}

}  // namespace lockstep::tp_linear
