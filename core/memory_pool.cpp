#include "core/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/index.h"

namespace lockstep::core {
namespace {

constexpr std::size_t kAlone = kNumSizeClasses;

// Returns kNumSizeClasses for sizes above any device's memory.
std::size_t class_of(std::size_t size_bytes) {
  std::size_t c = 0;
  while (c < kNumSizeClasses && size_bytes > kSizeClasses[c].most_bytes) ++c;
  return c;
}

bool is_split(std::size_t size_class) {
  return size_class < kNumSizeClasses && kSizeClasses[size_class].chunk_bytes != 0;
}

// A block fits a request if it can be split, or is at most an eighth larger than the request.
bool fits(std::size_t block_bytes, std::size_t size_class, std::size_t size_bytes) {
  return block_bytes >= size_bytes && (is_split(size_class) || block_bytes - size_bytes <= size_bytes / 8);
}

}  // namespace

MemoryPool::MemoryPool(std::unique_ptr<RawMemory> raw, std::string place)
    : raw_(std::move(raw)), place_(std::move(place)) {}

MemoryPool::~MemoryPool() {
  for (const auto& [memory, block] : blocks_) {
    if (memory == block.chunk) raw_->release(memory);
  }
}

// ---- handing out

void* MemoryPool::allocate_for(const Stream* stream, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t size_class = class_of(size_bytes);
  if (size_class == kNumSizeClasses) refuse(size_bytes);
  const std::size_t rounded =
      round_up(std::max(size_bytes, std::size_t{1}),
               kSizeClasses[size_class].grain_bytes);  // a request of 0 bytes gets an address, too
  settle();
  auto block = find(stream, size_class, rounded);
  if (block == blocks_.end()) block = grow(size_class, rounded);
  if (block == blocks_.end()) refuse(size_bytes);
  return hand_out(block, size_bytes, rounded);
}

void* MemoryPool::allocate_alone(std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (class_of(size_bytes) == kNumSizeClasses || capturing_) refuse(size_bytes);
  settle();
  const std::size_t chunk_bytes = std::max(size_bytes, std::size_t{1});
  auto block = add_chunk(kAlone, chunk_bytes);
  if (block == blocks_.end()) {
    wait_for_all();
    free_chunks();
    block = add_chunk(kAlone, chunk_bytes);
  }
  if (block == blocks_.end()) refuse(size_bytes);
  return hand_out(block, size_bytes, chunk_bytes);
}

// Finds the smallest block that fits; of two equally small ones, the one that only this stream may use yet.
MemoryPool::Blocks::iterator MemoryPool::find(const Stream* stream, std::size_t size_class, std::size_t size_bytes) {
  const auto mine = stream == nullptr ? blocks_.end() : find_in_order(*stream, size_class, size_bytes);
  const auto& free = free_[size_class];
  const auto smallest = free.lower_bound({size_bytes, nullptr});
  if (smallest == free.end() || !fits(smallest->first, size_class, size_bytes)) return mine;
  if (mine != blocks_.end() && mine->second.size_bytes <= smallest->first) return mine;
  return blocks_.find(smallest->second);
}

// Finds a block released on the same stream. During a capture only blocks released in it qualify: other blocks may wait
// for work from before the capture, and the graph need not run after that work.
MemoryPool::Blocks::iterator MemoryPool::find_in_order(const Stream& stream, std::size_t size_class,
                                                       std::size_t size_bytes) {
  auto best = blocks_.end();
  for (std::byte* memory : capturing_ ? captured_ : waiting_) {
    const auto block = blocks_.find(memory);
    const Block& its = block->second;
    const bool in_order =
        std::all_of(its.marks.begin(), its.marks.end(), [&](const Mark& mark) { return mark.stream == &stream; });
    if (!in_order || its.size_class != size_class || !fits(its.size_bytes, size_class, size_bytes)) continue;
    if (best == blocks_.end() || its.size_bytes < best->second.size_bytes) best = block;
  }
  return best;
}

// Takes a chunk from the device. If the device has none, waits for blocks that wait for events, because freeing memory
// would wait for even more: all work of the device. Then frees what is kept and tries once more, with no more bytes
// than needed. During a capture it cannot wait for anything.
MemoryPool::Blocks::iterator MemoryPool::grow(std::size_t size_class, std::size_t size_bytes) {
  const std::size_t chunk_bytes = std::max(kSizeClasses[size_class].chunk_bytes, size_bytes);
  if (const auto block = add_chunk(size_class, chunk_bytes); block != blocks_.end()) return block;
  if (capturing_) return add_chunk(size_class, round_up(size_bytes, kChunkGrainBytes));
  wait_for_all();
  if (const auto block = find(nullptr, size_class, size_bytes); block != blocks_.end()) return block;
  free_chunks();
  return add_chunk(size_class, round_up(size_bytes, kChunkGrainBytes));
}

MemoryPool::Blocks::iterator MemoryPool::add_chunk(std::size_t size_class, std::size_t chunk_bytes) {
  auto* const memory = static_cast<std::byte*>(raw_->allocate(chunk_bytes));
  if (memory == nullptr) return blocks_.end();
  bytes_.reserved += chunk_bytes;
  const Block block{.chunk = memory, .chunk_bytes = chunk_bytes, .size_bytes = chunk_bytes, .size_class = size_class};
  const auto added = blocks_.emplace(memory, block).first;
  list(added);
  return added;
}

void* MemoryPool::hand_out(Blocks::iterator block, std::size_t asked_bytes, std::size_t size_bytes) {
  unlist(block);
  Block& its = block->second;
  if (is_split(its.size_class) && its.size_bytes > size_bytes) split(block, size_bytes);
  drop_marks(its);
  its.state = State::held;
  its.asked_bytes = asked_bytes;
  bytes_.held += asked_bytes;
  bytes_.peak_held = std::max(bytes_.peak_held, bytes_.held);
  return block->first;
}

// Splits the block; the remainder waits for the same events.
void MemoryPool::split(Blocks::iterator block, std::size_t size_bytes) {
  Block rest = block->second;
  rest.size_bytes -= size_bytes;
  block->second.size_bytes = size_bytes;
  list(blocks_.emplace(block->first + size_bytes, std::move(rest)).first);
}

void MemoryPool::refuse(std::size_t size_bytes) {
  std::size_t kept = 0;
  for (const auto& [memory, block] : blocks_) {
    if (block.state == State::free || block.state == State::waiting) kept += block.size_bytes;
  }
  if (capturing_) {
    throw Error(Failure::cuda,
                fmt::format("{}: captured work needs {} more bytes; the device has {} bytes free, and none of the kept "
                            "blocks ({} bytes in total) fits",
                            place_, size_bytes, raw_->free_bytes(), kept));
  }
  throw Error(Failure::cuda, fmt::format("cudaMalloc of {} bytes failed on {}: the program holds {} bytes, {} are kept "
                                         "for reuse, and {} bytes of the device are free",
                                         size_bytes, place_, bytes_.held, kept, raw_->free_bytes()));
}

// ---- taking back

void MemoryPool::release_after(Stream* stream, void* memory) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(memory));
  LOCKSTEP_CHECK(block != blocks_.end() && block->second.state == State::held,
                 "release of memory that this device did not allocate, or twice");
  LOCKSTEP_CHECK(stream == nullptr || std::find(streams_.begin(), streams_.end(), stream) != streams_.end(),
                 "release after the work of a stream that is not the device's");
  bytes_.held -= block->second.asked_bytes;
  block->second.asked_bytes = 0;
  retire(block, stream);
}

void MemoryPool::retire(Blocks::iterator block, Stream* stream) {
  Block& its = block->second;
  try {
    its.marks = marks_after(stream);
  } catch (const Error&) {
    its.state = State::lost;
    return;
  }
  const bool at_once = its.size_class == kAlone || its.marks.empty();
  put(block, capturing_ ? State::captured : State::waiting);
  if (!at_once) return;
  try {
    settle();
  } catch (const Error&) {
    // The next call that uses the device reports the failure.
  }
}

std::vector<MemoryPool::Mark> MemoryPool::marks_after(Stream* stream) {
  std::vector<Mark> marks;
  if (capturing_) {
    marks.push_back({stream, nullptr});
  } else if (stream != nullptr) {
    marks.push_back(mark(*stream));
  } else {
    for (Stream* each : streams_) marks.push_back(mark(*each));
  }
  return marks;
}

MemoryPool::Mark MemoryPool::mark(Stream& stream) {
  std::shared_ptr<Event> event;
  if (spare_events_.empty()) {
    event = raw_->make_event();
  } else {
    event = std::move(spare_events_.back());
    spare_events_.pop_back();
  }
  event->record(stream);
  return {&stream, std::move(event)};
}

void MemoryPool::drop_mark(Mark& mark) {
  if (mark.event.use_count() == 1) spare_events_.push_back(std::move(mark.event));
  mark.event.reset();
}

void MemoryPool::drop_marks(Block& block) {
  for (Mark& mark : block.marks) drop_mark(mark);
  block.marks.clear();
}

// Looks for blocks whose events have passed: frees those that are allocations of their own, lists the others as free.
void MemoryPool::settle() {
  if (capturing_) return;
  std::vector<const Stream*> busy;
  std::vector<std::byte*> passed;
  for (std::byte* memory : waiting_) {
    if (has_passed(blocks_.at(memory), busy)) passed.push_back(memory);
  }
  for (std::byte* memory : passed) {
    const auto block = blocks_.find(memory);
    unlist(block);
    if (block->second.size_class == kAlone) {
      free_chunk(block);
    } else {
      put(block, State::free);
    }
  }
}

// `busy` holds streams with an event that is known not to have passed; their other events are not queried.
bool MemoryPool::has_passed(Block& block, std::vector<const Stream*>& busy) {
  auto mark = block.marks.begin();
  while (mark != block.marks.end()) {
    if (mark->stream != nullptr && std::find(busy.begin(), busy.end(), mark->stream) != busy.end()) return false;
    if (!mark->event->done()) {
      if (mark->stream != nullptr) busy.push_back(mark->stream);
      return false;
    }
    drop_mark(*mark);
    mark = block.marks.erase(mark);
  }
  return true;
}

// Adds a block to the list of its state, joined with its neighbours there.
void MemoryPool::put(Blocks::iterator block, State state) {
  block->second.state = state;
  list(join_neighbours(block));
}

// If both neighbours wait for the same stream, the one released last has the later event: its marks are kept.
MemoryPool::Blocks::iterator MemoryPool::join_neighbours(Blocks::iterator block) {
  const auto joinable = [](const Block& a, const Block& b) {
    if (a.chunk != b.chunk || a.state != b.state) return false;
    if (a.state == State::free) return true;
    return a.marks.size() == 1 && b.marks.size() == 1 && a.marks[0].stream != nullptr &&
           a.marks[0].stream == b.marks[0].stream;
  };
  if (const auto next = std::next(block); next != blocks_.end() && joinable(block->second, next->second)) {
    unlist(next);
    drop_marks(next->second);
    block->second.size_bytes += next->second.size_bytes;
    blocks_.erase(next);
  }
  if (block == blocks_.begin() || !joinable(std::prev(block)->second, block->second)) return block;
  const auto previous = std::prev(block);
  unlist(previous);
  drop_marks(previous->second);
  previous->second.marks = std::move(block->second.marks);
  previous->second.size_bytes += block->second.size_bytes;
  blocks_.erase(block);
  return previous;
}

// ---- giving back

void MemoryPool::free_unused() {
  const std::lock_guard lock(mutex_);
  settle();
  if (!capturing_) free_chunks();
}

void MemoryPool::wait_for_all() {
  for (std::byte* memory : waiting_) {
    for (const Mark& mark : blocks_.at(memory).marks) mark.event->synchronize();
  }
  settle();
}

void MemoryPool::free_chunks() {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const Block& its = block->second;
    if (its.state == State::free && its.size_bytes == its.chunk_bytes) {
      unlist(block);
      free_chunk(block);
    }
    block = next;
  }
}

void MemoryPool::free_chunk(Blocks::iterator block) {
  std::byte* const memory = block->first;
  bytes_.reserved -= block->second.chunk_bytes;
  blocks_.erase(block);
  raw_->release(memory);
}

void MemoryPool::list(Blocks::iterator block) {
  const Block& its = block->second;
  if (its.state == State::waiting) {
    waiting_.push_back(block->first);
  } else if (its.state == State::captured) {
    captured_.push_back(block->first);
  } else if (its.size_class != kAlone) {
    free_[its.size_class].emplace(its.size_bytes, block->first);
  }
}

void MemoryPool::unlist(Blocks::iterator block) {
  const Block& its = block->second;
  if (its.state == State::waiting) {
    std::erase(waiting_, block->first);
  } else if (its.state == State::captured) {
    std::erase(captured_, block->first);
  } else if (its.size_class != kAlone) {
    free_[its.size_class].erase({its.size_bytes, block->first});
  }
}

PoolBytes MemoryPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

// ---- streams and graphs

void MemoryPool::add_stream(Stream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(&stream);
}

void MemoryPool::remove_stream(Stream& stream) {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, &stream);
  for (auto& [memory, block] : blocks_) {
    for (Mark& mark : block.marks) {
      if (mark.stream == &stream) mark.stream = nullptr;
    }
  }
}

void MemoryPool::capture_begins() {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(!capturing_, "one capture of a device at a time");
  settle();
  capturing_ = true;
}

MemoryPool::Kept MemoryPool::capture_ends() {
  const std::lock_guard lock(mutex_);
  capturing_ = false;
  for (std::byte* memory : captured_) blocks_.at(memory).state = State::in_graph;
  return std::exchange(captured_, {});
}

void MemoryPool::graph_ends(const Kept& kept) {
  const std::lock_guard lock(mutex_);
  for (std::byte* memory : kept) retire(blocks_.find(memory), nullptr);
}

}  // namespace lockstep::core
