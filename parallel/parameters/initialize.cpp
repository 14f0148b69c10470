// A store's weights before the first step: made on the host, piece by piece, where they lie.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/initial_values.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kMostElems = std::int64_t{1} << 15;  // of a piece: 128 KiB

std::span<const float> part_of(std::span<const float> values, FlatRange all, FlatRange part) {
  return values.subspan(static_cast<std::size_t>(part.begin - all.begin), static_cast<std::size_t>(part.count()));
}

}  // namespace

void ParameterStore::Data::write_initial(Bucket& of, const Piece& piece, std::uint64_t seed, std::span<float> values,
                                         std::span<float> masters) {
  fill_initial_values(parameters[piece.parameter], seed, piece.whole_begin, values);
  write_rounded(memory.device(), of.weights.out(piece.range), values);
  const FlatRange own = common_of(piece.range, of.own);
  if (!narrow_weights() || own.empty()) return;
  const std::span<const float> mine = part_of(values, piece.range, own);
  if (!offloaded) return write_rounded(memory.device(), of.master.out(own), mine);
  std::copy(mine.begin(), mine.end(), masters.begin() + (own.begin - of.own.begin));
}

// Master weights, and moments of 0.
void ParameterStore::Data::make_offloaded(const Bucket& of, std::span<const float> masters) {
  const auto bucket = static_cast<std::size_t>(
      std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& one) { return &one == &of; }) - buckets.begin());
  offloaded->visit_buckets(bucket, 1, OffloadedStates::Use::makes, [&](const auto& piece, const auto& views) {
    const std::int64_t count = piece.range.count();
    if (!masters.empty()) {
      std::copy_n(masters.begin() + (piece.range.begin - of.own.begin), count, views.master.template as<float>());
    }
    std::fill_n(views.first_moment.template as<float>(), count, 0.0F);
    std::fill_n(views.second_moment.template as<float>(), count, 0.0F);
  });
}

void ParameterStore::Data::initialize(Bucket& of, std::uint64_t seed) {
  const std::vector<Piece> pieces = pieces_of(of, stage == 3 ? of.own : FlatRange{0, of.flat.elems}, kMostElems);
  std::vector<float> masters(is_offloaded(State::master) ? static_cast<std::size_t>(of.own.count()) : 0);
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
  if (offloaded) make_offloaded(of, masters);
  of.gathered.reset();
  of.weights_are = stage == 3 ? Bucket::Weights::sharded : Bucket::Weights::whole;
}

void ParameterStore::initialize(std::uint64_t seed) {
  finish(data_->where);
  for (Bucket& bucket : data_->buckets) data_->initialize(bucket, seed);
}

}  // namespace lockstep::parallel
