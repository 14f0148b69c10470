// Pseudo-random numbers that depend only on their seed: the same on every machine and compiler.
#pragma once

#include <cstdint>

namespace lockstep::core {

// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
// every bit of the result depends on every bit of the argument.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// One number for each (seed, a, b): random access, no state.
constexpr std::uint64_t hash64(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) {
  return mix64(mix64(mix64(seed) ^ a) ^ b);
}

// A stream of numbers. Cheap enough to be made wherever one is needed; not to be shared between threads.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t next() {
    const std::uint64_t value = mix64(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }
  // Returns a number below `bound`, which is in (0, 2^32]. The bias is below bound / 2^32.
  constexpr std::uint64_t below(std::uint64_t bound) { return ((next() >> 32) * bound) >> 32; }
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::core
