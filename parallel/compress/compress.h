// All-reduces of f32 gradients that send fewer bytes (workload/compression.h): communication hooks on buckets.
//
// All ranks get the same bits (with bf16 if the underlying all-reduce gives them). NaN and infinity reach every rank:
// codes turn the whole block into NaN, powersgd the whole bucket; topk and threshold send NaN first; randomk sends it
// once it is drawn, because error feedback keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

// MeshRank::prepare for one channel.
using PrepareCollective =
    std::function<backends::Prepared(const collectives::Operation& operation, std::string_view algorithm)>;

// State that a reduction keeps from call to call. It belongs to one reduction, also across runs: a run that continues
// from a checkpoint sets `calls` and calls restore() before the first keep().
class CompressionState {
 public:
  std::int64_t calls = 0;  // number of calls so far; 0 resets all state

  // Registers f32 elements on the host that the next call reads; they must outlive this. Elements to be restored are
  // written now. A reduction registers its elements in a fixed order.
  void keep(const kernels::InOut& elements);
  const std::vector<kernels::InOut>& kept() const { return kept_; }
  // Values for the elements that are registered from now on, in order of registration.
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
  int rank = 0;                       // index of this one among them
  std::string algorithm = "auto";     // of all-reduces, for none, bf16, randomk and powersgd
  std::uint64_t seed = 0;             // for the random draws of randomk and powersgd; the same on all ranks
  CompressionState* state = nullptr;  // for this bucket's gradients only, if Compression::remembers()
};

// Returns an all-reduce on which any caller may call Collective::run(input, output), f32 on `memory`'s device. Kernels
// run on `where`, in the thread that calls run(); except for none, bf16 and int8 that must be a CPU. powersgd chooses
// implementations of products by rule (kernels::choose_gemms_by_rule), because all ranks must get the same bits. All
// ranks prepare theirs at the same point of their order. The arguments' referents must outlive it.
backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where);

// The reduce-scatter of codes, with equal shares: run(input [elems], output [elems / num_ranks]), where the output may
// be this rank's share of the input.
backends::Prepared prepare_reduce_scatter(const GradientReduction& reduction, const PrepareCollective& prepare,
                                          Memory& memory, const kernels::Context& where);

// The same in two hops, first among `near_ranks` neighbours and then between sets of neighbours. `near` and `far`
// prepare collectives of these ranks, in the order of their positions.
struct TwoHopCollectives {
  int near_ranks = 1;
  PrepareCollective near = {};
  PrepareCollective far = {};
};
backends::Prepared prepare_two_hop_scatter(const GradientReduction& reduction, const TwoHopCollectives& places,
                                           Memory& memory, const kernels::Context& where);

// An all-gather of weights as codes: run(input [elems], output [num_ranks * elems]).
struct WeightGather {
  CompressionWay way = CompressionWay::int8;
  std::int64_t elems = 0;  // per rank
  core::DType dtype = core::DType::f32;
  int num_ranks = 1;
  int rank = 0;
};
backends::Prepared prepare_weight_gather(const WeightGather& wanted, const PrepareCollective& prepare, Memory& memory,
                                         const kernels::Context& where);

// Error feedback: the part of a rank's elements that has not been sent yet, which is added to the elements sent next.
class ErrorFeedback {
 public:
  // [elems] f32 from `memory`, registered with `state`, which determines whether an error is pending. `state` and
  // `where`'s device must outlive this.
  ErrorFeedback(std::int64_t elems, CompressionState& state, Memory& memory, const kernels::Context& where);

  // Adds x [elems] to the pending error; the sum is to be sent now.
  void add(const kernels::In& x);
  const Tensor& owed() const { return owed_; }
  // Subtracts elements from `begin` on that were sent with `times` the values of `sent` [count].
  void take_off(std::int64_t begin, const kernels::In& sent, float times = 1);

 private:
  const CompressionState& state_;
  const kernels::Context where_;
  const Tensor owed_;
  const Tensor piece_;
};

// Encoding and decoding of blocks of f32 elements (workload/compression.h).
struct CodeFormat {
  std::string_view name;
  double most_error;  // per element, relative to the block's largest magnitude
  // x, y: [count] f32; codes and scales have the sizes of CodeShape.
  void (*encode)(const kernels::In& x, std::byte* codes, std::byte* scales, const kernels::Context& where);
  void (*decode)(const std::byte* codes, const std::byte* scales, const kernels::Out& y, const kernels::Context& where);
};

// Returns the format of a compression that sends codes.
const CodeFormat& format_of(workload::CompressionWay way);

// Constructors of the compressed all-reduces, each in a source of its own: see workload/compression.h.
backends::Prepared prepare_codes(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                 const kernels::Context& where);
backends::Prepared prepare_sparse(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where);
backends::Prepared prepare_random(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where);
backends::Prepared prepare_low_rank(const GradientReduction& reduction, const PrepareCollective& prepare,
                                    Memory& memory, const kernels::Context& where);

}  // namespace lockstep::parallel
