#include "collectives/executors/cuda/board.h"

namespace lockstep::executors::cuda {
namespace {

constexpr std::size_t kHeadBytes = 128;
static_assert(sizeof(BoardHead) <= kHeadBytes);

struct Offsets {
  std::size_t bases;
  std::size_t done;
  std::size_t troubles;
  std::size_t end;
};

Offsets offsets_of(int num_ranks) {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const std::size_t bases = kHeadBytes + ranks * sizeof(std::uint64_t);
  const std::size_t done = bases + 2 * ranks * sizeof(CallBases);
  const std::size_t troubles = done + ranks * kMostSlots * sizeof(std::uint64_t);
  return {bases, done, troubles, troubles + ranks * sizeof(Trouble)};
}

}  // namespace

std::size_t board_bytes(int num_ranks) {
  return offsets_of(num_ranks).end;
}

BoardView board_at(std::byte* memory, int num_ranks) {
  const Offsets offsets = offsets_of(num_ranks);
  return {.head = reinterpret_cast<BoardHead*>(memory),
          .troubles = reinterpret_cast<Trouble*>(memory + offsets.troubles),
          .entered = reinterpret_cast<std::uint64_t*>(memory + kHeadBytes),
          .bases = reinterpret_cast<CallBases*>(memory + offsets.bases),
          .done = reinterpret_cast<std::uint64_t*>(memory + offsets.done),
          .scratch = {nullptr, nullptr},
          .packets = {nullptr, nullptr}};
}

}  // namespace lockstep::executors::cuda
