// The parts of a store's own shards that are kept in StateRooms, one for each kind that is offloaded: an update brings
// them to the device piece by piece, and reads the next while one is at work and the last is written back; reduced
// gradients leave, and weights come to be gathered, a bucket's whole shard at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/pinned_memory.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/staged_tensor.h"
#include "parallel/parameters/state_room.h"
#include "parallel/parameters/store.h"
#include "workload/flat_bucket.h"
#include "workload/offload.h"

namespace lockstep::parallel {

// What an update reads and writes of a range of elements. Where weights are f32, they are the master weights.
struct ShardViews {
  kernels::InOut master = {};  // f32, as the moments are
  kernels::InOut first_moment = {};
  kernels::InOut second_moment = {};
  kernels::InOut gradient = {};
  kernels::InOut weights = {};
};

// One rank's. Each room is used by one thread at a time. Of a device whose memory is not the host's the optimizer's
// states alone are offloaded, and views are memory of the device.
class OffloadedShards {
 public:
  struct Piece {
    std::size_t bucket = 0;
    workload::FlatRange range = {};                                    // of the bucket
    std::array<std::int64_t, workload::kNumOffloadKinds> offset = {};  // bytes, in the kind's room
  };
  // How a visit uses a kind: not at all; it makes all of it, whatever is there; it reads it; it changes it.
  enum class Use : std::uint8_t { none, makes, reads, changes };
  using Uses = std::array<Use, workload::kNumOffloadKinds>;  // by OffloadKind
  // `views`: those of kinds that are not offloaded, or not used, are empty.
  using Visit = std::function<void(const Piece& piece, const ShardViews& views)>;

  // `own`: of each bucket what this rank has.
  OffloadedShards(Memory& memory, const StoreOffload& offload, const std::vector<workload::FlatRange>& own,
                  core::DType compute, core::DType gradient);

  bool has(workload::OffloadKind kind) const { return shelf(kind).room() != nullptr; }

  // ---- with StoreOffload::next_weights
  // Gradients are written to the other room from now on, and those there are not read any more.
  void turn_gradients();
  void keep_gradients() { kept_gradients_ = shelf(workload::OffloadKind::gradients).now; }
  // All pieces with the optimizer's states, the kept gradients and room for the next weights, in the host's memory.
  void visit_delayed(const Visit& visit);
  // The next weights, where they are not offloaded: of a bucket's own shard, to the device.
  void copy_next_weights(std::size_t bucket, const kernels::Out& to);
  // Where they are: they are those that read() brings.
  void turn_weights();

  // ---- All pieces of so many buckets, in their order.
  void visit_buckets(std::size_t first, std::size_t count, const Uses& uses, const Visit& visit);

  // The own shard of a bucket, of gradients or weights: from, and to, make_staged() memory. Done when they return.
  void read(workload::OffloadKind kind, std::size_t bucket, const StagedTensor& to);
  void write(workload::OffloadKind kind, std::size_t bucket, const StagedTensor& from);

  std::int64_t moved_bytes(workload::OffloadKind kind) const { return shelf(kind).moved_bytes.load(); }  // so far

 private:
  using Rooms = std::array<StateRoom*, workload::kNumOffloadKinds>;
  struct Visiting {
    Uses uses = {};
    Rooms rooms = {};       // nullptr: of a kind that is not used
    bool in_place = false;  // what is in the host's memory is worked on there
  };
  using Tickets = std::array<std::optional<StateRoom::Ticket>, workload::kNumOffloadKinds>;
  struct Staging {
    Tensor memory = {};
    core::PinnedMemory on_host = {};  // in its place, where updates run on the host
    Tickets reads = {}, writes = {};  // under way
  };
  struct Shelf {
    std::array<std::unique_ptr<StateRoom>, 2> rooms;
    std::size_t now = 0;  // of them
    std::atomic<std::int64_t> moved_bytes{0};
    StateRoom* room() const { return rooms[now].get(); }
  };
  Shelf& shelf(workload::OffloadKind kind) { return shelves_[static_cast<std::size_t>(kind)]; }
  const Shelf& shelf(workload::OffloadKind kind) const { return shelves_[static_cast<std::size_t>(kind)]; }
  Visiting visiting(const Uses& uses) const;
  void visit_pieces(std::size_t begin, std::size_t end, const Visiting& visiting, const Visit& visit);
  Staging& staging_of(std::size_t piece) { return stagings_[piece % stagings_.size()]; }
  // Where a kind's part of a piece is staged, or is in the host's memory; `copied`: whether it is staged.
  struct Staged {
    std::byte* data = nullptr;
    bool copied = true;
  };
  Staged staged(std::size_t piece, workload::OffloadKind kind, const Visiting& visiting);
  ShardViews views_of(std::size_t piece, const Visiting& visiting);
  void begin_reads(std::size_t piece, const Visiting& visiting);
  void begin_writes(std::size_t piece, const Visiting& visiting);
  static void end(Tickets& tickets, const Visiting& visiting);
  std::int64_t shard_bytes(workload::OffloadKind kind, std::size_t bucket) const;

  const core::DType compute_;
  const core::DType gradient_;
  workload::OffloadStaging staging_;
  std::vector<workload::FlatRange> own_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_of_bucket_;  // and, behind the last, their number
  std::vector<Staging> stagings_;
  std::size_t kept_gradients_ = 0;  // room
  // Go first: what is under way ends, and then its memory.
  std::array<Shelf, workload::kNumOffloadKinds> shelves_;
};

}  // namespace lockstep::parallel
