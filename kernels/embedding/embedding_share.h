// Splits the table rows that an embedding's backward adds to among threads.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// One thread's part of the table rows, of `shares` parts: every `shares`-th group of rows, each group at least one page
// of memory. The hardware prefetcher stays within a page, so it does not take cache lines away from another thread that
// adds to them.
struct Share {
  std::int64_t number;
  std::int64_t shares;
  std::int64_t group_rows;

  bool has(std::int64_t row) const { return row >= 0 && row / group_rows % shares == number; }
};

}  // namespace lockstep::kernels
