// Optimizer states, gradients and parameters kept off the device.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/device.h"
#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store.h"
#include "workload/memory_kinds.h"
#include "workload/parameters.h"

namespace lockstep::parallel {

// The parts of a store's own shards that are kept in StateRooms, one per offloaded kind. An update brings them to the
// device piece by piece: it reads the next piece while one is processed and the last is written back. Reduced gradients
// are copied off the device, and weights to it for gathers, a bucket's whole shard at a time.

// Tensors that an update reads and writes for a range of elements. If weights are f32, they are the master weights.
struct ShardViews {
  kernels::InOut master = {};  // f32, as are the moments
  kernels::InOut first_moment = {};
  kernels::InOut second_moment = {};
  kernels::InOut gradient = {};
  kernels::InOut weights = {};
};

// Belongs to one rank. Each room is used by one thread at a time. If device memory is not host memory, only the
// optimizer's states are offloaded, and views are in device memory.
class OffloadedShards {
 public:
  struct Piece {
    std::size_t bucket = 0;
    workload::FlatRange range = {};                                    // range in the bucket
    std::array<std::int64_t, workload::kNumOffloadKinds> offset = {};  // in bytes, within the kind's room
  };
  // Use of a kind by a visit: not at all; writes everything; reads; changes.
  enum class Use : std::uint8_t { none, makes, reads, changes };
  using Uses = std::array<Use, workload::kNumOffloadKinds>;  // by OffloadKind
  // Gets `views` that are empty for kinds that are not offloaded or not used.
  using Visit = std::function<void(const Piece& piece, const ShardViews& views)>;

  // `own`: this rank's range of each bucket.
  OffloadedShards(Memory& memory, const StoreOptions& options, const std::vector<workload::FlatRange>& own);

  bool has(workload::OffloadKind kind) const { return shelf(kind).room() != nullptr; }

  // ---- with StoreOffload::next_weights
  // From now on gradients are written to the other room, and the previous ones are no longer read.
  void turn_gradients();
  void keep_gradients() { kept_gradients_ = shelf(workload::OffloadKind::gradients).now; }
  // Visits all pieces in host memory: the optimizer's states, the kept gradients and the buffer of the next weights.
  void visit_delayed(const Visit& visit);
  // If weights are not offloaded: copies the next weights of a bucket's own shard to the device.
  void copy_next_weights(std::size_t bucket, const kernels::Out& to);
  // If they are offloaded: makes the next weights those that read() brings.
  void turn_weights();

  // ---- Visits all pieces of these buckets, in their order.
  void visit_buckets(std::size_t first, std::size_t count, const Uses& uses, const Visit& visit);

  // Copies a bucket's own shard of gradients or weights from or to make_staged() memory. Synchronous.
  void read(workload::OffloadKind kind, std::size_t bucket, const StagedTensor& to);
  void write(workload::OffloadKind kind, std::size_t bucket, const StagedTensor& from);

  std::int64_t moved_bytes(workload::OffloadKind kind) const { return shelf(kind).moved_bytes.load(); }  // so far

 private:
  using Rooms = std::array<StateRoom*, workload::kNumOffloadKinds>;
  struct Visiting {
    Uses uses = {};
    Rooms rooms = {};       // nullptr for kinds that are not used
    bool in_place = false;  // host memory is processed in place
  };
  using Tickets = std::array<std::optional<StateRoom::Ticket>, workload::kNumOffloadKinds>;
  struct Staging {
    Tensor memory = {};
    core::PinnedMemory on_host = {};  // host memory instead, if updates run on the host
    Tickets reads = {}, writes = {};  // in flight
  };
  struct Shelf {
    std::array<std::unique_ptr<StateRoom>, 2> rooms;
    std::size_t now = 0;  // index of the current one
    std::atomic<std::int64_t> moved_bytes{0};
    StateRoom* room() const { return rooms[now].get(); }
  };
  Shelf& shelf(workload::OffloadKind kind) { return shelves_[static_cast<std::size_t>(kind)]; }
  const Shelf& shelf(workload::OffloadKind kind) const { return shelves_[static_cast<std::size_t>(kind)]; }
  Visiting visiting(const Uses& uses) const;
  void visit_pieces(std::size_t begin, std::size_t end, const Visiting& visiting, const Visit& visit);
  Staging& staging_of(std::size_t piece) { return stagings_[piece % stagings_.size()]; }
  // A kind's part of a piece in staging or host memory; `copied`: true if it is in staging memory.
  struct StagedPart {
    std::byte* data = nullptr;
    bool copied = true;
  };
  StagedPart staged(std::size_t piece, workload::OffloadKind kind, const Visiting& visiting);
  ShardViews views_of(std::size_t piece, const Visiting& visiting);
  // Begins copies of the piece's parts that are used so, each by copy(room, offset, data, bytes).
  template <class Copy>
  void begin_copies(std::size_t piece, const Visiting& visiting, Use alone, Tickets& tickets, const Copy& copy);
  void begin_reads(std::size_t piece, const Visiting& visiting);
  static void end(Tickets& tickets, const Visiting& visiting);
  std::int64_t shard_bytes(workload::OffloadKind kind, std::size_t bucket) const;

  const core::DType compute_;
  const core::DType gradient_;
  const kernels::OptimizerRule rule_;
  workload::OffloadStaging staging_;
  std::vector<workload::FlatRange> own_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_of_bucket_;  // with the total number at the end
  std::vector<Staging> stagings_;
  std::size_t kept_gradients_ = 0;  // index of the room
  // Destroyed first: copies in flight end, then memory is freed.
  std::array<Shelf, workload::kNumOffloadKinds> shelves_;
};

// Tensors kept off a rank's device, in host memory or in a file, until they are needed again.

// For one thread at a time, the one that copies, which may differ from the kernels' thread. Copies to and from a file
// go through many blocks of host memory, some of which are written while the next are filled.
class TensorsAway {
 public:
  using Slot = workload::CopySlot;
  // `room_bytes`: size of all slots together.
  TensorsAway(Memory& memory, const MakeStateRoom& make_room, std::int64_t room_bytes);
  ~TensorsAway();  // copies in flight end first
  TensorsAway(const TensorsAway&) = delete;
  TensorsAway& operator=(const TensorsAway&) = delete;

  // Copies the given tensors, `slot.bytes` of activations in all, off the device and frees them. The previous contents
  // of the slot must have been brought back.
  void take(const Slot& slot, std::span<Tensor* const> tensors);
  // Allocates the same tensors again and copies their contents back.
  void bring_back(const Slot& slot, std::span<Tensor* const> tensors);

  std::int64_t moved_bytes() const { return moved_bytes_; }  // off the device and back, so far

 private:
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
  struct TakenTensor {
    std::size_t index = 0;  // in the list
    core::DType dtype = core::DType::f32;
    std::int64_t elems = 0;
  };
  struct HostBlock {
    std::byte* data = nullptr;
    StateRoom::Ticket ticket = 0;
    bool moves = false;
  };
  void write_blocks(const Slot& slot, std::span<Tensor* const> tensors);
  void read_blocks(const Slot& slot, std::span<Tensor* const> tensors);
  void end(HostBlock& block);

  Memory& memory_;
  core::PinnedMemory staging_;  // for a room whose copies have to be aligned
  std::array<HostBlock, 8> blocks_ = {};
  std::map<std::int64_t, std::vector<TakenTensor>> left_;  // by the slot's offset
  std::unique_ptr<StateRoom> room_;                        // destroyed first
  std::int64_t moved_bytes_ = 0;
};

}  // namespace lockstep::parallel
