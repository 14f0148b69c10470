#include "bench/parallel/zero.h"

#include <algorithm>
#include <array>

#include "bench/trainer/flags.h"
#include "core/error.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<ZeroFlags>;

std::vector<core::DType> dtypes_of(const FlagValue& value) {
  std::vector<core::DType> dtypes;
  for (const FlagValue& part : value.list()) dtypes.push_back(mini_train::dtype_of(part));
  return dtypes;
}

std::vector<bool> switches_of(const FlagValue& value) {
  std::vector<bool> switches;
  for (const FlagValue& part : value.list()) switches.push_back(part.yes_or_no());
  return switches;
}

std::vector<workload::OffloadPlaces> offloads_of(const FlagValue& value) {
  std::vector<workload::OffloadPlaces> places;
  for (const FlagValue& part : value.list()) {
    places.push_back(workload::parse_layout("offload=" + part.text).offload);
  }
  return places;
}

std::vector<workload::Update> updates_of(const FlagValue& value) {
  std::vector<workload::Update> updates;
  for (const FlagValue& part : value.list()) updates.push_back(workload::parse_layout("update=" + part.text).update);
  return updates;
}

std::vector<workload::CompressionWay> weight_ways_of(const FlagValue& value) {
  std::vector<workload::CompressionWay> ways;
  for (const FlagValue& part : value.list()) {
    ways.push_back(workload::parse_layout("weight_compression=" + part.text).weight_compression);
  }
  return ways;
}

std::vector<workload::Compression> compressions_of(const FlagValue& value) {
  std::vector<workload::Compression> ways;
  for (const FlagValue& part : value.list()) ways.push_back(mini_train::compression_of(part));
  return ways;
}

const std::array kFlags{
    Flag{"--zero", "0,1,2,3",
         "ZeRO stages, a list: 0 shards nothing, 1 the optimizer's state, 2 also gradients, 3 also weights",
         [](ZeroFlags& f, const FlagValue& v) { f.stages = program::integer_list(v, 0, 3); }},
    Flag{"--shard-ranks", "0",
         "neighbouring ranks that share one set of shards, in stages 1 to 3, a list; other ranks have replicas of it "
         "(HSDP); "
         "0: all ranks share one set",
         [](ZeroFlags& f, const FlagValue& v) { f.shard_ranks = program::integer_list(v, 0, kMostReplicas); }},
    Flag{"--secondary-ranks", "0",
         "stage 3, a list: neighbouring ranks that share a secondary copy of the weights, from which backwards gather "
         "them (hpZ of ZeRO++); 0: no such copy",
         [](ZeroFlags& f, const FlagValue& v) { f.secondary_ranks = program::integer_list(v, 0, kMostReplicas); }},
    Flag{"--weight-compression", "none",
         "stage 3, a list: encoding of weights in all-gathers over all ranks that share them (qwZ): none, int8, int4, "
         "fp8",
         [](ZeroFlags& f, const FlagValue& v) { f.weight_compression = weight_ways_of(v); }},
    Flag{"--compression", "none",
         "stages 1 to 3, a list: encoding of gradients in reduce-scatters (qgZ): none, int8, int4, fp8, sign",
         [](ZeroFlags& f, const FlagValue& v) { f.compression = compressions_of(v); }},
    Flag{"--near-ranks", "0",
         "with --compression, a list: neighbouring ranks that sum gradients first, so that only sums travel further "
         "(qgZ in two hops); 0: one exchange among all",
         [](ZeroFlags& f, const FlagValue& v) { f.near_ranks = program::integer_list(v, 0, kMostReplicas); }},
    Flag{"--prefetch", "1,0", "stage 3, a list: 1 gathers units ahead of their use, 0 when they are needed",
         [](ZeroFlags& f, const FlagValue& v) { f.prefetch = switches_of(v); }},
    Flag{"--dtype", "f32,bf16", "dtypes of weights and activations, a list: f32, bf16, f16 (with f32 master weights)",
         [](ZeroFlags& f, const FlagValue& v) { f.compute = dtypes_of(v); }},
    Flag{"--grad-dtype", "f32", "dtypes of gradients, a list; one other than f32 runs only with the same --dtype",
         [](ZeroFlags& f, const FlagValue& v) { f.gradient = dtypes_of(v); }},
    Flag{"--offload", "none",
         "where tensors are while no kernel uses them, a list: none (on the device), host or file (the optimizer's "
         "states), or kinds joined by '+', such as optimizer:file+parameters:host",
         [](ZeroFlags& f, const FlagValue& v) { f.offload = offloads_of(v); }},
    Flag{"--recompute", "none", "activations that the backward recomputes: none, selective or full",
         [](ZeroFlags& f, const FlagValue& v) {
           f.step.options.layout = workload::parse_layout_over(f.step.options.layout, "recompute=" + v.text);
         }},
    Flag{"--optimizer", "adamw", "optimizer with its usual numbers: sgd, momentum, rmsprop, adam or adamw",
         [](ZeroFlags& f, const FlagValue& v) {
           trainer::TrainOptions& options = f.step.options;
           options.layout = workload::parse_layout_over(options.layout, "optimizer=" + v.text);
           options.optimizer = kernels::rule_of(options.layout.optimizer).usual;
         }},
    Flag{"--mlp-tiles", "1", "tiles of each MLP, which run, and with --zero 3 are gathered, one by one",
         [](ZeroFlags& f, const FlagValue& v) { f.step.options.layout.mlp_tiles = program::integer(v, 1, 65536); }},
    Flag{"--offload-ahead", "1", "layers whose time the copies of activations have, and of weights that are offloaded",
         [](ZeroFlags& f, const FlagValue& v) { f.step.options.layout.offload_ahead = program::integer(v, 0, 1024); }},
    Flag{
        "--update", "step_end",
        "when weights are updated, a list: step_end (all at once, when the norm of all gradients is known), per_bucket "
        "(each gradient bucket behind its last reduction, between kernels of the backward; then its gradients are "
        "given up)",
        [](ZeroFlags& f, const FlagValue& v) { f.update = updates_of(v); }},
    Flag{"--bucket-cap-mb", "25",
         "MiB of gradients per bucket in stages 0 to 2; the first bucket has 1 MiB; 0: one bucket for all",
         [](ZeroFlags& f, const FlagValue& v) {
           f.step.options.layout.bucket_cap_bytes = static_cast<std::int64_t>(v.number_from(0, 1e6) * (1 << 20));
         }},
    Flag{"--offload-folder", "", "folder of the files of --offload file [the system's for temporary files]",
         [](ZeroFlags& f, const FlagValue& v) { f.step.options.offload_folder = program::file_name(v); }},
    Flag{"--device-memory", "0",
         "bytes (512M, 2G) that a rank's tensors may take: a row that needs more is refused; 0: what there is",
         [](ZeroFlags& f, const FlagValue& v) { f.step.options.device_memory = v.size_bytes(); }},
    Flag{"--psi", "7.5e9", "parameters for which the heading prints the table of the ZeRO paper",
         [](ZeroFlags& f, const FlagValue& v) { f.psi = v.number(0, 1e15); }},
    Flag{"--psi-ranks", "64", "ranks for which it prints that table",
         [](ZeroFlags& f, const FlagValue& v) { f.psi_ranks = program::integer(v, 1, 1 << 24); }},
};

}  // namespace

ZeroFlags parse_zero_flags(int argc, const char* const* argv) {
  ZeroFlags flags;
  begin_step_flags(argc, argv, flags.step);
  program::CommandLine line(flags.step.program +
                            ": bytes held, bytes sent and step time per rank, for each stage of ZeRO.");
  declare_step_flags(line, flags.step);
  declare_all(line, kFlags, "Sharding");
  line.parse(argc, argv);
  read_step_flags(line, flags.step);
  read_all(line, kFlags, flags);
  const workload::Layout& layout = flags.step.options.layout;
  if (layout.mlp_tiles > 1 && layout.recompute == workload::Recompute::full) {
    throw core::usage_error(
        "--mlp-tiles cannot be combined with --recompute full here: its third gather of weights is missing from the "
        "formulas; allowed: one of the two, or both with mini_train --layout");
  }
  if (zero_rows(flags).empty()) {
    throw core::usage_error("--grad-dtype fits no dtype of --dtype; allowed: f32, or a dtype that --dtype lists");
  }
  return flags;
}

namespace {

// Repeats each row for every value of a list, if the row uses that list.
template <class Value, class Takes>
void spread(std::vector<ZeroRow>& rows, const std::vector<Value>& values, Value ZeroRow::*field, const Takes& takes) {
  std::vector<ZeroRow> all;
  for (const ZeroRow& row : rows) {
    if (!takes(row)) {
      all.push_back(row);
      continue;
    }
    for (const auto& value : values) {
      all.push_back(row);
      all.back().*field = static_cast<Value>(value);
    }
  }
  rows = std::move(all);
}

}  // namespace

std::vector<ZeroRow> zero_rows(const ZeroFlags& flags) {
  const auto always = [](const ZeroRow&) { return true; };
  const auto is_sharded = [](const ZeroRow& row) { return row.stage > 0; };
  const auto shards_weights = [](const ZeroRow& row) { return row.stage == 3; };
  std::vector<ZeroRow> rows(1);
  spread(rows, flags.step.replicas, &ZeroRow::replicas, always);
  spread(rows, flags.compute, &ZeroRow::compute, always);
  spread(rows, flags.gradient, &ZeroRow::gradient, always);
  std::erase_if(rows,
                [](const ZeroRow& row) { return row.gradient != core::DType::f32 && row.gradient != row.compute; });
  spread(rows, flags.stages, &ZeroRow::stage, always);
  spread(rows, flags.shard_ranks, &ZeroRow::shard_ranks, is_sharded);
  spread(rows, flags.secondary_ranks, &ZeroRow::secondary_ranks, shards_weights);
  spread(rows, flags.weight_compression, &ZeroRow::weight_compression, shards_weights);
  spread(rows, flags.compression, &ZeroRow::compression, is_sharded);
  spread(rows, flags.near_ranks, &ZeroRow::near_ranks, [](const ZeroRow& row) { return row.compression.given(); });
  spread(rows, flags.prefetch, &ZeroRow::prefetch, shards_weights);
  spread(rows, flags.offload, &ZeroRow::offload, always);
  spread(rows, flags.update, &ZeroRow::update, always);
  return rows;
}

trainer::TrainOptions options_of(const ZeroFlags& flags, const ZeroRow& row) {
  if (row.shard_ranks == 1)
    throw core::usage_error("--shard-ranks 1 shards nothing, as --zero 0 does; allowed: 0 (all ranks), or 2 and more");
  trainer::TrainOptions options = flags.step.options;
  options.layout.dp = row.replicas;
  mini_train::set_sequences(flags.step.sequences, options.layout);
  options.layout.shard_ranks = row.shard_ranks;
  options.layout.zero = row.stage;
  options.layout.prefetch = row.prefetch;
  options.layout.secondary_ranks = row.secondary_ranks;
  options.layout.weight_compression = row.weight_compression;
  options.layout.compression = row.compression;
  options.layout.near_ranks = row.near_ranks;
  options.layout.gradient = row.gradient;
  options.layout.compute = row.compute;
  options.layout.offload = row.offload;
  options.layout.update = row.update;
  if (row.update == workload::Update::per_bucket)
    options.most_norm = 0;  // with updates per bucket the norm is known too late for clipping
  return trainer::checked(options);
}

}  // namespace lockstep::parallel_bench
