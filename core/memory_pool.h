// Caching allocator for device memory in stream order: released memory is kept and handed out again. Plain host code on
// top of the few calls of a device in RawMemory.
//
// Memory comes from the device in chunks. Small and medium requests are pieces of chunks, split off the smallest free
// piece that fits and joined with their free neighbours later; a large request is a chunk of its own. A released piece
// waits for events: its own stream may reuse it at once, because work there is in order; other streams when the events
// have passed.
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
  // Returns 512-byte aligned memory, or nullptr if there is not enough. May be called while a stream is captured.
  virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void release(void* memory) = 0;  // waits for work that uses it; does not throw
  virtual std::size_t free_bytes() = 0;    // free bytes of the device
  virtual std::unique_ptr<Event> make_event() = 0;
};

struct PoolBytes {
  std::size_t held = 0;  // held by the program, as requested
  std::size_t peak_held = 0;
  std::size_t reserved = 0;  // taken from the device: held, kept, and rounding
};

// Requests up to `most_bytes` are rounded up to `grain_bytes` and are pieces of chunks of `chunk_bytes`; 0: chunks of
// their own.
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

// May be called by any thread.
class MemoryPool {
 public:
  // `place` names the caller in errors: "rank 3, CUDA device 1".
  MemoryPool(std::unique_ptr<RawMemory> raw, std::string place);
  ~MemoryPool();  // frees everything
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // As in Device. A release throws only for bugs of ours: if the device has failed, the memory is not reused, and the
  // stream's next use reports the failure.
  void* allocate(std::size_t size_bytes) { return allocate_for(nullptr, size_bytes); }
  void* allocate_on(Stream& stream, std::size_t size_bytes) { return allocate_for(&stream, size_bytes); }
  void* allocate_alone(std::size_t size_bytes);  // a whole allocation of the device, never kept
  void release(void* memory) { release_after(nullptr, memory); }
  void release_on(Stream& stream, void* memory) { release_after(&stream, memory); }
  void free_unused();
  PoolBytes bytes() const;

  // Registers the device's streams. A new stream may have the address of a destroyed one.
  void add_stream(Stream& stream);
  void remove_stream(Stream& stream);

  // While a stream is captured, no event can be recorded or queried. Memory released then is used by each launch of the
  // graph: the graph keeps it, and meanwhile only its own stream may reuse it.
  using Kept = std::vector<std::byte*>;
  void capture_begins();
  Kept capture_ends();
  void graph_ends(const Kept& kept);  // all of its launches have been queued

 private:
  enum class State {
    held,
    free,
    waiting,   // for its marks
    captured,  // released in the current capture
    in_graph,  // released in an earlier capture whose graph still exists
    lost,      // the device failed when it was released
  };
  // A point after the work that used the memory.
  struct Mark {
    const Stream* stream;          // nullptr if the stream no longer exists
    std::shared_ptr<Event> event;  // nullptr during a capture
  };
  struct Block {
    std::byte* chunk;  // beginning of the device's allocation
    std::size_t chunk_bytes;
    std::size_t size_bytes;
    std::size_t size_class;  // kNumSizeClasses: an allocation of its own
    State state = State::free;
    std::size_t asked_bytes = 0;  // requested bytes while held
    std::vector<Mark> marks = {};
  };
  using Blocks = std::map<std::byte*, Block>;

  // ---- allocating
  void* allocate_for(const Stream* stream, std::size_t size_bytes);
  Blocks::iterator find(const Stream* stream, std::size_t size_class, std::size_t size_bytes);
  Blocks::iterator find_in_order(const Stream& stream, std::size_t size_class, std::size_t size_bytes);
  Blocks::iterator grow(std::size_t size_class, std::size_t size_bytes);
  Blocks::iterator add_chunk(std::size_t size_class, std::size_t chunk_bytes);
  void* hand_out(Blocks::iterator block, std::size_t asked_bytes, std::size_t size_bytes);
  void split(Blocks::iterator block, std::size_t size_bytes);
  [[noreturn]] void refuse(std::size_t size_bytes);

  // ---- releasing
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

  // ---- freeing
  void wait_for_all();
  void free_chunks();
  void free_chunk(Blocks::iterator block);

  void list(Blocks::iterator block);  // adds it to the list of its state
  void unlist(Blocks::iterator block);

  const std::unique_ptr<RawMemory> raw_;
  const std::string place_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                                                   // all blocks, ordered by address
  std::array<std::set<std::pair<std::size_t, std::byte*>>, kNumSizeClasses> free_;  // free blocks, ordered by size
  std::vector<std::byte*> waiting_;
  std::vector<std::byte*> captured_;
  std::vector<Stream*> streams_;
  std::vector<std::shared_ptr<Event>> spare_events_;
  bool capturing_ = false;
  PoolBytes bytes_;
};

}  // namespace lockstep::core
