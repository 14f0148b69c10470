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
#include <utility>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "workload/compression.h"

namespace lockstep::parallel {

using workload::Compression;
using workload::CompressionWay;

// As MeshRank::prepare does it for one channel.
using PrepareCollective =
    std::function<backends::Prepared(const collectives::Operation& operation, std::string_view algorithm)>;

// What a reduction that remembers has from call to call. It is the same reduction again, as in a run that goes on from
// a checkpoint, where `calls` is set and restore() was called before anything was kept.
class CompressionState {
 public:
  std::int64_t calls = 0;  // how often it was run: 0 forgets all that came before

  // Tells of f32 elements on the host that the next call reads; they outlive this. Those that are to be restored are
  // written now. Reductions keep theirs in one order.
  void keep(const kernels::InOut& elements);
  const std::vector<kernels::InOut>& kept() const { return kept_; }
  // [as they are kept] the elements of what is kept from now on.
  void restore(std::vector<std::vector<float>> values) { to_restore_ = std::move(values); }

 private:
  std::vector<kernels::InOut> kept_;
  std::vector<std::vector<float>> to_restore_;
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
// the thread that calls run(); but for none, bf16 and int8 that is a CPU. For powersgd it chooses products by rule
// (kernels::choose_gemms_by_rule), as all ranks are to get the same bits. All ranks prepare theirs at the same place of
// their order. What it refers to outlives it.
backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where);

// The reduce-scatter of codes, of as many elements a rank: run(input [elems], output [elems / num_ranks]), whose output
// may be the own share of the input.
backends::Prepared prepare_reduce_scatter(const GradientReduction& reduction, const PrepareCollective& prepare,
                                          Memory& memory, const kernels::Context& where);

// The same in two hops, among `near_ranks` neighbours and then between sets of neighbours. `near` and `far` prepare
// collectives of these ranks, in the order of their places.
struct TwoHopPlaces {
  int near_ranks = 1;
  PrepareCollective near = {};
  PrepareCollective far = {};
};
backends::Prepared prepare_two_hop_scatter(const GradientReduction& reduction, const TwoHopPlaces& places,
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
