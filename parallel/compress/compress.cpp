#include "parallel/compress/compress.h"

#include <array>

#include "core/error.h"
#include "parallel/compress/reductions.h"

namespace lockstep::parallel {
namespace {

constexpr std::array<std::string_view, 3> kNames{"none", "bf16", "int8"};

}  // namespace

std::string_view name_of(Compression compression) {
  return kNames[static_cast<std::size_t>(compression)];
}

Compression parse_compression(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Compression>(i);
  }
  throw core::usage_error("compression '" + std::string(name) + "'; allowed: none, bf16, int8");
}

std::int64_t wire_bytes(Compression compression, std::int64_t elems, int num_ranks) {
  const std::int64_t others = num_ranks - 1;
  if (compression == Compression::int8) return 2 * others * Shares(elems, num_ranks).message_bytes();
  const std::int64_t elem_bytes = compression == Compression::bf16 ? 2 : 4;
  return (2 * others * elem_bytes * elems + num_ranks - 1) / num_ranks;
}

backends::Prepared prepare_reduction(const GradientReduction& reduction, const PrepareCollective& prepare,
                                     Memory& memory, const kernels::Context& where) {
  LOCKSTEP_CHECK(reduction.op == core::ReduceOp::sum || reduction.op == core::ReduceOp::avg, "gradients are added");
  LOCKSTEP_CHECK(reduction.elems > 0, "nothing to reduce");
  if (reduction.num_ranks > 1 && reduction.compression == Compression::bf16) {
    return prepare_bf16(reduction, prepare, memory, where);
  }
  if (reduction.num_ranks > 1 && reduction.compression == Compression::int8) {
    return prepare_int8(reduction, prepare, memory, where);
  }
  collectives::Operation operation;  // a rank alone sends nothing, and loses nothing
  operation.count = reduction.elems;
  operation.op = reduction.op;
  operation.in_place = reduction.in_place;
  return prepare(operation, reduction.algorithm);
}

}  // namespace lockstep::parallel
