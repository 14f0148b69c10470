// A block as a part of the step model: the operations of one layer, of the embedding or of the head that it times, and
// results that follow from them without running anything.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/tp_linear/shape.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameter.h"

namespace lockstep::tp_linear {

// Operations on `ranks` tensor-parallel ranks; a single rank has no exchanges. A linear layer alone has no GELU, the
// loss no product.
std::vector<workload::Operation> operations_of(BlockKind kind, const Shape& shape, const Sharing& sharing);

// The matrix of a product, and its bias.
struct LinearParameters {
  workload::Parameter weight;
  workload::Parameter bias;
};
LinearParameters parameters_of(workload::OperationKind product, const Shape& shape);

// Bytes sent by all ranks together in a forward and a backward, with collectives of minimal traffic.
std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing);

// Approximate bytes that the kernels of a forward and a backward read and write, which one rank holds all the time.
std::int64_t needed_bytes(BlockKind kind, const Shape& shape, const Sharing& sharing);

}  // namespace lockstep::tp_linear
