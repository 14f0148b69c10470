#include "bench/parallel/zero_records.h"

#include <algorithm>
#include <cmath>

#include "bench/pipeline/records.h"
#include "bench/trainer/records.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;

core::NamedNumbers by_kind(const parallel::BytesByKind& bytes) {
  core::NamedNumbers named;
  for (std::size_t k = 0; k < parallel::kNumMemoryKinds; ++k) {
    named.emplace_back(parallel::name_of(static_cast<MemoryKind>(k)), static_cast<double>(bytes[k]));
  }
  return named;
}

core::NamedNumbers by_offload_kind(const parallel::OffloadedBytes& bytes) {
  return {{"optimizer", static_cast<double>(bytes[0])},
          {"gradients", static_cast<double>(bytes[1])},
          {"parameters", static_cast<double>(bytes[2])}};
}

core::NamedNumbers with_total(core::NamedNumbers named, double total) {
  named.emplace_back("total", total);
  return named;
}

core::NamedNumbers sent_by_name(const ZeroRow& row, const SentBytes& sent) {
  core::NamedNumbers named{{"weights", sent.weights}, {"gradients", sent.gradients}, {"over_replicas", sent.replicas}};
  if (row.secondary_ranks > 0) named.emplace_back("secondary", sent.secondary);
  if (row.near_ranks > 0) named.emplace_back("near", sent.near);
  return named;
}

}  // namespace

core::RunRecord zero_run_record(const ZeroFlags& flags) {
  const int most = *std::max_element(flags.step.replicas.begin(), flags.step.replicas.end());
  core::RunRecord run = pipeline::new_run_record(flags.step.program, flags.step.command, pipeline::Mode::real,
                                                 most * flags.step.options.threads);
  run.ranks = most;
  run.seed = flags.step.options.seed;
  program::add_place(flags.step.options.device, flags.step.options.mpi, most, run);
  return run;
}

core::ShardingRecord sharding_record(const core::RunRecord& run, const ZeroFlags& flags, const ZeroRow& row,
                                     const ZeroResult& result) {
  core::ShardingRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.model = mini_train::model_record(options_of(flags, row));
  record.ranks = row.replicas;
  record.threads = flags.step.options.threads;
  record.zero_stage = row.stage;
  record.shard_ranks = row.shards();
  record.prefetch = row.prefetch;
  record.dtype = core::short_name_of(row.compute);
  record.gradient_dtype = core::short_name_of(row.gradient);
  record.microbatches = flags.step.options.layout.microbatches;
  record.padded_elems = result.padded;
  record.held_bytes = by_kind(result.held);
  record.peak_bytes = with_total(by_kind(result.peak_of_each), static_cast<double>(result.peak_bytes));
  record.formula_bytes = by_kind(result.forms.held);
  record.sent_bytes = sent_by_name(row, result.sent);
  record.formula_sent_bytes = sent_by_name(row, result.forms.sent);
  if (row.secondary_ranks > 0) record.secondary_ranks = row.secondary_ranks;
  if (row.near_ranks > 0) record.near_ranks = row.near_ranks;
  if (row.compression.given()) record.compression = text_of(row.compression);
  if (row.weight_compression != workload::CompressionWay::none) {
    record.weight_compression = text_of(workload::Compression(row.weight_compression));
  }
  if (const std::string wrong = result.wrong(); !wrong.empty()) {
    record.status = "wrong";
    record.error = wrong;
  }
  record.samples_ms = result.samples_ms;
  record.energy = result.energy;
  record.offload = text_of(row.offload);
  record.update = row.update == workload::Update::per_bucket ? "per_bucket" : "step_end";
  record.offloaded_bytes = std::llround(result.offloaded_bytes());
  core::NamedNumbers moved = by_offload_kind(result.offloaded);
  moved.emplace_back("activations", static_cast<double>(result.activations_moved));
  record.offloaded_by_kind = moved;
  record.formula_offloaded_by_kind = by_offload_kind(result.forms.offloaded);
  record.update_ms = result.update_median_ms();
  return record;
}

}  // namespace lockstep::parallel_bench
