// A store's weights before the first step: made on the host piece by piece and written to their memory.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/initial_values.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
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
  } else {
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
