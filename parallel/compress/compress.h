// All-reduces of f32 gradients that send fewer bytes (workload/compression.h): communication hooks on buckets.
//
// All ranks get the same bits; with bf16 if they do from the all-reduce. NaN and infinity stay visible on every rank:
// codes make the whole block NaN, powersgd the whole bucket; topk and threshold send NaN first; randomk when it is
// drawn, as what is owed keeps it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "collectives/backends/backend.h"
#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/context.h"
#include "parallel/memory/memory.h"
#include "workload/compression.h"

namespace lockstep::parallel {

using workload::Compression;
using workload::CompressionWay;

// As MeshRank::prepare does it for one channel.
using PrepareCollective =
    std::function<backends::Prepared(const collectives::Operation& operation, std::string_view algorithm)>;

// How often a reduction that remembers was run: 0 forgets all that came before.
struct CompressionState {
  std::int64_t calls = 0;
};

struct GradientReduction {
  Compression compression = {};
  std::int64_t elems = 0;                   // f32
  core::ReduceOp op = core::ReduceOp::sum;  // or avg
  bool in_place = false;
  int num_ranks = 1;
  int rank = 0;                       // of this one among them
  std::string algorithm = "auto";     // of all-reduces: of none, bf16, randomk and powersgd
  std::uint64_t seed = 0;             // of what randomk and powersgd draw; the same on all ranks
  CompressionState* state = nullptr;  // of this bucket's gradients alone, where Compression::remembers()
};

// An all-reduce for any caller of Collective::run(input, output): f32 on `memory`'s device. Kernels run on `where`, in
// the thread that calls run(); but for none, bf16 and int8 that is a CPU. All ranks prepare theirs at the same place of
// their order. What it refers to outlives it.
backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where);

// The reduce-scatter of codes, of as many elements a rank: run(input [elems], output [elems / num_ranks]), whose output
// may be the own share of the input.
backends::Prepared prepare_reduce_scatter(const GradientReduction& reduction, const PrepareCollective& prepare,
                                          Memory& memory, const kernels::Context& where);

// An all-gather of weights as codes: run(input [elems], output [num_ranks * elems]).
struct WeightGather {
  CompressionWay way = CompressionWay::int8;
  std::int64_t elems = 0;  // of a rank
  core::DType dtype = core::DType::f32;
  int num_ranks = 1;
  int rank = 0;
};
backends::Prepared prepare_weight_gather(const WeightGather& wanted, const PrepareCollective& prepare, Memory& memory,
                                         const kernels::Context& where);

}  // namespace lockstep::parallel
