#include "parallel/parameters/tensors_away.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lockstep::parallel {
namespace {

std::int64_t in_blocks(std::int64_t bytes) {
  return (bytes + TensorsAway::kAlign - 1) / TensorsAway::kAlign * TensorsAway::kAlign;
}

// The bytes of several tensors, one after the other.
class Bytes {
 public:
  explicit Bytes(std::span<Tensor* const> tensors) : tensors_(tensors) {}

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
  staging_ = core::PinnedMemory(memory.device(), static_cast<std::size_t>(count * kBlockBytes + kAlign));
  const auto address = reinterpret_cast<std::uintptr_t>(staging_.as<std::byte>());
  std::byte* next =
      staging_.as<std::byte>() + (in_blocks(static_cast<std::int64_t>(address)) - static_cast<std::int64_t>(address));
  for (Block& block : blocks_) block.data = std::exchange(next, next + kBlockBytes);
}

TensorsAway::~TensorsAway() = default;

void TensorsAway::end(Block& block) {
  if (std::exchange(block.moves, false)) room_->wait(block.ticket);
}

void TensorsAway::take(const Slot& slot, std::span<Tensor* const> tensors) {
  std::vector<Left>& left = left_[slot.offset];
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
    for (const Left& one : left) {
      const Tensor& tensor = *tensors[one.index];
      room_->wait(room_->write(std::exchange(offset, offset + tensor.bytes()), tensor.data(), tensor.bytes()));
    }
  }
  for (const Left& one : left) tensors[one.index]->reset();
  moved_bytes_ += bytes;
}

// Begins to write: the blocks are written asynchronously.
void TensorsAway::write_blocks(const Slot& slot, std::span<Tensor* const> tensors) {
  Bytes from(tensors);
  std::size_t next = 0;
  for (std::int64_t at = 0; at < slot.bytes; at += kBlockBytes) {
    Block& block = blocks_[next++ % blocks_.size()];
    end(block);
    const std::int64_t here = std::min(kBlockBytes, slot.bytes - at);
    std::byte* to = block.data;
    from.next(here, [&](const std::byte* data, std::size_t count) {
      std::memcpy(std::exchange(to, to + count), data, count);
    });
    std::memset(to, 0, static_cast<std::size_t>(in_blocks(here) - here));
    block.ticket = room_->write(slot.offset + at, block.data, in_blocks(here));
    block.moves = true;
  }
}

void TensorsAway::bring_back(const Slot& slot, std::span<Tensor* const> tensors) {
  std::vector<Left> left = std::exchange(left_[slot.offset], {});
  for (const Left& one : left) {
    LOCKSTEP_CHECK(!tensors[one.index]->given(), "a tensor that is away");
    *tensors[one.index] = memory_.make(MemoryKind::activations, one.dtype, one.elems);
  }
  std::vector<Tensor*> made;
  for (const Left& one : left) made.push_back(tensors[one.index]);
  if (room_->in_blocks()) {
    read_blocks(slot, made);
  } else {
    std::int64_t offset = slot.offset;
    for (const Tensor* const tensor : made) {
      room_->wait(room_->read(std::exchange(offset, offset + tensor->bytes()), tensor->data(), tensor->bytes()));
    }
  }
  moved_bytes_ += slot.bytes;
}

void TensorsAway::read_blocks(const Slot& slot, std::span<Tensor* const> tensors) {
  for (Block& block : blocks_) end(block);  // this slot may be among those still being written
  const auto count = static_cast<std::int64_t>(blocks_.size());
  const auto begin = [&](std::int64_t number) {
    const std::int64_t at = number * kBlockBytes;
    if (at >= slot.bytes) return;
    Block& block = blocks_[static_cast<std::size_t>(number % count)];
    block.ticket = room_->read(slot.offset + at, block.data, in_blocks(std::min(kBlockBytes, slot.bytes - at)));
    block.moves = true;
  };
  for (std::int64_t number = 0; number < count; ++number) begin(number);
  Bytes to(tensors);
  for (std::int64_t number = 0; number * kBlockBytes < slot.bytes; ++number) {
    Block& block = blocks_[static_cast<std::size_t>(number % count)];
    end(block);
    const std::byte* from = block.data;
    to.next(std::min(kBlockBytes, slot.bytes - number * kBlockBytes),
            [&](std::byte* data, std::size_t bytes) { std::memcpy(data, std::exchange(from, from + bytes), bytes); });
    begin(number + count);
  }
}

}  // namespace lockstep::parallel
