// Tests the pool on a fake device: addresses without memory, and streams whose work the test completes.
#include "core/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "testing/core/thrown.h"

namespace lockstep::core {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Work is counted: `queued` items so far, of which `finished` are done.
class FakeStream final : public Stream {
 public:
  void synchronize() override { finished = queued; }
  bool done() override { return finished == queued; }
  void* native() const override { return nullptr; }
  void wait(const Event& /*event*/) override {}
  bool can_capture() const override { return false; }
  void begin_capture() override {}
  std::unique_ptr<Graph> end_capture() override { return nullptr; }

  int queued = 0;
  int finished = 0;
  bool failed = false;
};

// Knows its stream's count, but not the stream, which may be destroyed.
class FakeEvent final : public Event {
 public:
  void record(Stream& stream) override {
    stream_ = dynamic_cast<FakeStream*>(&stream);
    if (stream_->failed) throw Error(Failure::cuda, "cudaEventRecord failed");
    at_ = stream_->queued;
  }
  void synchronize() override { stream_->finished = std::max(stream_->finished, at_); }
  bool done() override { return stream_->finished >= at_; }
  double us_since(const Event& /*start*/) const override { return 0; }
  void* native() const override { return nullptr; }

 private:
  FakeStream* stream_ = nullptr;
  int at_ = 0;
};

// Requests that a fake device has received.
struct Asked {
  std::size_t capacity = 1024 * kMiB;
  std::size_t used = 0;
  int allocations = 0;  // including refused ones
  int events = 0;
  std::map<std::byte*, std::size_t> chunks = {};
  std::uintptr_t next = 4096 * kMiB;
};

class FakeRaw final : public RawMemory {
 public:
  explicit FakeRaw(Asked& asked) : asked_(asked) {}
  void* allocate(std::size_t size_bytes) override {
    ++asked_.allocations;
    if (asked_.used + size_bytes > asked_.capacity) return nullptr;
    auto* memory = reinterpret_cast<std::byte*>(asked_.next);  // NOLINT(performance-no-int-to-ptr): never read
    asked_.next += (size_bytes + 511) / 512 * 512;             // chunks are adjacent
    asked_.used += size_bytes;
    asked_.chunks[memory] = size_bytes;
    return memory;
  }
  void release(void* memory) override {
    const auto chunk = asked_.chunks.find(static_cast<std::byte*>(memory));
    if (chunk == asked_.chunks.end()) throw std::logic_error("freed what was not allocated");
    asked_.used -= chunk->second;
    asked_.chunks.erase(chunk);
  }
  std::size_t free_bytes() override { return asked_.capacity - asked_.used; }
  std::unique_ptr<Event> make_event() override {
    ++asked_.events;
    return std::make_unique<FakeEvent>();
  }

 private:
  Asked& asked_;
};

class MemoryPoolTest : public testing::Test {
 protected:
  MemoryPoolTest() {
    pool_->add_stream(a_);
    pool_->add_stream(b_);
  }
  std::string refusal_of(std::size_t size_bytes) {
    const Error error = thrown_by([&] { pool_->allocate(size_bytes); });
    EXPECT_EQ(error.failure(), Failure::cuda);
    return error.what();
  }

  Asked device_;
  std::optional<MemoryPool> pool_{std::in_place, std::make_unique<FakeRaw>(device_), "rank 3, CUDA device 1"};
  FakeStream a_;
  FakeStream b_;
};

TEST_F(MemoryPoolTest, CountsWhatIsHeldAndWhatIsTakenForItApart) {
  void* block = pool_->allocate(1000);
  void* two = pool_->allocate(3);
  EXPECT_EQ(pool_->bytes().held, 1003U);
  EXPECT_EQ(pool_->bytes().reserved, 4 * kMiB);
  void* three = pool_->allocate(5 * kMiB);
  EXPECT_EQ(pool_->bytes().reserved, 68 * kMiB);
  pool_->release(block);
  pool_->release(three);
  EXPECT_EQ(pool_->bytes().held, 3U);
  EXPECT_EQ(pool_->bytes().peak_held, 5 * kMiB + 1003);
  pool_->free_unused();
  EXPECT_EQ(pool_->bytes().reserved, 4 * kMiB) << "the small chunk holds a piece yet";
  EXPECT_EQ(device_.used, 4 * kMiB);
  pool_->release(two);
  pool_->free_unused();
  EXPECT_EQ(device_.used, 0U);
}

TEST_F(MemoryPoolTest, PiecesOfAChunkAreApartAlignedAndJoinedAgain) {
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(static_cast<std::byte*>(pool_->allocate(kMiB / 2 - 100)));
  EXPECT_EQ(device_.allocations, 1);
  for (std::size_t i = 1; i < pieces.size(); ++i) EXPECT_EQ(pieces[i] - pieces[i - 1], kMiB / 2);
  for (const std::size_t i : {1U, 3U, 5U, 7U, 2U, 6U, 0U, 4U}) pool_->release(pieces[i]);
  std::vector<void*> again;
  for (int i = 0; i < 4; ++i) again.push_back(pool_->allocate(kMiB));
  EXPECT_EQ(device_.allocations, 1) << "eight halves are four wholes";
  pool_->allocate(1);
  EXPECT_EQ(device_.allocations, 2);
}

TEST_F(MemoryPoolTest, TheSmallestFreePieceThatFitsIsTaken) {
  void* large = pool_->allocate(600 << 10);
  void* wall = pool_->allocate(512);
  void* small = pool_->allocate(100 << 10);
  pool_->allocate(512);
  pool_->release(large);
  pool_->release(small);
  EXPECT_EQ(pool_->allocate(90 << 10), small);
  EXPECT_EQ(pool_->allocate(500 << 10), large);
  pool_->release(wall);
}

TEST_F(MemoryPoolTest, NeighbouringChunksAreNotJoined) {
  std::vector<void*> wholes;
  for (int i = 0; i < 8; ++i) wholes.push_back(pool_->allocate(kMiB));
  ASSERT_EQ(device_.chunks.size(), 2U);
  for (void* whole : wholes) pool_->release(whole);
  pool_->free_unused();  // would free memory that was never allocated
  EXPECT_TRUE(device_.chunks.empty());
}

TEST_F(MemoryPoolTest, ALargeChunkServesWhatIsUpToAnEighthSmaller) {
  void* large = pool_->allocate(90 * kMiB);
  pool_->release(large);
  EXPECT_EQ(pool_->allocate(80 * kMiB), large);
  pool_->release(large);
  EXPECT_NE(pool_->allocate(70 * kMiB), large);
  EXPECT_EQ(device_.allocations, 2);
}

TEST_F(MemoryPoolTest, ItsOwnStreamGetsMemoryAtOnceOthersWhenTheEventHasPassed) {
  void* memory = pool_->allocate_on(a_, 100 * kMiB);
  a_.queued = 5;
  pool_->release_on(a_, memory);
  void* others = pool_->allocate_on(b_, 100 * kMiB);
  EXPECT_NE(others, memory);
  EXPECT_NE(pool_->allocate(100 * kMiB), memory);
  EXPECT_EQ(pool_->allocate_on(a_, 100 * kMiB), memory);
  pool_->release_on(a_, memory);
  a_.finished = 4;
  EXPECT_NE(pool_->allocate_on(b_, 100 * kMiB), memory);
  a_.finished = 5;
  EXPECT_EQ(pool_->allocate_on(b_, 100 * kMiB), memory);
}

TEST_F(MemoryPoolTest, ReleasedForNoStreamItWaitsForAll) {
  void* memory = pool_->allocate(100 * kMiB);
  a_.queued = b_.queued = 1;
  pool_->release(memory);
  EXPECT_NE(pool_->allocate_on(a_, 100 * kMiB), memory);
  a_.finished = 1;
  EXPECT_NE(pool_->allocate_on(a_, 100 * kMiB), memory);
  b_.finished = 1;
  EXPECT_EQ(pool_->allocate(100 * kMiB), memory);
}

TEST_F(MemoryPoolTest, AStreamAtTheAddressOfOneThatWentGetsNothingAtOnce) {
  void* memory = pool_->allocate_on(a_, 100 * kMiB);
  a_.queued = 1;
  pool_->release_on(a_, memory);
  pool_->remove_stream(a_);
  pool_->add_stream(a_);
  EXPECT_NE(pool_->allocate_on(a_, 100 * kMiB), memory);
  a_.finished = 1;
  EXPECT_EQ(pool_->allocate_on(a_, 100 * kMiB), memory);
}

TEST_F(MemoryPoolTest, PiecesThatWaitForOneStreamAreJoinedForIt) {
  std::vector<void*> halves;
  for (int i = 0; i < 8; ++i) halves.push_back(pool_->allocate_on(a_, kMiB / 2));
  for (void* half : halves) {
    ++a_.queued;
    pool_->release_on(a_, half);
  }
  EXPECT_EQ(pool_->allocate_on(a_, kMiB), halves[0]);
  EXPECT_EQ(device_.allocations, 1);
  a_.finished = a_.queued - 1;  // the last of its pieces is still in use
  pool_->allocate_on(b_, kMiB);
  EXPECT_EQ(device_.allocations, 2);
}

TEST_F(MemoryPoolTest, WhereTheDeviceHasNoMoreItGivesBackWhatIsKeptAndTriesOnceMore) {
  device_.capacity = 100 * kMiB;
  void* large = pool_->allocate_on(a_, 60 * kMiB);
  a_.queued = 1;
  pool_->release_on(a_, large);
  EXPECT_NE(pool_->allocate(80 * kMiB), nullptr) << "waits for the event, frees 60 MiB, takes 80";
  EXPECT_EQ(a_.finished, 1);
  EXPECT_EQ(device_.allocations, 3);
  EXPECT_EQ(device_.used, 80 * kMiB);
  EXPECT_NE(pool_->allocate(6 * kMiB), nullptr) << "where a chunk of 64 MiB is too much, what is needed";
  EXPECT_EQ(device_.used, 86 * kMiB);
}

TEST_F(MemoryPoolTest, ARefusalNamesWhoAskedWhatIsHeldKeptAndFree) {
  device_.capacity = 100 * kMiB;
  void* small = pool_->allocate(1000);
  pool_->release(pool_->allocate(512));
  const std::string text = refusal_of(200 * kMiB);
  EXPECT_TRUE(has(text, "cudaMalloc of 209715200 bytes failed on rank 3, CUDA device 1")) << text;
  EXPECT_TRUE(has(text, "the program holds 1000 bytes, 4193280 are kept for reuse")) << text;
  EXPECT_TRUE(has(text, "100663296 bytes of the device are free")) << text;
  EXPECT_EQ(device_.allocations, 3);
  EXPECT_TRUE(has(refusal_of(~std::size_t{0}), "18446744073709551615 bytes")) << "no size overflows";
  EXPECT_EQ(device_.allocations, 3);
  pool_->release(small);
  EXPECT_NE(pool_->allocate(1000), nullptr);
}

TEST_F(MemoryPoolTest, WhatPeersAreShownIsAWholeAllocationAndNeverKept) {
  pool_->release(pool_->allocate(kMiB));
  void* shown = pool_->allocate_alone(1000);
  EXPECT_EQ(device_.chunks.at(static_cast<std::byte*>(shown)), 1000U);
  EXPECT_NE(pool_->allocate(1000), shown);
  a_.queued = 1;
  pool_->release(shown);
  EXPECT_EQ(device_.chunks.count(static_cast<std::byte*>(shown)), 1U) << "work may use it yet";
  a_.finished = 1;
  pool_->release(pool_->allocate(8));
  EXPECT_EQ(device_.chunks.count(static_cast<std::byte*>(shown)), 0U);
}

TEST_F(MemoryPoolTest, AReleaseOfOtherMemoryOrTwiceOrAfterAnotherDevicesStreamIsABug) {
  FakeStream other;
  void* memory = pool_->allocate(1000);
  EXPECT_THROW(pool_->release(static_cast<std::byte*>(memory) + 512), Error);
  EXPECT_THROW(pool_->release_on(other, memory), Error);
  pool_->release(memory);
  EXPECT_THROW(pool_->release(memory), Error);
}

TEST_F(MemoryPoolTest, WhereTheDeviceHasFailedMemoryIsNotHandedOutAgain) {
  void* memory = pool_->allocate(100 * kMiB);
  a_.failed = true;
  EXPECT_NO_THROW(pool_->release(memory));
  EXPECT_EQ(pool_->bytes().held, 0U);
  EXPECT_NE(pool_->allocate(100 * kMiB), memory);
}

TEST_F(MemoryPoolTest, WhatACaptureReleasesIsItsGraphs) {
  void* kept = pool_->allocate(100 * kMiB);
  void* used = pool_->allocate(80 * kMiB);
  pool_->release(kept);
  pool_->capture_begins();
  EXPECT_EQ(pool_->allocate_on(a_, 100 * kMiB), kept);
  pool_->release_on(a_, kept);
  device_.capacity = 180 * kMiB;
  EXPECT_TRUE(has(refusal_of(100 * kMiB), "device 1: captured work needs 104857600 more bytes"))
      << "no other stream gets it: " << refusal_of(100 * kMiB);
  device_.capacity = 1024 * kMiB;
  EXPECT_EQ(pool_->allocate_on(a_, 100 * kMiB), kept) << "its own does";
  pool_->release_on(a_, kept);
  pool_->release(used);
  const int events = device_.events;
  const MemoryPool::Kept of_graph = pool_->capture_ends();
  EXPECT_EQ(of_graph.size(), 2U);
  EXPECT_EQ(device_.events, events);
  EXPECT_NE(pool_->allocate_on(a_, 100 * kMiB), kept) << "the graph will be launched again";
  pool_->free_unused();
  EXPECT_EQ(device_.chunks.size(), 3U);
  a_.queued = 1;
  pool_->graph_ends(of_graph);
  EXPECT_NE(pool_->allocate(100 * kMiB), kept) << "its last launch may run";
  a_.finished = 1;
  EXPECT_EQ(pool_->allocate(100 * kMiB), kept);
}

// A capture must not use memory that waits for earlier work: the graph may be launched on a stream that does not wait.
TEST_F(MemoryPoolTest, WhatWaitsIsNotForACapture) {
  void* memory = pool_->allocate_on(a_, 100 * kMiB);
  a_.queued = 1;
  pool_->release_on(a_, memory);
  pool_->capture_begins();
  EXPECT_NE(pool_->allocate_on(a_, 100 * kMiB), memory) << "the device has to give more";
  pool_->graph_ends(pool_->capture_ends());
  EXPECT_EQ(pool_->allocate_on(a_, 100 * kMiB), memory);
}

TEST_F(MemoryPoolTest, FreesEverythingInTheEnd) {
  pool_->allocate(5);
  pool_->allocate_alone(5);
  pool_->release(pool_->allocate(70 * kMiB));
  pool_.reset();
  EXPECT_TRUE(device_.chunks.empty());
}

// ---- at random: no block overlaps one that is held or that another stream's work may still use

struct Use {
  std::byte* begin;
  std::byte* end;
  FakeStream* stream;  // on which it was allocated or released
  int at;              // position in the stream's work
};

class RandomUser {
 public:
  RandomUser(MemoryPool& pool, std::vector<FakeStream>& streams, unsigned seed)
      : pool_(pool), streams_(streams), random_(seed) {}

  void act() {
    FakeStream& stream = streams_[draw(streams_.size())];
    const std::size_t what = draw(10);
    if (what < 5) {
      take(stream);
    } else if (what < 9) {
      give(stream);
    } else {
      stream.finished += static_cast<int>(draw(static_cast<std::size_t>(stream.queued - stream.finished) + 1));
    }
  }
  void give_all() {
    while (!held_.empty()) give(streams_.front());
  }

 private:
  std::size_t draw(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }

  void take(FakeStream& stream) {
    const std::size_t size_bytes = draw(std::size_t{1} << (1 + draw(27)));
    auto* memory = static_cast<std::byte*>(pool_.allocate_on(stream, size_bytes));
    const Use mine{memory, memory + std::max(size_bytes, std::size_t{1}), &stream, 0};
    for (const Use& other : held_) ASSERT_FALSE(overlap(mine, other)) << "two hold the same memory";
    for (const Use& other : past_) {
      const bool may_run = other.stream->finished < other.at;
      ASSERT_FALSE(may_run && other.stream != &stream && overlap(mine, other)) << "work of another stream may use it";
    }
    held_.push_back(mine);
  }

  // Releases on a stream that is not the one of the allocation, when that stream's work is done.
  void give(FakeStream& stream) {
    if (held_.empty()) return;
    std::swap(held_[draw(held_.size())], held_.back());
    Use use = held_.back();
    held_.pop_back();
    const bool for_all = draw(4) == 0;
    if (!for_all && use.stream != &stream) use.stream->synchronize();
    for (FakeStream& each : streams_) {
      if (!for_all && &each != &stream) continue;
      use.stream = &each;
      use.at = ++each.queued;
      past_.push_back(use);
    }
    if (for_all) {
      pool_.release(use.begin);
    } else {
      pool_.release_on(stream, use.begin);
    }
  }
  static bool overlap(const Use& a, const Use& b) { return a.begin < b.end && b.begin < a.end; }

  MemoryPool& pool_;
  std::vector<FakeStream>& streams_;
  std::mt19937 random_;
  std::vector<Use> held_;
  std::vector<Use> past_;
};

TEST(MemoryPoolAtRandom, MemoryIsOneUsersAtATime) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Asked device;
    device.capacity = 4096 * kMiB;
    std::vector<FakeStream> streams(3);
    {
      MemoryPool pool(std::make_unique<FakeRaw>(device), "rank 0, CUDA device 0");
      for (FakeStream& stream : streams) pool.add_stream(stream);
      RandomUser user(pool, streams, seed);
      for (int i = 0; i < 1000 && !testing::Test::HasFatalFailure(); ++i) user.act();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
      user.give_all();
      EXPECT_EQ(pool.bytes().held, 0U) << "seed " << seed;
      for (FakeStream& stream : streams) stream.synchronize();
      pool.free_unused();
      EXPECT_EQ(pool.bytes().reserved, 0U) << "all pieces are joined; seed " << seed;
    }
    EXPECT_EQ(device.used, 0U) << "seed " << seed;
  }
}

// Identical steps reach a state in which they need no more memory and no more events.
TEST(MemoryPoolAtRandom, StepsThatAreTheSameReachARest) {
  Asked device;
  MemoryPool pool(std::make_unique<FakeRaw>(device), "rank 0, CUDA device 0");
  FakeStream stream;
  pool.add_stream(stream);
  std::vector<int> counts;
  for (int step = 0; step < 6; ++step) {
    std::mt19937 random(7);
    std::vector<void*> held;
    for (int i = 0; i < 300; ++i) {
      held.push_back(pool.allocate_on(stream, random() % (20 * kMiB) >> (random() % 12)));
      ++stream.queued;
      if (random() % 3 == 0) {
        pool.release_on(stream, held.front());
        held.erase(held.begin());
      }
      if (held.size() > 20) {
        pool.release_on(stream, held.back());
        held.pop_back();
      }
    }
    for (void* memory : held) pool.release_on(stream, memory);
    stream.synchronize();
    counts.push_back(device.allocations);
    counts.push_back(device.events);
  }
  EXPECT_EQ(counts[4], counts[10]);
  EXPECT_EQ(counts[5], counts[11]);
  EXPECT_LT(counts[11], 600);
}

// Freeing memory waits for all work of a device, and that work may wait for the rank that frees.
TEST_F(MemoryPoolTest, AFullDeviceIsWaitedForBeforeAnythingIsFreed) {
  device_.capacity = 100 * kMiB;
  void* const memory = pool_->allocate_on(a_, 80 * kMiB);
  ++a_.queued;
  pool_->release_on(a_, memory);
  EXPECT_EQ(pool_->allocate_on(b_, 80 * kMiB), memory);
  EXPECT_EQ(a_.finished, a_.queued);
  EXPECT_EQ(device_.allocations, 2) << "one was refused";
}

}  // namespace
}  // namespace lockstep::core
