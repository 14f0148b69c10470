// Compression of gradients between data-parallel ranks, as a user writes it: a name, then its numbers.
//
//   none       f32, unchanged
//   bf16       rounded to bf16, summed in bf16 (f32 within a pass), widened again
//   int8 int4 fp8 sign
//              blocks of elements as codes of 8, 4, 8 (E4M3) or 1 bits and an f32 scale
//   topk       the elements of largest magnitude, with their indices: Stich et al. 2018, arXiv:1809.07599; Lin et al.
//              2018, arXiv:1712.01887
//   threshold  elements of at least a magnitude, as many as there is room for, with their indices: Strom 2015
//   randomk    elements that a seed draws in each step, the same on all ranks: no indices are sent (Stich et al., 2.2)
//   powersgd   the bucket as a nearly square matrix, approximated by a product of two low-rank ones: Vogels et al.
// 2019,
//              arXiv:1905.13727, algorithms 1 and 2
//
// With error feedback a rank adds what it did not send to its next gradient of the same bucket (Seide et al. 2014;
// Karimireddy et al. 2019, arXiv:1901.09847).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::workload {

enum class CompressionWay : std::uint8_t { none, bf16, int8, int4, fp8, sign, topk, threshold, randomk, powersgd };

struct Compression {
  CompressionWay way = CompressionWay::none;
  double density = 0.01;  // topk, randomk: share of a bucket's elements that a rank sends; threshold: the most
  double at = 1e-3;       // threshold
  std::int32_t rank = 4;  // powersgd
  bool feedback = false;  // error feedback; not for none and bf16

  Compression() = default;
  Compression(CompressionWay of_way);  // NOLINT(google-explicit-constructor): with the default numbers
  bool operator==(const Compression&) const = default;

  bool given() const { return way != CompressionWay::none; }
  // Number of elements, of `elems`, that a rank sends with topk, threshold (at most) and randomk.
  std::int64_t sent_of(std::int64_t elems) const;
  // True if a call depends on earlier ones.
  bool remembers() const;
};

// "topk:density=0.01": the name, its numbers, and "feedback" if it differs from the default.
std::string text_of(const Compression& compression);
// Throws a usage Error that lists the alternatives.
Compression parse_compression(std::string_view text);
std::vector<std::string_view> compression_names();

// Format of codes for blocks of elements with an f32 scale each: a message is codes, then scales.
struct CodeShape {
  int bits = 8;              // per code; the codes in a byte follow each other from its lowest bit
  std::int64_t block = 256;  // elements per scale

  std::int64_t blocks(std::int64_t elems) const { return (elems + block - 1) / block; }
  std::int64_t code_bytes(std::int64_t elems) const { return (elems * bits + 7) / 8; }
  // Offset of the scales in a message of this many elements: at a whole f32.
  std::int64_t scales_at(std::int64_t elems) const { return (code_bytes(elems) + 3) / 4 * 4; }
  std::int64_t message_bytes(std::int64_t elems) const { return scales_at(elems) + 4 * blocks(elems); }
};
bool sends_codes(CompressionWay way);
CodeShape code_shape(CompressionWay way);  // for a compression that has codes

// How ranks share a bucket whose parts travel as codes: a share is whole blocks; the last shares may have fewer used
// elements, or none.
struct Shares {
  CodeShape shape = {};
  std::int64_t elems = 0;  // in total
  std::int64_t share = 0;  // per share

  Shares(const CodeShape& of_codes, std::int64_t elems_in_all, int num_ranks) : shape(of_codes), elems(elems_in_all) {
    const std::int64_t unit = shape.block * num_ranks;
    share = (elems_in_all + unit - 1) / unit * shape.block;
  }
  // Equal numbers of elements, as in a reduce-scatter: the last block of each share may be partial.
  static Shares even(const CodeShape& of_codes, std::int64_t elems_in_all, int num_ranks) {
    Shares shares(of_codes, elems_in_all, num_ranks);
    shares.share = elems_in_all / num_ranks;
    return shares;
  }
  std::int64_t begin(int rank) const { return std::min(share * rank, elems); }
  std::int64_t used(int rank) const { return std::min(share * (rank + 1), elems) - begin(rank); }
  std::int64_t message_bytes() const { return shape.message_bytes(share); }
};

// A bucket of elements as a nearly square matrix, whose last row is padded with zeros, and the rank of its
// approximation, which is at most what the matrix allows.
struct MatrixShape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t rank;

  MatrixShape(std::int64_t elems, std::int64_t wanted_rank);
  std::int64_t elems() const { return rows * columns; }
};

// The collectives that replace an all-reduce of `elems` f32 elements over n ranks, in order.
struct CompressedExchange {
  schedules::Comm comm = schedules::Comm::all_reduce;
  std::int64_t bytes = 0;  // payload (schedules/step/step.h)
};
std::vector<CompressedExchange> exchanges_of(const Compression& compression, std::int64_t elems, std::int64_t ranks);

// The same for a reduce-scatter of codes, whose output is a rank's equal share, and for an all-gather of weights,
// `elems` in total.
CompressedExchange scatter_of(const Compression& compression, std::int64_t elems, std::int64_t ranks);
// A reduce-scatter of codes in two hops (Wang et al. 2023, section 4.3): among `near_ranks` neighbours, each of which
// gets the sums for its position in every set of neighbours; then of those sums between sets.
struct TwoHops {
  CompressedExchange near = {};
  CompressedExchange far = {};
};
TwoHops two_hops_of(const Compression& compression, std::int64_t elems, std::int64_t ranks, std::int64_t near_ranks);
CompressedExchange weight_gather_of(CompressionWay way, std::int64_t elems, std::int64_t ranks);

// Bytes of memory that a rank reads and writes in kernels around them: encoding, sums of received data, decoding, and
// error feedback.
double kernel_bytes(const Compression& compression, std::int64_t elems, std::int64_t ranks);

// Bytes that a rank sends in one all-reduce of `elems` f32 elements over n ranks, with algorithms of minimal traffic;
// the mean over ranks, rounded up, if shares differ.
//   none       2 (n - 1) / n * 4 elems
//   bf16       2 (n - 1) / n * 2 elems
//   codes      2 (n - 1) message(s): codes and scales of s = elems / n elements, rounded up to whole blocks
//   topk       (n - 1) * 8 k; threshold 8 more for their number, and the same if fewer are sent
//   randomk    2 (n - 1) / n * 4 k
//   powersgd   2 (n - 1) / n * 4 rank (rows + columns)
std::int64_t wire_bytes(const Compression& compression, std::int64_t elems, int num_ranks);
// For one exchange.
std::int64_t wire_bytes(const CompressedExchange& exchange, int num_ranks);

}  // namespace lockstep::workload
