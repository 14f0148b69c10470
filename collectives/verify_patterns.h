// Input patterns of verify.h: for each rank an array of elements that reduce exactly in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace lockstep::collectives {

// Any bits: for collectives that only move data.
std::vector<std::byte> copy_pattern(core::DType dtype, int rank, std::uint64_t seed, std::size_t length);

// Rank `rank`'s operands of a reduction over num_ranks.
std::vector<std::byte> operand_pattern(core::DType dtype, core::ReduceOp op, int rank, int num_ranks,
                                       std::uint64_t seed, std::size_t length);

}  // namespace lockstep::collectives
