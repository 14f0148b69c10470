#include "bench/data_parallel/zero.h"

#include <array>

#include "bench/mini_train/flags.h"
#include "core/error.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using mini_train::LayoutFlag;
using program::FlagValue;
using trainer::TrainOptions;
using workload::Layout;
using Flag = program::FlagOf<ZeroFlags>;

bool is_sharded(const Layout& row) {
  return row.zero > 0;
}

bool shards_weights(const Layout& row) {
  return row.zero == 3;
}

// In the order of nesting.
const std::array kSwept{
    SweptFlag{{"--dtype", "f32,bf16",
               "dtypes of weights and activations, a list: f32, bf16, f16 (with f32 master weights)", "dtype"}},
    SweptFlag{{"--grad-dtype", "f32",
               "dtypes of gradients, a list; a dtype other than f32 runs only with the same --dtype", "grad_dtype"}},
    SweptFlag{{"--zero", "0,1,2,3",
               "ZeRO stages, a list: 0 shards nothing, 1 the optimizer's state, 2 also gradients, 3 also weights",
               "zero"}},
    SweptFlag{{"--shard-ranks", "0",
               "neighbouring ranks that share one set of shards, in stages 1 to 3, a list; other ranks hold replicas "
               "(HSDP); 0: all ranks share one set",
               "shard_ranks", kMostReplicas},
              is_sharded},
    SweptFlag{{"--secondary-ranks", "0",
               "stage 3, a list: neighbouring ranks that share a secondary copy of the weights, from which backwards "
               "gather them (hpZ of ZeRO++); 0: no such copy",
               "secondary_ranks", kMostReplicas},
              shards_weights},
    SweptFlag{{"--weight-compression", "none",
               "stage 3, a list: encoding of weights in all-gathers over all ranks that share them (qwZ): none, int8, "
               "int4, fp8",
               "weight_compression"},
              shards_weights},
    SweptFlag{{"--compression", "none",
               "stages 1 to 3, a list: encoding of gradients in reduce-scatters (qgZ): none, int8, int4, fp8, sign",
               "compression"},
              is_sharded},
    SweptFlag{{"--near-ranks", "0",
               "with --compression, a list: neighbouring ranks that sum gradients first, so that only sums go further "
               "(qgZ in two hops); 0: one exchange among all",
               "near_ranks", kMostReplicas},
              [](const Layout& row) { return row.compression.given(); }},
    SweptFlag{{"--prefetch", "1,0", "stage 3, a list: 1 prefetches units, 0 gathers them when they are needed",
               "overlap_params"},
              shards_weights},
    SweptFlag{{"--offload", "none",
               "where tensors are while no kernel uses them, a list: none (on the device), host or file (the "
               "optimizer's states), or kinds joined by '+', such as optimizer:file+parameters:host",
               "offload"}},
    SweptFlag{{"--update", "step_end",
               "when weights are updated, a list: step_end (all at once, when the norm of all gradients is known), "
               "per_bucket (each gradient bucket after its last reduction, between kernels of the backward; which then "
               "frees its gradients)",
               "update"}},
};

constexpr std::array kFlagsOfLayout{
    LayoutFlag{"--recompute", "none", "activations that the backward recomputes: none, selective or full", "recompute"},
    LayoutFlag{"--mlp-tiles", "1",
               "number of tiles of each MLP; tiles run, and with --zero 3 are gathered, sequentially", "mlp_tiles",
               65536},
    LayoutFlag{"--offload-ahead", "1",
               "number of layers by which copies of offloaded activations and weights begin in advance",
               "offload_ahead", 1024},
    LayoutFlag{"--bucket-cap-mb", "25",
               "MiB of gradients per bucket in stages 0 to 2; the first bucket has 1 MiB; 0: one bucket for all",
               "bucket_mb"},
};

const std::array kFlags{
    Flag{"--optimizer", "adamw", "optimizer with its usual numbers: sgd, momentum, rmsprop, adam or adamw",
         [](ZeroFlags& f, const FlagValue& v) {
           trainer::TrainOptions& options = f.step.options;
           workload::set_field(options.layout, "optimizer", v);
           options.optimizer = kernels::rule_of(options.layout.optimizer).usual;
         }},
    Flag{"--offload-folder", "", "folder of the files of --offload file [the system's for temporary files]",
         [](ZeroFlags& f, const FlagValue& v) { f.step.options.offload_folder = program::file_name(v); }},
    Flag{"--device-memory", "0",
         "memory limit for a rank's tensors in bytes (512M, 2G): rows that need more are refused; 0: the available "
         "memory",
         [](ZeroFlags& f, const FlagValue& v) { f.step.options.device_memory = v.size_bytes(); }},
    Flag{"--psi", "7.5e9", "number of parameters for the ZeRO paper's table in the heading",
         [](ZeroFlags& f, const FlagValue& v) { f.psi = v.number(0, 1e15); }},
    Flag{"--psi-ranks", "64", "number of ranks for that table",
         [](ZeroFlags& f, const FlagValue& v) { f.psi_ranks = program::integer(v, 1, 1 << 24); }},
};

// Narrow gradients have the dtype of the weights.
std::vector<Layout> layouts_of(const StepFlags& flags) {
  std::vector<Layout> layouts = swept_layouts(flags);
  std::erase_if(layouts,
                [](const Layout& row) { return row.gradient != core::DType::f32 && row.gradient != row.compute; });
  return layouts;
}

}  // namespace

ZeroFlags parse_zero_flags(int argc, const char* const* argv) {
  auto flags =
      parse_step_line<ZeroFlags>(argc, argv, ": bytes held, bytes sent and step time per rank, for each stage of ZeRO.",
                                 "Sharding", kFlagsOfLayout, kSwept, kFlags);
  const Layout& layout = flags.step.options.layout;
  if (layout.mlp_tiles > 1 && layout.recompute == workload::Recompute::full) {
    throw core::usage_error(
        "--mlp-tiles cannot be combined with --recompute full here: its third gather of weights is missing from the "
        "formulas; allowed: one of the two, or both with mini_train --layout");
  }
  if (layouts_of(flags.step).empty()) {
    throw core::usage_error("--grad-dtype matches no dtype of --dtype; allowed: f32, or a dtype that --dtype lists");
  }
  return flags;
}

std::vector<TrainOptions> zero_rows(const ZeroFlags& flags) {
  std::vector<TrainOptions> rows;
  for (const Layout& layout : layouts_of(flags.step)) rows.push_back(zero_row(flags.step, layout));
  return rows;
}

TrainOptions zero_row(const StepFlags& flags, const Layout& layout) {
  if (layout.shard_ranks == 1)
    throw core::usage_error("--shard-ranks 1 shards nothing, as --zero 0 does; allowed: 0 (all ranks), or 2 and more");
  TrainOptions options = with_layout(flags, layout);
  if (layout.update == workload::Update::per_bucket)
    options.most_norm = 0;  // with updates per bucket the norm is known too late for clipping
  return trainer::checked(options);
}

}  // namespace lockstep::parallel_bench
