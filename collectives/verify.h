// Verification of collectives: inputs whose every partial result is exact, and the outputs that they must give.
//
// Inputs are functions of (seed, round, rank, block, element). For reductions they are chosen so that any grouping and
// any order of the operands gives the same bits in the dtype itself; results are compared bit for bit, with no
// tolerance and no reference reduction. The idea is nccl-tests' (verifiable/); how each case is kept exact:
//
//   sum, avg  floats: integers with sum of |x| <= 2^significand_bits; with too many ranks for that, the position
//             decides which of them are zero. Integers: any bits for sum (wrap-around has no order); for avg the sum
//             fits, so that int8 averages of 128 ranks and more (uint8: 256) are all zero and show little. avg has one
//             sign per position, so that its quotient is far from cancellation.
//   prod      floats: powers of two and signs, bounded so that no partial product leaves the normal range, times one
//             significand at one rank per position. Integers: odd numbers (invertible: a missing factor always shows).
//   max, min  any finite non-zero number (no NaN, no -0: those have no order).
//   copies    any bits.
//
// Speed: a rank's input is one pattern of a prime number of elements, repeated; block and round only shift the start of
// a block in the pattern. Filling is memcpy and checking is memcmp, of cache-sized tiles. Data displaced by d elements
// compare equal only if the prime divides d, and a prime that divides `count` is not used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::collectives {

// Inputs of ranks and their results: the same for all operations that reduce alike and have the same period.
struct Patterns {
  using Pattern = std::vector<std::byte>;  // `period` elements
  std::size_t period;
  std::vector<Pattern> inputs;  // [rank]
  Pattern reduced;              // the inputs' sum; empty unless the collective reduces
};
Patterns make_patterns(const Operation& operation, int num_ranks, std::uint64_t seed);
std::size_t pattern_period(const Operation& operation);

// Made once per operation; const calls may come from several threads at once. The buffers hold the blocks of
// input_offsets() and output_offsets() and are aligned to the element.
class Verifier {
 public:
  // `average_ulps`: error allowed in a result of avg for floats, for libraries that scale inputs in place of dividing
  // the sum (NCCL; nccl-tests allows 2). Everything else is always exact.
  Verifier(const Operation& operation, int num_ranks, std::uint64_t seed, int average_ulps = 0);
  // Uses the patterns of another verifier for the same number of ranks and this seed.
  Verifier(const Operation& operation, std::shared_ptr<const Patterns> patterns, std::uint64_t seed,
           int average_ulps = 0);

  void fill_input(int rank, std::uint64_t round, void* input) const;
  // Writes values that no correct output holds: every element differs from its expected value. In place: poison first,
  // then fill.
  void fill_poison(int rank, std::uint64_t round, void* output) const;
  // Number of wrong elements in a rank's output. Zero if the rank has no output.
  std::int64_t count_wrong(int rank, std::uint64_t round, const void* output) const;

 private:
  // A block of a buffer: its position, and its start in a pattern.
  struct Piece {
    std::size_t offset_bytes;
    std::size_t size_bytes;
    const Patterns::Pattern* pattern;
    std::size_t phase_bytes;
  };
  std::vector<Piece> input_pieces(int rank, std::uint64_t round) const;
  std::vector<Piece> output_pieces(int rank, std::uint64_t round) const;
  std::size_t phase_bytes(int block, std::uint64_t round) const;
  std::int64_t wrong_elements(const Piece& piece, const std::byte* block) const;

  Operation operation_;
  int num_ranks_;
  std::uint64_t seed_;
  int average_ulps_;
  std::shared_ptr<const Patterns> patterns_;
};

std::int64_t input_bytes(const Operation& operation, int num_ranks, int rank);
std::int64_t output_bytes(const Operation& operation, int num_ranks, int rank);

// One buffer that holds a rank's input and output in place, by in_place_alias().
struct InPlaceLayout {
  std::int64_t buffer_bytes;
  std::int64_t input_at;  // bytes from the start of the buffer
  std::int64_t output_at;
};
InPlaceLayout in_place_layout(const Operation& operation, int num_ranks, int rank);

}  // namespace lockstep::collectives
