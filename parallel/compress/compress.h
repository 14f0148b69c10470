// All-reduces of f32 gradients that send fewer bytes: communication hooks.
//
//   none   as it is
//   bf16   rounded to bf16, summed in bf16 (f32 within a pass), widened again
//   int8   blocks of 256 elements as 8-bit codes and an f32 scale. Each rank sends each other its share of the elements
//          (all-to-all), sums its own share in f32, quantises the sum and sends it to all (all-gather): two roundings
//          whatever the number of ranks, and no sum of codes. ZeRO++'s qgZ with one hop: Wang et al. 2023,
//          arXiv:2306.10209, section 3.3.
//
// All ranks get the same bits with int8; with bf16 if they do from the all-reduce. NaN and infinity stay visible: int8
// makes the whole block NaN, on every rank.
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

namespace lockstep::parallel {

enum class Compression : std::uint8_t { none, bf16, int8 };
std::string_view name_of(Compression compression);      // "bf16"
Compression parse_compression(std::string_view name);   // throws a usage Error that lists what there is
inline constexpr std::int64_t kCompressionBlock = 256;  // elements to a scale

// Bytes that a rank sends in one all-reduce of `elems` elements among n ranks, by algorithms that send the least; the
// mean over ranks, rounded up, where shares differ.
//   none  2 (n - 1) / n * 4 elems
//   bf16  2 (n - 1) / n * 2 elems
//   int8  2 (n - 1) (s + 4 s / 256), with s = elems / n rounded up to whole blocks
std::int64_t wire_bytes(Compression compression, std::int64_t elems, int num_ranks);

// As MeshRank::prepare does it for one channel.
using PrepareCollective =
    std::function<backends::Prepared(const collectives::Operation& operation, std::string_view algorithm)>;

struct GradientReduction {
  Compression compression = Compression::none;
  std::int64_t elems = 0;                   // f32
  core::ReduceOp op = core::ReduceOp::sum;  // or avg
  bool in_place = false;
  int num_ranks = 1;
  int rank = 0;                    // of this one among them
  std::string algorithm = "auto";  // of the all-reduce of none and bf16
};

// An all-reduce for any caller of Collective::run(input, output): f32 on `memory`'s device. Kernels run on `where`, in
// the thread that calls run(). All ranks prepare theirs at the same place of their order. What it refers to outlives
// it.
backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where);

}  // namespace lockstep::parallel
