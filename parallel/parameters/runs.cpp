// The parts of a store that a checkpoint reads and writes.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
namespace {

const kernels::InOut& state_in(const ShardViews& views, ParameterStore::State which) {
  switch (which) {
    case ParameterStore::State::master:
      return views.master;
    case ParameterStore::State::first_moment:
      return views.first_moment;
    default:
      return views.second_moment;
  }
}

}  // namespace

std::vector<ParameterStore::Data::Piece> ParameterStore::Data::pieces_of(const Bucket& of, FlatRange wanted,
                                                                         std::int64_t most_elems) const {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < of.members.size(); ++i) {
    const std::int64_t place_begin = of.flat.places[i].begin;
    if (common_of(of.flat.places[i], wanted).empty()) continue;
    const auto add = [&](std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count) {
      const std::int64_t run_begin = place_begin + share_begin;
      FlatRange left = common_of({run_begin, run_begin + count}, wanted);
      while (!left.empty()) {
        const FlatRange piece{left.begin, left.begin + std::min(most_elems, left.count())};
        pieces.push_back({of.members[i], whole_begin + (piece.begin - run_begin), piece});
        left.begin = piece.end;
      }
    };
    workload::for_each_run(parameters[of.members[i]], place, add);
  }
  return pieces;
}

FlatTensor& ParameterStore::Data::state(Bucket& of, State which) {
  switch (which) {
    case State::master:
      return narrow_weights() ? of.master : of.weights;
    case State::first_moment:
      return of.first_moment;
    case State::second_moment:
      return of.second_moment;
  }
  LOCKSTEP_CHECK(false, "a state of the optimizer");
  return of.weights;
}

// The own shard in memory that the host can read and write.
float* ParameterStore::Data::on_host(std::size_t bucket, State which) {
  Bucket& of = buckets[bucket];
  std::vector<std::vector<float>>& copies = host_copies.at(static_cast<std::size_t>(which));
  const auto make_copy = [&] {
    copies.resize(buckets.size());
    copies[bucket].resize(static_cast<std::size_t>(of.own.count()));
  };
  if (is_offloaded(kind_of(which))) {
    make_copy();
    const auto uses = uses_of(which, OffloadedShards::Use::reads);
    offloaded->visit_buckets(bucket, 1, uses, [&](const auto& piece, const auto& views) {
      const kernels::InOut& values = state_in(views, which);
      finish(where);
      memory.device().copy_to_host(copies[bucket].data() + (piece.range.begin - of.own.begin), values.data,
                                   kernels::size_bytes(values.dtype, values.elems));
    });
    return copies[bucket].data();
  }
  const kernels::InOut own = state(of, which).inout(of.own);
  if (memory.device().is_host_memory()) return own.as<float>();
  make_copy();
  memory.device().copy_to_host(copies[bucket].data(), own.data, kernels::size_bytes(own.dtype, own.elems));
  return copies[bucket].data();
}

std::vector<ParameterStore::Run> ParameterStore::runs(State which) {
  finish(data_->where);
  std::vector<Run> runs;
  for (std::size_t b = 0; b < data_->buckets.size(); ++b) {
    const Bucket& bucket = data_->buckets[b];
    float* const own = data_->on_host(b, which);
    for (const Data::Piece& piece : data_->pieces_of(bucket, bucket.own, std::numeric_limits<std::int64_t>::max())) {
      runs.push_back(
          {piece.parameter, piece.whole_begin, piece.range.count(), own + (piece.range.begin - bucket.own.begin)});
    }
  }
  return runs;
}

void ParameterStore::Data::write_back(std::size_t bucket, State which, const std::vector<float>& values) {
  Bucket& of = buckets[bucket];
  if (!is_offloaded(kind_of(which))) return write_rounded(memory.device(), state(of, which).out(of.own), values);
  const auto uses = uses_of(which, OffloadedShards::Use::changes);
  offloaded->visit_buckets(bucket, 1, uses, [&](const auto& piece, const auto& views) {
    finish(where);
    const auto part = std::span(values).subspan(static_cast<std::size_t>(piece.range.begin - of.own.begin),
                                                static_cast<std::size_t>(piece.range.count()));
    write_rounded(memory.device(), state_in(views, which).out(), part);
  });
}

void ParameterStore::store_back(State which) {
  const std::vector<std::vector<float>>& copies = data_->host_copies.at(static_cast<std::size_t>(which));
  for (std::size_t b = 0; b < copies.size(); ++b) data_->write_back(b, which, copies[b]);
}

}  // namespace lockstep::parallel
