#include "workload/compression.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/options.h"

namespace lockstep::workload {
namespace {

using Way = CompressionWay;

constexpr std::array<std::string_view, 10> kNames{"none", "bf16", "int8",      "int4",    "fp8",
                                                  "sign", "topk", "threshold", "randomk", "powersgd"};
constexpr const char* kAllowed =
    "none, bf16, int8, int4, fp8, sign, topk:density=D, threshold:at=T:density=D, randomk:density=D, powersgd:rank=R, "
    "all but the first two with :feedback=0 or 1";

std::string_view name_of(Way way) {
  return kNames[static_cast<std::size_t>(way)];
}

bool takes_feedback(Way way) {
  return way != Way::none && way != Way::bf16;
}

constexpr std::int64_t kPairBytes = 8;  // an index and a value

using core::OptionText;

// A number of some of the compressions.
struct CompressionField {
  bool (*is_of)(Way way);
  core::Field<Compression> field;
  double (*get)(const Compression&);
};

constexpr std::array kNumbers{
    CompressionField{
        [](Way way) { return way == Way::threshold; },
        {"at", "1e-30 to 1e30", [](Compression& c, const OptionText& v) { c.at = v.number_from(1e-30, 1e30); }},
        [](const Compression& c) { return c.at; }},
    CompressionField{
        [](Way way) { return way == Way::topk || way == Way::threshold || way == Way::randomk; },
        {"density", "1e-9 to 1", [](Compression& c, const OptionText& v) { c.density = v.number_from(1e-9, 1); }},
        [](const Compression& c) { return c.density; }},
    CompressionField{[](Way way) { return way == Way::powersgd; },
                     {"rank", "1 to 1024", [](Compression& c, const OptionText& v) { c.rank = v.int32(1, 1024); }},
                     [](const Compression& c) { return static_cast<double>(c.rank); }}};

}  // namespace

Compression::Compression(CompressionWay of_way)
    : way(of_way),
      feedback(way == Way::sign || way == Way::topk || way == Way::threshold || way == Way::randomk ||
               way == Way::powersgd) {}

std::int64_t Compression::sent_of(std::int64_t elems) const {
  const auto part = static_cast<std::int64_t>(std::ceil(density * static_cast<double>(elems)));
  return std::clamp(part, std::int64_t{1}, elems);
}

bool Compression::remembers() const {
  return feedback || way == Way::randomk || way == Way::powersgd;
}

std::string text_of(const Compression& compression) {
  std::string text(name_of(compression.way));
  for (const CompressionField& row : kNumbers) {
    if (row.is_of(compression.way)) text += fmt::format(":{}={:g}", row.field.name, row.get(compression));
  }
  if (compression.feedback != Compression(compression.way).feedback) {
    text += compression.feedback ? ":feedback=1" : ":feedback=0";
  }
  return text;
}

Compression parse_compression(std::string_view text) {
  const std::vector<std::string_view> parts = core::split(text, ':');
  const auto* const found = std::find(kNames.begin(), kNames.end(), parts.front());
  if (found == kNames.end()) throw OptionText{"", std::string(text)}.refused("not known", kAllowed);
  Compression compression(static_cast<Way>(found - kNames.begin()));
  std::vector<core::Field<Compression>> table;
  if (takes_feedback(compression.way)) {
    table.push_back({"feedback", "0 or 1", [](Compression& c, const OptionText& v) { c.feedback = v.yes_or_no(); }});
  }
  for (const CompressionField& row : kNumbers) {
    if (row.is_of(compression.way)) table.push_back(row.field);
  }
  core::read_fields<Compression>(compression, "", std::span(parts).subspan(1), table);
  return compression;
}

std::vector<std::string_view> compression_names() {
  return {kNames.begin(), kNames.end()};
}

bool sends_codes(CompressionWay way) {
  return way == Way::int8 || way == Way::int4 || way == Way::fp8 || way == Way::sign;
}

CodeShape code_shape(CompressionWay way) {
  LOCKSTEP_CHECK(sends_codes(way), "a compression that sends codes");
  if (way == Way::sign) return {.bits = 1};
  if (way == Way::fp8) return {.bits = 8, .block = 128};  // kernels/fp8's tile
  return {.bits = way == Way::int4 ? 4 : 8};
}

MatrixShape::MatrixShape(std::int64_t elems, std::int64_t wanted_rank)
    : columns(static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(elems))))) {
  rows = (elems + columns - 1) / columns;
  rank = std::min({wanted_rank, rows, columns});
}

std::vector<CompressedExchange> exchanges_of(const Compression& compression, std::int64_t elems, std::int64_t ranks) {
  using schedules::Comm;
  const std::int64_t sent = compression.sent_of(elems);
  switch (compression.way) {
    case Way::none:
      return {{Comm::all_reduce, 4 * elems}};
    case Way::bf16:
      return {{Comm::all_reduce, 2 * elems}};
    case Way::topk:
    case Way::threshold:
      return {{Comm::all_gather, ranks * kPairBytes * sent}};
    case Way::randomk:
      return {{Comm::all_reduce, 4 * sent}};
    case Way::powersgd: {
      const MatrixShape matrix(elems, compression.rank);
      return {{Comm::all_reduce, 4 * matrix.rows * matrix.rank}, {Comm::all_reduce, 4 * matrix.columns * matrix.rank}};
    }
    default: {
      const Shares shares(code_shape(compression.way), elems, static_cast<int>(ranks));
      const std::int64_t bytes = ranks * shares.message_bytes();
      return {{Comm::all_to_all, bytes}, {Comm::all_gather, bytes}};
    }
  }
}

double kernel_bytes(const Compression& compression, std::int64_t elems, std::int64_t ranks) {
  const auto n = static_cast<double>(elems);
  const auto sent = static_cast<double>(compression.sent_of(elems));
  const double whole = 4 * n;  // bytes in f32
  // The pending error is read and written when the gradient is added, and when the sent part is subtracted.
  const double feedback = compression.feedback ? 5 * whole : 0;
  switch (compression.way) {
    case Way::none:
      return 0;
    case Way::bf16:
      return 3 * whole;  // 4 read and 2 written, and back
    case Way::topk:
    case Way::threshold:
      // Read twice to find them; pairs written, all ranks' pairs read; the result written.
      return 3 * whole + static_cast<double>((1 + 2 * ranks) * kPairBytes) * sent +
             (compression.feedback ? 3 * whole : 0);
    case Way::randomk:
      return whole + 4 * 4 * sent + (compression.feedback ? 3 * whole : 0);
    case Way::powersgd:
      // The matrix is read in two products and written by the third, and copied in and out.
      return 3 * whole + 4 * whole + feedback;
    default: {
      const double codes = n * code_shape(compression.way).bits / 8;
      const double share = whole / static_cast<double>(ranks);
      // Encoded; this rank's share of all ranks decoded, summed, encoded; all shares decoded.
      return whole + codes + codes + 3 * share + codes + whole + feedback * (1 + 1.0 / static_cast<double>(ranks));
    }
  }
}

CompressedExchange scatter_of(const Compression& compression, std::int64_t elems, std::int64_t ranks) {
  const Shares shares = Shares::even(code_shape(compression.way), elems, static_cast<int>(ranks));
  return {schedules::Comm::all_to_all, ranks * shares.message_bytes()};
}

TwoHops two_hops_of(const Compression& compression, std::int64_t elems, std::int64_t ranks, std::int64_t near_ranks) {
  return {scatter_of(compression, elems, near_ranks), scatter_of(compression, elems / near_ranks, ranks / near_ranks)};
}

CompressedExchange weight_gather_of(CompressionWay way, std::int64_t elems, std::int64_t ranks) {
  const Shares shares = Shares::even(code_shape(way), elems, static_cast<int>(ranks));
  return {schedules::Comm::all_gather, ranks * shares.message_bytes()};
}

std::int64_t wire_bytes(const CompressedExchange& exchange, int num_ranks) {
  const std::int64_t passes = exchange.comm == schedules::Comm::all_reduce ? 2 : 1;
  return (passes * (num_ranks - 1) * exchange.bytes + num_ranks - 1) / num_ranks;
}

std::int64_t wire_bytes(const Compression& compression, std::int64_t elems, int num_ranks) {
  std::int64_t bytes = 0;
  for (const CompressedExchange& exchange : exchanges_of(compression, elems, num_ranks)) {
    bytes += wire_bytes(exchange, num_ranks);
  }
  return bytes;
}

}  // namespace lockstep::workload
