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

void ParameterStore::Data::write_initial(Bucket& of, const Piece& piece, std::uint64_t seed, std::span<float> values) {
  fill_initial_values(parameters[piece.parameter], seed, piece.whole_begin, values);
  write_rounded(memory.device(), of.weights.out(piece.range), values);
  const FlatRange own = common_of(piece.range, of.own);
  if (!narrow_weights() || own.empty()) return;
  write_rounded(memory.device(), of.master.out(own), part_of(values, piece.range, own));
}

void ParameterStore::Data::initialize(Bucket& of, std::uint64_t seed) {
  const std::vector<Piece> pieces = pieces_of(of, stage == 3 ? of.own : FlatRange{0, of.flat.elems}, kMostElems);
  const auto write = [&](std::int64_t index, std::span<float> room) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    write_initial(of, piece, seed, room.first(static_cast<std::size_t>(piece.range.count())));
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
  of.gathered.reset();
  of.weights_are = stage == 3 ? Bucket::Weights::sharded : Bucket::Weights::whole;
}

void ParameterStore::initialize(std::uint64_t seed) {
  finish(data_->where);
  for (Bucket& bucket : data_->buckets) data_->initialize(bucket, seed);
}

}  // namespace lockstep::parallel
