// The optimizer's states of a store's own shards, kept in a StateRoom and brought to the device piece by piece: while
// one is at work the next are read, and the last is written back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/state_room.h"
#include "parallel/parameters/store.h"
#include "workload/flat_bucket.h"
#include "workload/offload.h"

namespace lockstep::parallel {

// One rank's, in its own thread. Memory is the host's.
class OffloadedStates {
 public:
  struct Piece {
    std::size_t bucket = 0;
    workload::FlatRange range = {};  // of the bucket
    std::int64_t offset = 0;         // bytes, in the room
  };
  // A piece's states on the device, f32: of the elements of its range.
  struct Views {
    kernels::InOut master = {};  // of no elements where weights are their own masters
    kernels::InOut first_moment = {};
    kernels::InOut second_moment = {};
    const kernels::InOut& of(ParameterStore::State state) const;
  };
  using Visit = std::function<void(const Piece& piece, const Views& views)>;
  // How a visit uses the states: it makes them, whatever is there; it reads them; it changes them.
  enum class Use : std::uint8_t { makes, reads, changes };

  // `own`: of each bucket what this rank has.
  OffloadedStates(Memory& memory, const MakeStateRoom& make_room, const std::vector<workload::FlatRange>& own,
                  bool has_masters, std::int64_t piece_elems);

  // All pieces, in the order of buckets; of `count` buckets from `first` on.
  void visit(Use use, const Visit& visit);
  void visit_buckets(std::size_t first, std::size_t count, Use use, const Visit& visit);

  std::int64_t moved_bytes() const { return moved_bytes_; }  // to and from the room, so far

 private:
  struct Room {
    Tensor memory = {};
    StateRoom::Ticket read = 0, write = 0;
    bool is_read = false, is_written = false;  // under way
  };
  void visit_pieces(std::size_t begin, std::size_t end, Use use, const Visit& visit);
  Room& room_of(std::size_t piece) { return rooms_[piece % rooms_.size()]; }
  std::byte* data_of(std::size_t piece);
  Views views_of(std::size_t piece);
  void begin_read(std::size_t piece);
  void begin_write(std::size_t piece);
  void end_read(Room& room);
  void end_write(Room& room);

  workload::OffloadStaging staging_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_of_bucket_;  // and, behind the last, their number
  std::vector<Room> rooms_;
  std::unique_ptr<StateRoom> room_;  // goes first: what is under way ends, and then its memory
  std::int64_t moved_bytes_ = 0;
};

}  // namespace lockstep::parallel
