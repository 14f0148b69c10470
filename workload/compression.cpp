#include "workload/compression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::workload {
namespace {

using Way = CompressionWay;

constexpr std::array<std::string_view, 10> kNames{"none", "bf16", "int8",      "int4",    "fp8",
                                                  "sign", "topk", "threshold", "randomk", "powersgd"};
constexpr std::string_view kAllowed =
    "none, bf16, int8, int4, fp8, sign, topk:density=D, threshold:at=T:density=D, randomk:density=D, powersgd:rank=R, "
    "all but the first two with :feedback=0 or 1";

std::string_view name_of(Way way) {
  return kNames[static_cast<std::size_t>(way)];
}

bool takes_feedback(Way way) {
  return way != Way::none && way != Way::bf16;
}

constexpr std::int64_t kPairBytes = 8;  // an index and a value

// A number of some of the compressions: from `least` to `most`.
struct NumberOfWays {
  std::string_view key;
  std::vector<Way> ways;
  double least;
  double most;
  bool whole;
  std::function<void(Compression&, double)> set;
  std::function<double(const Compression&)> get;
};

std::vector<NumberOfWays> numbers() {
  return {{"at",
           {Way::threshold},
           1e-30,
           1e30,
           false,
           [](Compression& c, double v) { c.at = v; },
           [](const Compression& c) { return c.at; }},
          {"density",
           {Way::topk, Way::threshold, Way::randomk},
           1e-9,
           1,
           false,
           [](Compression& c, double v) { c.density = v; },
           [](const Compression& c) { return c.density; }},
          {"rank",
           {Way::powersgd},
           1,
           1024,
           true,
           [](Compression& c, double v) { c.rank = static_cast<std::int32_t>(v); },
           [](const Compression& c) { return static_cast<double>(c.rank); }}};
}

bool is_of(const NumberOfWays& field, Way way) {
  return std::find(field.ways.begin(), field.ways.end(), way) != field.ways.end();
}

core::Error refused(std::string_view item, std::string_view allowed) {
  return core::usage_error("compression '" + std::string(item) + "' cannot be read; allowed: " + std::string(allowed));
}

// Removes and returns the part of `rest` before `between`.
std::string_view next_of(std::string_view& rest, char between) {
  const std::string_view item = rest.substr(0, rest.find(between));
  rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  return item;
}

void set_number(Compression& compression, std::string_view item) {
  std::string_view value = item;
  const std::string_view key = next_of(value, '=');
  if (key == "feedback" && takes_feedback(compression.way)) {
    if (value != "0" && value != "1") throw refused(item, "feedback=0 or 1");
    compression.feedback = value == "1";
    return;
  }
  for (const NumberOfWays& field : numbers()) {
    if (!is_of(field, compression.way) || field.key != key) continue;
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool read = error == std::errc() && end == value.data() + value.size();
    if (!read || number < field.least || number > field.most || (field.whole && number != std::floor(number))) {
      throw refused(item, fmt::format("{}={} from {:g} to {:g}", key, field.whole ? "a whole number" : "a number",
                                      field.least, field.most));
    }
    return field.set(compression, number);
  }
  throw refused(item, kAllowed);
}

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
  for (const NumberOfWays& field : numbers()) {
    if (is_of(field, compression.way)) text += fmt::format(":{}={:g}", field.key, field.get(compression));
  }
  if (compression.feedback != Compression(compression.way).feedback) {
    text += compression.feedback ? ":feedback=1" : ":feedback=0";
  }
  return text;
}

Compression parse_compression(std::string_view text) {
  std::string_view rest = text;
  const std::string_view name = next_of(rest, ':');
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) throw refused(text, kAllowed);
  Compression compression(static_cast<Way>(found - kNames.begin()));
  while (!rest.empty()) set_number(compression, next_of(rest, ':'));
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
      // Read twice to find them; pairs written, those of all ranks read; the result written.
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
