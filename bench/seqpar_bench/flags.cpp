#include "bench/seqpar_bench/seqpar.h"

#include <fmt/format.h>

#include <array>

#include "bench/mini_train/flags.h"
#include "core/device.h"
#include "core/error.h"
#include "core/options.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::context_bench {
namespace {

using program::FlagValue;
using workload::ContextWay;
using Flag = program::FlagOf<ContextFlags>;

constexpr int kMostRanks = 64;

std::vector<ContextWay> ways_of(const FlagValue& value) {
  std::vector<ContextWay> ways;
  for (const FlagValue& part : value.list()) ways.push_back(mini_train::context_way_of(part));
  return ways;
}

const std::array kFlagsOfLayers{
    Flag{"--way", "all of the mask",
         "how ranks share the attention of a sequence, a list: ring, zigzag, allgather, ulysses, lightseq (causal), "
         "colossal",
         [](ContextFlags& f, const FlagValue& v) { f.ways = ways_of(v); }},
    Flag{"--length", "1024", "tokens per sequence, a list",
         [](ContextFlags& f, const FlagValue& v) { f.lengths = program::integer_list(v, 1, 1 << 24); }},
    Flag{"--batch", "1", "sequences per step",
         [](ContextFlags& f, const FlagValue& v) { f.batch = v.integer(1, 65536); }},
    Flag{"--heads", "8", "attention heads", [](ContextFlags& f, const FlagValue& v) { f.heads = v.integer(1, 4096); }},
    Flag{"--head-columns", "64", "columns per head",
         [](ContextFlags& f, const FlagValue& v) { f.head_columns = v.integer(1, 1024); }},
    Flag{"--dtype", "f32", "dtype of activations: f32 or bf16",
         [](ContextFlags& f, const FlagValue& v) { f.dtype = step_bench::dtype_of(v); }},
    Flag{"--causal", "1", "1: causal, a query sees keys up to its own position; 0: all keys",
         [](ContextFlags& f, const FlagValue& v) { f.causal = v.yes_or_no(); }},
};

const std::array kFlagsOfRun{
    Flag{"--cp", "2", "context-parallel ranks, a list",
         [](ContextFlags& f, const FlagValue& v) { f.ranks = program::integer_list(v, 2, kMostRanks); }},
    Flag{"--fit", "",
         "a model, as in simulate: also print the longest sequence with which a training step of the model fits, for "
         "each way",
         [](ContextFlags& f, const FlagValue& v) { f.fit_model = v.checked_by(workload::parse_model); }},
    Flag{"--fit-layout", "", "its layout without cp, such as dtype=bf16,zero=3,dp=8,recompute=full",
         [](ContextFlags& f, const FlagValue& v) { f.fit_layout = v.checked_by(workload::parse_layout); }},
    Flag{"--fit-gb", "80", "memory per rank, in 1e9 bytes",
         [](ContextFlags& f, const FlagValue& v) { f.fit_gb = v.number(0.001, 1e6); }},
};

// The mask of colossal is written by the host.
bool mask_is_absent(const ContextFlags& flags) {
  return flags.causal && flags.place.device.cuda;
}

// Ways that the user names are refused if they do not fit the mask or the device; of all ways, those that fit are
// taken.
std::vector<ContextWay> all_ways(const ContextFlags& flags) {
  std::vector<ContextWay> ways;
  for (std::size_t way = 0; way < workload::kContextWays.size(); ++way) {
    const auto one = static_cast<ContextWay>(way);
    if (one == ContextWay::lightseq && !flags.causal) continue;
    if (one == ContextWay::colossal && mask_is_absent(flags)) continue;
    ways.push_back(one);
  }
  return ways;
}

}  // namespace

parallel::ContextLayer layer_of(const ContextFlags& flags, ContextWay way, int ranks, int length) {
  return {.shape = {.way = way, .ranks = ranks, .causal = flags.causal},
          .batch = flags.batch,
          .length = length,
          .heads = flags.heads,
          .kv_heads = flags.heads,
          .head_columns = flags.head_columns,
          .dtype = flags.dtype};
}

std::vector<parallel::ContextLayer> layers_of(const ContextFlags& flags) {
  std::vector<parallel::ContextLayer> layers;
  for (const int length : flags.lengths) {
    for (const int ranks : flags.ranks) {
      for (const ContextWay way : flags.ways) layers.push_back(layer_of(flags, way, ranks, length));
    }
  }
  return layers;
}

void check_layers(const ContextFlags& flags) {
  for (const parallel::ContextLayer& layer : layers_of(flags)) {
    if (layer.shape.way == ContextWay::colossal && mask_is_absent(flags)) {
      throw core::usage_error(
          "--way colossal with --device cuda: the host writes its mask; allowed: --device cpu, or --causal 0");
    }
    if (const std::string reason = why_invalid(layer); !reason.empty()) {
      throw core::usage_error(fmt::format("--way {} --cp {} --length {}: {}", name_of(layer.shape.way),
                                          layer.shape.ranks, layer.length, reason));
    }
    // Queries, keys, values, outputs and the gradients of all, on the ranks and once on one; scores of colossal.
    const std::int64_t elems = layer.batch * layer.length * layer.query_columns();
    const auto size = static_cast<std::int64_t>(core::size_of(layer.dtype));
    std::int64_t needed = 24 * elems * static_cast<std::int64_t>(sizeof(float)) + 16 * elems * size;
    if (layer.shape.way == ContextWay::colossal) {
      needed += 3 * size * layer.batch * layer.heads * layer.length * layer.length;
    }
    const auto available = static_cast<std::int64_t>(core::available_host_bytes());
    if (flags.mpi != nullptr || flags.place.device.cuda || needed <= available) continue;
    throw core::usage_error(
        fmt::format("--length {} --way {} needs about {}, and there are {}; allowed: a smaller --length, --heads or "
                    "--batch",
                    layer.length, name_of(layer.shape.way), core::format_size(needed), core::format_size(available)));
  }
}

ContextFlags parse_context_flags(int argc, const char* const* argv) {
  ContextFlags flags;
  flags.rounds = 7;
  flags.warmup_rounds = 1;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program +
                            ": time, bytes, load and memory of attention over a sequence that ranks share.");
  parse_part({.layers = "Attention", .rounds = "7", .warmup_rounds = "1"}, line, argc, argv, kFlagsOfLayers,
             kFlagsOfRun, flags);
  flags.all_ranks = !line.value("--cp");
  if (flags.ways.empty()) flags.ways = all_ways(flags);
  return flags;
}

}  // namespace lockstep::context_bench
