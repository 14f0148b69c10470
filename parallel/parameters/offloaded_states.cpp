#include "parallel/parameters/offloaded_states.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lockstep::parallel {

using workload::FlatRange;
using workload::OffloadStaging;

const kernels::InOut& OffloadedStates::Views::of(ParameterStore::State state) const {
  switch (state) {
    case ParameterStore::State::master:
      return master;
    case ParameterStore::State::first_moment:
      return first_moment;
    default:
      return second_moment;
  }
}

OffloadedStates::OffloadedStates(Memory& memory, const MakeStateRoom& make_room, const std::vector<FlatRange>& own,
                                 bool has_masters, std::int64_t piece_elems) {
  LOCKSTEP_CHECK(memory.device().is_host_memory(), "states are offloaded from a device whose memory the host can use");
  std::int64_t largest = 0;
  for (const FlatRange& range : own) largest = std::max(largest, range.count());
  staging_ = workload::offload_staging(has_masters, largest, piece_elems);
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < own.size(); ++b) {
    first_of_bucket_.push_back(pieces_.size());
    for (std::int64_t begin = own[b].begin; begin < own[b].end; begin += staging_.piece_elems) {
      const FlatRange range{begin, std::min(begin + staging_.piece_elems, own[b].end)};
      pieces_.push_back({b, range, bytes});
      bytes += staging_.bytes_of(range.count());
    }
  }
  first_of_bucket_.push_back(pieces_.size());
  room_ = make_room(bytes);
  rooms_.resize(static_cast<std::size_t>(staging_.rooms()));
  for (Room& room : rooms_) {
    room.memory = memory.make(MemoryKind::buffers, core::DType::f32,
                              staging_.room_bytes() / static_cast<std::int64_t>(sizeof(float)));
  }
}

std::byte* OffloadedStates::data_of(std::size_t piece) {
  const auto address = reinterpret_cast<std::uintptr_t>(room_of(piece).memory.data());
  constexpr auto kAlign = static_cast<std::uintptr_t>(OffloadStaging::kAlign);
  return static_cast<std::byte*>(room_of(piece).memory.data()) + ((address + kAlign - 1) / kAlign * kAlign - address);
}

OffloadedStates::Views OffloadedStates::views_of(std::size_t piece) {
  const std::int64_t count = pieces_[piece].range.count();
  auto* next = reinterpret_cast<float*>(data_of(piece));
  const auto take = [&] { return kernels::InOut{std::exchange(next, next + count), core::DType::f32, count}; };
  Views views;
  if (staging_.states == 3) views.master = take();
  views.first_moment = take();
  views.second_moment = take();
  return views;
}

void OffloadedStates::begin_read(std::size_t piece) {
  Room& room = room_of(piece);
  end_write(room);
  const std::int64_t bytes = staging_.bytes_of(pieces_[piece].range.count());
  room.read = room_->read(pieces_[piece].offset, data_of(piece), bytes);
  room.is_read = true;
  moved_bytes_ += bytes;
}
void OffloadedStates::begin_write(std::size_t piece) {
  Room& room = room_of(piece);
  const std::int64_t bytes = staging_.bytes_of(pieces_[piece].range.count());
  room.write = room_->write(pieces_[piece].offset, data_of(piece), bytes);
  room.is_written = true;
  moved_bytes_ += bytes;
}
void OffloadedStates::end_read(Room& room) {
  if (std::exchange(room.is_read, false)) room_->wait(room.read);
}
void OffloadedStates::end_write(Room& room) {
  if (std::exchange(room.is_written, false)) room_->wait(room.write);
}

void OffloadedStates::visit_pieces(std::size_t begin, std::size_t end, Use use, const Visit& visit) {
  const auto ahead = static_cast<std::size_t>(staging_.ahead);
  const bool reads = use != Use::makes;
  for (std::size_t piece = begin; reads && piece < std::min(end, begin + ahead); ++piece) begin_read(piece);
  for (std::size_t piece = begin; piece < end; ++piece) {
    if (reads && piece + ahead < end) begin_read(piece + ahead);
    end_read(room_of(piece));
    end_write(room_of(piece));  // of an earlier piece, where nothing was read
    visit(pieces_[piece], views_of(piece));
    if (use != Use::reads) begin_write(piece);
  }
  for (Room& room : rooms_) end_write(room);
}

void OffloadedStates::visit(Use use, const Visit& visit) {
  visit_pieces(0, pieces_.size(), use, visit);
}
void OffloadedStates::visit_buckets(std::size_t first, std::size_t count, Use use, const Visit& visit) {
  visit_pieces(first_of_bucket_.at(first), first_of_bucket_.at(first + count), use, visit);
}

}  // namespace lockstep::parallel
