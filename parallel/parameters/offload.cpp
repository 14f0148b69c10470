#include "parallel/parameters/offload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lockstep::parallel {

using workload::FlatRange;
using workload::kNumOffloadKinds;
using workload::OffloadKind;
using workload::OffloadStaging;

namespace {

constexpr std::array kKinds{OffloadKind::optimizer, OffloadKind::gradients, OffloadKind::parameters};

}  // namespace

OffloadedShards::OffloadedShards(Memory& memory, const StoreOptions& options, const std::vector<FlatRange>& own)
    : compute_(options.compute), gradient_(options.gradient), rule_(kernels::rule_of(options.optimizer)), own_(own) {
  const StoreOffload& offload = options.offload;
  LOCKSTEP_CHECK(memory.device().is_host_memory() || (!offload.gradients && !offload.parameters),
                 "gradients and weights are offloaded from a device whose memory the host can use");
  std::int64_t largest = 0;
  for (const FlatRange& range : own) largest = std::max(largest, range.count());
  LOCKSTEP_CHECK(!offload.delays() || (offload.optimizer && offload.gradients && compute_ != core::DType::f32),
                 "an update that is delayed has states and gradients on the host, and master weights");
  const std::array make_room{&offload.optimizer, &offload.gradients, &offload.parameters};
  auto elem_bytes = workload::offload_elem_bytes(options.optimizer, compute_, gradient_);
  for (std::size_t kind = 0; kind < kNumOffloadKinds; ++kind) {
    if (!*make_room[kind] && !offload.delays()) elem_bytes[kind] = 0;
  }
  staging_ = workload::offload_staging(elem_bytes, largest, offload.piece_elems);
  std::array<std::int64_t, kNumOffloadKinds> bytes = {};
  for (std::size_t b = 0; b < own.size(); ++b) {
    first_of_bucket_.push_back(pieces_.size());
    for (std::int64_t begin = own[b].begin; begin < own[b].end; begin += staging_.piece_elems) {
      const FlatRange range{begin, std::min(begin + staging_.piece_elems, own[b].end)};
      pieces_.push_back({b, range, bytes});
      for (const OffloadKind kind : kKinds) {
        bytes[static_cast<std::size_t>(kind)] += staging_.bytes_of(kind, range.count());
      }
    }
  }
  first_of_bucket_.push_back(pieces_.size());
  for (std::size_t kind = 0; kind < kNumOffloadKinds; ++kind) {
    if (*make_room[kind]) shelves_[kind].rooms[0] = (*make_room[kind])(bytes[kind]);
  }
  if (offload.delays()) {
    shelf(OffloadKind::gradients).rooms[1] = offload.gradients(bytes[1]);
    shelf(OffloadKind::parameters).rooms[1] =
        (offload.parameters ? offload.parameters : offload.next_weights)(bytes[2]);
  }
  stagings_.resize(static_cast<std::size_t>(staging_.rooms()));
  for (Staging& staging : stagings_) {
    if (offload.delays()) {
      staging.on_host = core::PinnedMemory(memory.device(), static_cast<std::size_t>(staging_.room_bytes()));
      continue;
    }
    staging.memory = memory.make(MemoryKind::buffers, core::DType::f32,
                                 staging_.room_bytes() / static_cast<std::int64_t>(sizeof(float)));
  }
}

OffloadedShards::Visiting OffloadedShards::visiting(const Uses& uses) const {
  Visiting visit{.uses = uses};
  for (const OffloadKind kind : kKinds) {
    const auto k = static_cast<std::size_t>(kind);
    if (uses[k] != Use::none) visit.rooms[k] = shelf(kind).room();
  }
  return visit;
}

OffloadedShards::StagedPart OffloadedShards::staged(std::size_t piece, OffloadKind kind, const Visiting& visiting) {
  const auto k = static_cast<std::size_t>(kind);
  if (std::byte* const memory = visiting.in_place ? visiting.rooms[k]->host_memory() : nullptr; memory != nullptr) {
    return {memory + pieces_[piece].offset[k], false};
  }
  Staging& staging = staging_of(piece);
  std::byte* data = aligned(staging.on_host.given() ? staging.on_host.as<std::byte>() : staging.memory.as<std::byte>());
  for (const OffloadKind before : kKinds) {
    if (before < kind) data += staging_.bytes_of(before, pieces_[piece].range.count());
  }
  return {data, true};
}

ShardViews OffloadedShards::views_of(std::size_t piece, const Visiting& visiting) {
  const std::int64_t count = pieces_[piece].range.count();
  const auto here = [&](OffloadKind kind) { return visiting.rooms[static_cast<std::size_t>(kind)] != nullptr; };
  ShardViews views;
  if (here(OffloadKind::optimizer)) {
    auto* next = reinterpret_cast<float*>(staged(piece, OffloadKind::optimizer, visiting).data);
    const auto take = [&] { return kernels::InOut{std::exchange(next, next + count), core::DType::f32, count}; };
    if (compute_ != core::DType::f32) views.master = take();
    if (rule_.first_moment) views.first_moment = take();
    if (rule_.second_moment) views.second_moment = take();
  }
  if (here(OffloadKind::gradients)) {
    views.gradient = {staged(piece, OffloadKind::gradients, visiting).data, gradient_, count};
  }
  if (here(OffloadKind::parameters)) {
    views.weights = {staged(piece, OffloadKind::parameters, visiting).data, compute_, count};
    if (compute_ == core::DType::f32) views.master = views.weights;
  }
  return views;
}

template <class Copy>
void OffloadedShards::begin_copies(std::size_t piece, const Visiting& visiting, Use alone, Tickets& tickets,
                                   const Copy& copy) {
  for (const OffloadKind kind : kKinds) {
    const auto k = static_cast<std::size_t>(kind);
    if (visiting.rooms[k] == nullptr || (visiting.uses[k] != alone && visiting.uses[k] != Use::changes)) continue;
    const StagedPart part = staged(piece, kind, visiting);
    if (!part.copied) continue;
    const std::int64_t bytes = staging_.bytes_of(kind, pieces_[piece].range.count());
    tickets[k] = copy(*visiting.rooms[k], pieces_[piece].offset[k], part.data, bytes);
    shelf(kind).moved_bytes += bytes;
  }
}

void OffloadedShards::begin_reads(std::size_t piece, const Visiting& visiting) {
  end(staging_of(piece).writes, visiting);
  begin_copies(piece, visiting, Use::reads, staging_of(piece).reads,
               [](StateRoom& room, auto... copy) { return room.read(copy...); });
}

void OffloadedShards::end(Tickets& tickets, const Visiting& visiting) {
  for (std::size_t k = 0; k < kNumOffloadKinds; ++k) {
    const auto ticket = std::exchange(tickets[k], std::nullopt);
    if (ticket) visiting.rooms[k]->wait(*ticket);
  }
}

void OffloadedShards::visit_pieces(std::size_t begin, std::size_t end_piece, const Visiting& visiting,
                                   const Visit& visit) {
  const auto ahead = static_cast<std::size_t>(staging_.ahead);
  for (std::size_t piece = begin; piece < std::min(end_piece, begin + ahead); ++piece) begin_reads(piece, visiting);
  for (std::size_t piece = begin; piece < end_piece; ++piece) {
    if (piece + ahead < end_piece) begin_reads(piece + ahead, visiting);
    end(staging_of(piece).reads, visiting);
    end(staging_of(piece).writes, visiting);  // writes of an earlier piece, if nothing was read
    visit(pieces_[piece], views_of(piece, visiting));
    begin_copies(piece, visiting, Use::makes, staging_of(piece).writes,
                 [](StateRoom& room, auto... copy) { return room.write(copy...); });
  }
  for (Staging& staging : stagings_) end(staging.writes, visiting);
}

void OffloadedShards::visit_buckets(std::size_t first, std::size_t count, const Uses& uses, const Visit& visit) {
  visit_pieces(first_of_bucket_.at(first), first_of_bucket_.at(first + count), visiting(uses), visit);
}

void OffloadedShards::turn_gradients() {
  Shelf& gradients = shelf(OffloadKind::gradients);
  gradients.now = 1 - gradients.now;
}

void OffloadedShards::visit_delayed(const Visit& visit) {
  const Shelf& weights = shelf(OffloadKind::parameters);
  Visiting update = visiting({Use::changes, Use::reads, Use::makes});
  update.rooms[1] = shelf(OffloadKind::gradients).rooms[kept_gradients_].get();
  update.rooms[2] = weights.rooms[1 - weights.now].get();
  update.in_place = true;
  visit_pieces(0, pieces_.size(), update, visit);
}

void OffloadedShards::copy_next_weights(std::size_t bucket, const kernels::Out& to) {
  Shelf& weights = shelf(OffloadKind::parameters);
  if (own_.at(bucket).empty()) return;
  StateRoom& room = *weights.rooms[1 - weights.now];
  const auto bytes = static_cast<std::int64_t>(kernels::size_bytes(to.dtype, to.elems));
  room.wait(room.read(pieces_[first_of_bucket_[bucket]].offset[2], to.data, bytes));
  weights.moved_bytes += bytes;
}

void OffloadedShards::turn_weights() {
  Shelf& weights = shelf(OffloadKind::parameters);
  weights.now = 1 - weights.now;
}

std::int64_t OffloadedShards::shard_bytes(OffloadKind kind, std::size_t bucket) const {
  LOCKSTEP_CHECK(kind != OffloadKind::optimizer, "states lie piece by piece");
  return staging_.bytes_of(kind, own_.at(bucket).count());
}

void OffloadedShards::read(OffloadKind kind, std::size_t bucket, const StagedTensor& to) {
  if (own_.at(bucket).empty()) return;
  const std::int64_t bytes = shard_bytes(kind, bucket);
  const Piece& first = pieces_[first_of_bucket_[bucket]];
  shelf(kind).room()->wait(shelf(kind).room()->read(first.offset[static_cast<std::size_t>(kind)], to.data, bytes));
  shelf(kind).moved_bytes += bytes;
}
void OffloadedShards::write(OffloadKind kind, std::size_t bucket, const StagedTensor& from) {
  if (own_.at(bucket).empty()) return;
  const std::int64_t bytes = shard_bytes(kind, bucket);
  const Piece& first = pieces_[first_of_bucket_[bucket]];
  shelf(kind).room()->wait(shelf(kind).room()->write(first.offset[static_cast<std::size_t>(kind)], from.data, bytes));
  shelf(kind).moved_bytes += bytes;
}

namespace {

// The bytes of several tensors in order.
class ByteSpans {
 public:
  explicit ByteSpans(std::span<Tensor* const> tensors) : tensors_(tensors) {}

  // Calls visit(memory within a tensor, number of bytes) for the next `count` bytes.
  template <class Visit>
  void next(std::int64_t count, const Visit& visit) {
    while (count > 0) {
      const Tensor& tensor = *tensors_[at_];
      const std::int64_t here = std::min(count, tensor.bytes() - done_);
      if (here > 0) visit(static_cast<std::byte*>(tensor.data()) + done_, static_cast<std::size_t>(here));
      count -= here;
      done_ += here;
      if (done_ < tensor.bytes()) continue;
      ++at_;
      done_ = 0;
    }
  }

 private:
  std::span<Tensor* const> tensors_;
  std::size_t at_ = 0;
  std::int64_t done_ = 0;  // bytes of the current tensor
};

}  // namespace

TensorsAway::TensorsAway(Memory& memory, const MakeStateRoom& make_room, std::int64_t room_bytes)
    : memory_(memory), room_(make_room(room_bytes)) {
  LOCKSTEP_CHECK(memory.device().is_host_memory(), "tensors leave a device whose memory the host can use");
  if (!room_->in_blocks()) return;
  const auto count = static_cast<std::int64_t>(blocks_.size());
  staging_ =
      core::PinnedMemory(memory.device(), static_cast<std::size_t>(count * kBlockBytes + OffloadStaging::kAlign));
  std::byte* next = aligned(staging_.as<std::byte>());
  for (HostBlock& block : blocks_) block.data = std::exchange(next, next + kBlockBytes);
}

TensorsAway::~TensorsAway() = default;

void TensorsAway::end(HostBlock& block) {
  if (std::exchange(block.moves, false)) room_->wait(block.ticket);
}

void TensorsAway::take(const Slot& slot, std::span<Tensor* const> tensors) {
  std::vector<TakenTensor>& left = left_[slot.offset];
  LOCKSTEP_CHECK(left.empty(), "a slot that is free");
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]->given()) continue;
    left.push_back({i, tensors[i]->dtype(), tensors[i]->elems()});
    bytes += tensors[i]->bytes();
  }
  LOCKSTEP_CHECK(bytes == slot.bytes, "the bytes that a part was predicted to keep");
  if (room_->in_blocks()) {
    write_blocks(slot, tensors);
  } else {
    std::int64_t offset = slot.offset;
    for (const TakenTensor& taken : left) {
      const Tensor& tensor = *tensors[taken.index];
      room_->wait(room_->write(std::exchange(offset, offset + tensor.bytes()), tensor.data(), tensor.bytes()));
    }
  }
  for (const TakenTensor& taken : left) tensors[taken.index]->reset();
  moved_bytes_ += bytes;
}

// Begins to write: the blocks are written asynchronously.
void TensorsAway::write_blocks(const Slot& slot, std::span<Tensor* const> tensors) {
  ByteSpans from(tensors);
  std::size_t next = 0;
  for (std::int64_t at = 0; at < slot.bytes; at += kBlockBytes) {
    HostBlock& block = blocks_[next++ % blocks_.size()];
    end(block);
    const std::int64_t here = std::min(kBlockBytes, slot.bytes - at);
    std::byte* to = block.data;
    from.next(here, [&](const std::byte* data, std::size_t count) {
      std::memcpy(std::exchange(to, to + count), data, count);
    });
    std::memset(to, 0, static_cast<std::size_t>(OffloadStaging::whole_blocks(here) - here));
    block.ticket = room_->write(slot.offset + at, block.data, OffloadStaging::whole_blocks(here));
    block.moves = true;
  }
}

void TensorsAway::bring_back(const Slot& slot, std::span<Tensor* const> tensors) {
  std::vector<TakenTensor> left = std::exchange(left_[slot.offset], {});
  for (const TakenTensor& taken : left) {
    LOCKSTEP_CHECK(!tensors[taken.index]->given(), "a tensor that is away");
    *tensors[taken.index] = memory_.make(MemoryKind::activations, taken.dtype, taken.elems);
  }
  std::vector<Tensor*> restored;
  for (const TakenTensor& taken : left) restored.push_back(tensors[taken.index]);
  if (room_->in_blocks()) {
    read_blocks(slot, restored);
  } else {
    std::int64_t offset = slot.offset;
    for (const Tensor* const tensor : restored) {
      room_->wait(room_->read(std::exchange(offset, offset + tensor->bytes()), tensor->data(), tensor->bytes()));
    }
  }
  moved_bytes_ += slot.bytes;
}

void TensorsAway::read_blocks(const Slot& slot, std::span<Tensor* const> tensors) {
  for (HostBlock& block : blocks_) end(block);  // this slot may be among those still being written
  const auto count = static_cast<std::int64_t>(blocks_.size());
  const auto begin = [&](std::int64_t number) {
    const std::int64_t at = number * kBlockBytes;
    if (at >= slot.bytes) return;
    HostBlock& block = blocks_[static_cast<std::size_t>(number % count)];
    block.ticket =
        room_->read(slot.offset + at, block.data, OffloadStaging::whole_blocks(std::min(kBlockBytes, slot.bytes - at)));
    block.moves = true;
  };
  for (std::int64_t number = 0; number < count; ++number) begin(number);
  ByteSpans to(tensors);
  for (std::int64_t number = 0; number * kBlockBytes < slot.bytes; ++number) {
    HostBlock& block = blocks_[static_cast<std::size_t>(number % count)];
    end(block);
    const std::byte* from = block.data;
    to.next(std::min(kBlockBytes, slot.bytes - number * kBlockBytes),
            [&](std::byte* data, std::size_t bytes) { std::memcpy(data, std::exchange(from, from + bytes), bytes); });
    begin(number + count);
  }
}

}  // namespace lockstep::parallel
