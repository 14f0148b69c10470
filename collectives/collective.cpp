#include "collectives/collective.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace lockstep::collectives {
namespace {

// Number of blocks of a buffer.
enum class Blocks : std::uint8_t { one, per_rank };

struct KindRow {
  Kind kind;
  std::string_view name;
  Blocks input;
  Blocks output;
  bool has_op;
  bool has_root;
};

constexpr std::array kRows{
    KindRow{Kind::all_reduce, "all_reduce", Blocks::one, Blocks::one, true, false},
    KindRow{Kind::reduce_scatter, "reduce_scatter", Blocks::per_rank, Blocks::one, true, false},
    KindRow{Kind::all_gather, "all_gather", Blocks::one, Blocks::per_rank, false, false},
    KindRow{Kind::broadcast, "broadcast", Blocks::one, Blocks::one, false, true},
    KindRow{Kind::reduce, "reduce", Blocks::one, Blocks::one, true, true},
    KindRow{Kind::all_to_all, "all_to_all", Blocks::per_rank, Blocks::per_rank, false, false},
    KindRow{Kind::all_to_all_v, "all_to_all_v", Blocks::per_rank, Blocks::per_rank, false, false},
    KindRow{Kind::gather, "gather", Blocks::one, Blocks::per_rank, false, true},
    KindRow{Kind::scatter, "scatter", Blocks::per_rank, Blocks::one, false, true},
    KindRow{Kind::send_recv, "send_recv", Blocks::one, Blocks::one, false, false},
    KindRow{Kind::hypercube, "hypercube", Blocks::one, Blocks::per_rank, false, false},
};
constexpr std::array kKinds = [] {
  std::array<Kind, kRows.size()> kinds{};
  std::transform(kRows.begin(), kRows.end(), kinds.begin(), [](const KindRow& row) { return row.kind; });
  return kinds;
}();

const KindRow& row(Kind kind) {
  return kRows.at(static_cast<std::size_t>(kind));
}
int number_of(Blocks blocks, int num_ranks) {
  return blocks == Blocks::one ? 1 : num_ranks;
}

}  // namespace

std::span<const Kind> all_kinds() {
  return kKinds;
}
std::string_view name_of(Kind kind) {
  return row(kind).name;
}
bool has_op(Kind kind) {
  return row(kind).has_op;
}
bool has_root(Kind kind) {
  return row(kind).has_root;
}

Kind parse_kind(std::string_view name) {
  std::string allowed;
  for (const KindRow& candidate : kRows) {
    if (candidate.name == name) return candidate.kind;
    allowed += " " + std::string(candidate.name);
  }
  throw core::usage_error("unknown collective '" + std::string(name) + "'; allowed:" + allowed);
}

int input_blocks(Kind kind, int num_ranks, int root, int rank) {
  if (kind == Kind::scatter && rank != root) return 0;
  if (kind == Kind::broadcast && rank != root) return 0;
  return number_of(row(kind).input, num_ranks);
}

int output_blocks(Kind kind, int num_ranks, int root, int rank) {
  if ((kind == Kind::gather || kind == Kind::reduce) && rank != root) return 0;
  return number_of(row(kind).output, num_ranks);
}

Origin origin_of(Kind kind, int num_ranks, int root, int rank, int output_block) {
  switch (kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      return {true, 0, 0};
    case Kind::reduce_scatter:
      return {true, 0, rank};
    case Kind::all_gather:
    case Kind::gather:
    case Kind::hypercube:
      return {false, output_block, 0};
    case Kind::broadcast:
      return {false, root, 0};
    case Kind::all_to_all:
    case Kind::all_to_all_v:
      return {false, output_block, rank};
    case Kind::scatter:
      return {false, root, rank};
    case Kind::send_recv:
      return {false, (rank + num_ranks - 1) % num_ranks, 0};
  }
  LOCKSTEP_CHECK(false, "kind out of range");
  return {};
}

InPlaceAlias in_place_alias(Kind kind, int /*num_ranks*/, int root, int rank) {
  switch (kind) {
    case Kind::all_gather:
    case Kind::hypercube:
      return {0, rank};
    case Kind::reduce_scatter:
      return {rank, 0};
    case Kind::gather:
      return {0, rank == root ? rank : 0};
    case Kind::scatter:
      return {rank == root ? rank : 0, 0};
    default:
      return {0, 0};
  }
}

std::int64_t message_bytes(Kind kind, int num_ranks, std::int64_t count, core::DType dtype) {
  const int blocks = std::max(number_of(row(kind).input, num_ranks), number_of(row(kind).output, num_ranks));
  return count * blocks * static_cast<std::int64_t>(core::size_of(dtype));
}

double bus_bandwidth_factor(Kind kind, int num_ranks) {
  const double n = num_ranks;
  switch (kind) {
    case Kind::all_reduce:
      return 2 * (n - 1) / n;
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::all_to_all:
    case Kind::all_to_all_v:
    case Kind::gather:
    case Kind::scatter:
      return (n - 1) / n;
    case Kind::broadcast:
    case Kind::reduce:
    case Kind::send_recv:
    case Kind::hypercube:
      return 1;
  }
  return 1;
}

double algorithm_bandwidth_gbps(Kind kind, int num_ranks, std::int64_t bytes, double time_us) {
  if (time_us <= 0) return 0;
  double moved = static_cast<double>(bytes);
  if (kind == Kind::hypercube) moved *= static_cast<double>(num_ranks - 1) / num_ranks;
  return moved / (time_us * 1e3);
}

std::vector<std::int64_t> input_offsets(const Operation& operation, int num_ranks, int rank) {
  std::vector<std::int64_t> offsets{0};
  for (int b = 0; b < input_blocks(operation.kind, num_ranks, operation.root, rank); ++b) {
    offsets.push_back(offsets.back() + (operation.matrix ? operation.matrix->at(rank, b) : operation.count));
  }
  return offsets;
}

std::vector<std::int64_t> output_offsets(const Operation& operation, int num_ranks, int rank) {
  std::vector<std::int64_t> offsets{0};
  for (int b = 0; b < output_blocks(operation.kind, num_ranks, operation.root, rank); ++b) {
    offsets.push_back(offsets.back() + (operation.matrix ? operation.matrix->at(b, rank) : operation.count));
  }
  return offsets;
}

}  // namespace lockstep::collectives
