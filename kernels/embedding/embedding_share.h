// How threads share out the rows that an embedding's backward adds to, between embedding.cpp's parts.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// Of `shares` threads one's share of the table's rows: every so many groups of rows, each a page of memory at least. A
// processor that reads ahead does so within a page: it would take lines away from the thread that adds to them.
struct Share {
  std::int64_t number;
  std::int64_t shares;
  std::int64_t group_rows;

  bool has(std::int64_t row) const { return row >= 0 && row / group_rows % shares == number; }
};

}  // namespace lockstep::kernels
