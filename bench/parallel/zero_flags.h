// The command line of zero_bench.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/parallel/step_rank.h"

namespace lockstep::parallel_bench {

struct ZeroFlags {
  StepFlags step;
  std::vector<int> stages{0, 1, 2, 3};
  std::vector<int> shard_ranks{0};  // stages 1 to 3: ranks that share one set of shards; 0: all
  // Stage 3: ranks that share a secondary copy of the weights, and the encoding in which weights are gathered.
  std::vector<int> secondary_ranks{0};
  std::vector<workload::CompressionWay> weight_compression{workload::CompressionWay::none};
  // Stages 1 to 3: the encoding of gradients on the wire, and the number of neighbours that sum them first.
  std::vector<workload::Compression> compression{workload::Compression{}};
  std::vector<int> near_ranks{0};
  std::vector<bool> prefetch{true, false};  // stage 3
  std::vector<core::DType> compute{core::DType::f32, core::DType::bf16};
  std::vector<core::DType> gradient{core::DType::f32};
  std::vector<workload::OffloadPlaces> offload{workload::OffloadPlaces{}};
  std::vector<workload::Update> update{workload::Update::step_end};
  // Model of the table from the paper that the heading prints.
  double psi = 7.5e9;
  int psi_ranks = 64;
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ZeroFlags parse_zero_flags(int argc, const char* const* argv);

// One row of the table.
struct ZeroRow {
  int replicas = 2;
  int stage = 0;
  bool prefetch = true;
  core::DType compute = core::DType::f32;
  core::DType gradient = core::DType::f32;  // f32, or the same as compute
  int shard_ranks = 0;                      // ranks that share one set of shards; 0: all
  workload::OffloadPlaces offload = {};
  workload::Update update = workload::Update::step_end;
  int secondary_ranks = 0;
  workload::CompressionWay weight_compression = workload::CompressionWay::none;
  workload::Compression compression = {};
  int near_ranks = 0;

  int shards() const { return stage > 0 && shard_ranks > 0 ? shard_ranks : replicas; }
};
std::vector<ZeroRow> zero_rows(const ZeroFlags& flags);
trainer::TrainOptions options_of(const ZeroFlags& flags, const ZeroRow& row);  // checked

}  // namespace lockstep::parallel_bench
