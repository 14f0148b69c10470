// Boundaries of the chunks of a block: the one definition, for executors, counts and tests.
#pragma once

#include <cstdint>

namespace lockstep::plan {

// First element of chunk i when `count` elements are cut into `chunks` chunks of nearly equal size: floor(i*count/k).
// Chunk i is [chunk_begin(i), chunk_begin(i + 1)); written so that i*count cannot overflow.
constexpr std::int64_t chunk_begin(std::int64_t count, std::int64_t chunks, std::int64_t i) {
  return count / chunks * i + count % chunks * i / chunks;
}

constexpr std::int64_t chunk_size(std::int64_t count, std::int64_t chunks, std::int64_t i) {
  return chunk_begin(count, chunks, i + 1) - chunk_begin(count, chunks, i);
}

}  // namespace lockstep::plan
