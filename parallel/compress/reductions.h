// The compressed all-reduces: see compress.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/compress/compress.h"

namespace lockstep::parallel {

backends::Prepared prepare_bf16(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where);
backends::Prepared prepare_int8(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where);

// How the ranks share out the elements of an int8 reduction. A share is whole blocks; the last ones may have fewer
// elements in use, or none. As a message: codes, then scales.
struct Shares {
  std::int64_t elems = 0;  // in all
  std::int64_t share = 0;  // elements of one

  Shares(std::int64_t elems_in_all, int num_ranks) : elems(elems_in_all) {
    const std::int64_t unit = kCompressionBlock * num_ranks;
    share = (elems_in_all + unit - 1) / unit * kCompressionBlock;
  }
  std::int64_t begin(int rank) const { return std::min(share * rank, elems); }
  std::int64_t used(int rank) const { return std::min(share * (rank + 1), elems) - begin(rank); }
  std::int64_t message_bytes() const { return share + share / kCompressionBlock * std::int64_t{sizeof(float)}; }
};

}  // namespace lockstep::parallel
