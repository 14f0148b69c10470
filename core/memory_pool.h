// Device memory that is kept when it is released and handed out again, in the order of streams: plain host code over
// what it needs of a device.
//
// Memory comes from the device in chunks. Small and middle requests are pieces of chunks, split off the smallest free
// piece that fits and joined with their free neighbours later; a large one is a chunk of its own. A released piece
// waits for events: for its own stream it is free at once, as work there is in order; for others when the events have
// passed.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"

namespace lockstep::core {

// The calls of a device that the pool needs.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  // 512-byte aligned; nullptr where there is not as much. Also while a stream of the device is captured.
  virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void release(void* memory) = 0;  // waits for work that uses it; throws nothing
  virtual std::size_t free_bytes() = 0;    // of the device
  virtual std::unique_ptr<Event> make_event() = 0;
};

struct PoolBytes {
  std::size_t held = 0;  // by the program, as it asked
  std::size_t peak_held = 0;
  std::size_t reserved = 0;  // taken from the device: held, kept, and what rounding adds
  std::size_t peak_reserved = 0;
  std::size_t kept = 0;  // to hand out again: free, or waiting for events
};

// Requests up to `most_bytes` are multiples of `grain_bytes`, pieces of chunks of `chunk_bytes`; 0: own chunks.
struct SizeClass {
  std::size_t most_bytes;
  std::size_t grain_bytes;
  std::size_t chunk_bytes;
};
inline constexpr std::size_t kNumSizeClasses = 3;
// A CUDA device hands out memory in steps of 2 MiB.
inline constexpr std::size_t kChunkGrainBytes = std::size_t{2} << 20;
inline constexpr std::array<SizeClass, kNumSizeClasses> kSizeClasses{{
    {.most_bytes = std::size_t{1} << 20, .grain_bytes = 512, .chunk_bytes = std::size_t{4} << 20},
    {.most_bytes = std::size_t{16} << 20, .grain_bytes = std::size_t{64} << 10, .chunk_bytes = std::size_t{64} << 20},
    {.most_bytes = std::size_t{1} << 60, .grain_bytes = kChunkGrainBytes, .chunk_bytes = 0},
}};

// Called by any thread.
class MemoryPool {
 public:
  // `place` is for errors: "rank 3, CUDA device 1".
  MemoryPool(std::unique_ptr<RawMemory> raw, std::string place);
  ~MemoryPool();  // frees everything
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // As Device's. A release throws nothing but for bugs of ours: where the device has failed, the memory is not handed
  // out again, and the stream's next use tells of the failure.
  void* allocate(std::size_t size_bytes) { return allocate_for(nullptr, size_bytes); }
  void* allocate_on(Stream& stream, std::size_t size_bytes) { return allocate_for(&stream, size_bytes); }
  void* allocate_alone(std::size_t size_bytes);  // a whole allocation of the device's, never kept
  void release(void* memory) { release_after(nullptr, memory); }
  void release_on(Stream& stream, void* memory) { release_after(&stream, memory); }
  void free_unused();
  PoolBytes bytes() const;

  // The device's streams, as they come and go. A stream that comes may have the address of one that went.
  void add_stream(Stream& stream);
  void remove_stream(Stream& stream);

  // While a stream is captured, no event can be recorded or looked at. What is released then is used by each launch of
  // the graph: the graph keeps it, and only its own stream gets it again meanwhile.
  using Kept = std::vector<std::byte*>;
  void capture_begins();
  Kept capture_ends();
  void graph_ends(const Kept& kept);  // all its launches have been queued

 private:
  enum class State {
    held,
    free,
    waiting,   // for its marks
    captured,  // released in the capture that goes on
    in_graph,  // released in an earlier one, whose graph lives
    lost,      // the device failed when it was released
  };
  // The end of work that used the memory.
  struct Mark {
    const Stream* stream;          // nullptr: none that still lives
    std::shared_ptr<Event> event;  // nullptr: captured
  };
  struct Block {
    std::byte* chunk;  // where the device's allocation begins
    std::size_t chunk_bytes;
    std::size_t size_bytes;
    std::size_t size_class;  // kNumSizeClasses: alone
    State state = State::free;
    std::size_t asked_bytes = 0;  // while held
    std::vector<Mark> marks = {};
  };
  using Blocks = std::map<std::byte*, Block>;

  // ---- handing out
  void* allocate_for(const Stream* stream, std::size_t size_bytes);
  Blocks::iterator find(const Stream* stream, std::size_t size_class, std::size_t size_bytes);
  Blocks::iterator find_in_order(const Stream& stream, std::size_t size_class, std::size_t size_bytes);
  Blocks::iterator grow(std::size_t size_class, std::size_t size_bytes);
  Blocks::iterator add_chunk(std::size_t size_class, std::size_t chunk_bytes);
  void* hand_out(Blocks::iterator block, std::size_t asked_bytes, std::size_t size_bytes);
  void split(Blocks::iterator block, std::size_t size_bytes);
  [[noreturn]] void refuse(std::size_t size_bytes);

  // ---- taking back
  void release_after(Stream* stream, void* memory);
  void retire(Blocks::iterator block, Stream* stream);
  std::vector<Mark> marks_after(Stream* stream);
  Mark mark(Stream& stream);
  void drop_mark(Mark& mark);
  void drop_marks(Block& block);
  void settle();
  bool has_passed(Block& block, std::vector<const Stream*>& busy);
  void put(Blocks::iterator block, State state);
  Blocks::iterator join_neighbours(Blocks::iterator block);

  // ---- giving back
  void wait_for_all();
  void free_chunks();
  void free_chunk(Blocks::iterator block);

  void list(Blocks::iterator block);  // puts it where blocks of its state are looked for
  void unlist(Blocks::iterator block);

  const std::unique_ptr<RawMemory> raw_;
  const std::string place_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                                                   // all, in the order of addresses
  std::array<std::set<std::pair<std::size_t, std::byte*>>, kNumSizeClasses> free_;  // by size
  std::vector<std::byte*> waiting_;
  std::vector<std::byte*> captured_;
  std::vector<Stream*> streams_;
  std::vector<std::shared_ptr<Event>> spare_events_;
  bool capturing_ = false;
  PoolBytes bytes_;
};

}  // namespace lockstep::core
