#include "parallel/parameters/store.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
namespace {

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = name.size();
  for (const char letter : name) hash = core::mix64(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

constexpr double kTwoPi = 6.283185307179586;

struct NormalPair {
  double first;
  double second;
};

// Box and Muller 1958, "A note on the generation of random normal deviates". The radius takes a number in (0, 1].
NormalPair normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t pair) {
  const std::uint64_t bits = core::hash64(seed, stream, pair);
  const double radius_number = static_cast<double>((bits >> 11) + 1) * 0x1p-53;
  const double angle = kTwoPi * (static_cast<double>(core::mix64(bits) >> 11) * 0x1p-53);
  const double radius = std::sqrt(-2 * std::log(radius_number));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// A tile has the values of the parameter that it is part of.
void fill_tile(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t begin, std::span<float> values) {
  const std::int64_t end = begin + static_cast<std::int64_t>(values.size());
  for_each_run(*parameter.tile_of, parameter.tile,
               [&](std::int64_t of_tile, std::int64_t of_whole, std::int64_t count) {
                 const std::int64_t first = std::max(of_tile, begin);
                 const std::int64_t last = std::min(of_tile + count, end);
                 if (first >= last) return;
                 fill_initial_values(
                     *parameter.tile_of, seed, of_whole + first - of_tile,
                     values.subspan(static_cast<std::size_t>(first - begin), static_cast<std::size_t>(last - first)));
               });
}

}  // namespace

// Elements 2k and 2k + 1 are a pair.
void fill_initial_values(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t whole_begin,
                         std::span<float> values) {
  if (parameter.tile_of) return fill_tile(parameter, seed, whole_begin, values);
  if (parameter.deviation == 0) {
    std::fill(values.begin(), values.end(), parameter.fill);
    return;
  }
  const std::uint64_t stream = hash_of(parameter.drawn_as.empty() ? parameter.name : parameter.drawn_as);
  const double deviation = parameter.deviation;
  const auto begin = static_cast<std::uint64_t>(whole_begin);
  const std::uint64_t end = begin + values.size();
  for (std::uint64_t even = begin - begin % 2; even < end; even += 2) {
    const NormalPair pair = normals(seed, stream, even / 2);
    if (even >= begin) values[even - begin] = static_cast<float>(deviation * pair.first);
    if (even + 1 < end) values[even + 1 - begin] = static_cast<float>(deviation * pair.second);
  }
}

// A store's weights before the first step: made on the host piece by piece and written to their memory.
namespace {

constexpr std::int64_t kMostElems = std::int64_t{1} << 15;  // per piece: 128 KiB

std::span<const float> part_of(std::span<const float> values, FlatRange all, FlatRange part) {
  return values.subspan(static_cast<std::size_t>(part.begin - all.begin), static_cast<std::size_t>(part.count()));
}

}  // namespace

void ParameterStore::Data::write_initial(Bucket& of, const Piece& piece, std::uint64_t seed, std::span<float> values,
                                         std::span<float> masters) {
  fill_initial_values(parameters[piece.parameter], seed, piece.whole_begin, values);
  if (of.weights.tensor.given()) write_rounded(memory.device(), of.weights.out(piece.range), values);
  const FlatRange own = common_of(piece.range, of.own);
  if (own.empty()) return;
  const std::span<const float> mine = part_of(values, piece.range, own);
  if (of.master.tensor.given()) write_rounded(memory.device(), of.master.out(own), mine);
  if (!masters.empty()) std::copy(mine.begin(), mine.end(), masters.begin() + (own.begin - of.own.begin));
}

// Writes weights, master weights, and moments of 0.
void ParameterStore::Data::make_offloaded(std::size_t bucket, std::span<const float> masters) {
  using Use = OffloadedShards::Use;
  const Bucket& of = buckets[bucket];
  offloaded->visit_buckets(bucket, 1, {Use::makes, Use::none, Use::makes}, [&](const auto& piece, const auto& views) {
    const auto part = masters.empty() ? masters : part_of(masters, of.own, piece.range);
    const auto zero = [this](const kernels::InOut& moment) {
      if (moment.given()) set_zero(memory.device(), where, moment.out());
    };
    finish(where);
    if (views.weights.given()) write_rounded(memory.device(), views.weights.out(), part);
    if (narrow_weights() && views.master.given()) write_rounded(memory.device(), views.master.out(), part);
    zero(views.first_moment);
    zero(views.second_moment);
  });
}

void ParameterStore::Data::initialize(std::size_t bucket, std::uint64_t seed) {
  Bucket& of = buckets[bucket];
  const std::vector<Piece> pieces = pieces_of(of, stage == 3 ? of.own : FlatRange{0, of.flat.elems}, kMostElems);
  const bool keeps_masters = is_offloaded(kind_of(State::master)) || is_offloaded(workload::OffloadKind::parameters);
  std::vector<float> masters(keeps_masters ? static_cast<std::size_t>(of.own.count()) : 0);
  const auto write = [&](std::int64_t index, std::span<float> room) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    write_initial(of, piece, seed, room.first(static_cast<std::size_t>(piece.range.count())), masters);
  };
  const auto num_pieces = static_cast<std::int64_t>(pieces.size());
  if (where.on_cpu()) {
    where.pool().for_pieces(num_pieces, [&](std::int64_t index, int thread) {
      write(index, where.pool().scratch_of<float>(thread, kMostElems));
    });
  } else if (memory.device().computes()) {
    std::vector<float> room(kMostElems);
    for (std::int64_t index = 0; index < num_pieces; ++index) write(index, room);
  }
  if (offloaded) make_offloaded(bucket, masters);
  of.gathered.reset();
  of.weights_are = stage == 3 ? Bucket::Weights::sharded : Bucket::Weights::whole;
}

void ParameterStore::initialize(std::uint64_t seed) {
  finish(data_->where);
  for (std::size_t b = 0; b < data_->buckets.size(); ++b) data_->initialize(b, seed);
}

}  // namespace lockstep::parallel
