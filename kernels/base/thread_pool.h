// The threads that run one rank's CPU kernels. The rank's own thread is thread 0 and works too, so a pool of one starts
// no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <typeindex>

namespace lockstep::kernels {

// For one thread at a time: the one that made it.
class ThreadPool {
 public:
  // `first_core`: thread t is pinned to the usable core number first_core + t; -1: threads are not pinned. The calling
  // thread is pinned during the pool's lifetime.
  explicit ThreadPool(int num_threads, int first_core = -1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls work(thread) once on each thread and returns when all have finished. Rethrows the first exception.
  template <class Work>
  void on_each_thread(Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    run([](void* erased, int thread) { (*static_cast<Plain*>(erased))(thread); },
        const_cast<void*>(static_cast<const void*>(&work)));
  }

  // Calls work(begin, end) for ranges that together are [0, count), one range per thread; their ends are multiples of
  // `grain`, except the last. Results must not depend on the ranges' ends: use for_pieces for sums across elements.
  template <class Work>
  void for_ranges(std::int64_t count, std::int64_t grain, Work&& work) {
    const std::int64_t grains = (count + grain - 1) / grain;
    if (size() == 1 || grains <= 1) {
      if (count > 0) work(std::int64_t{0}, count);
      return;
    }
    on_each_thread([&](int thread) {
      const std::int64_t begin = grains * thread / size() * grain;
      const std::int64_t last = grains * (thread + 1) / size() * grain;
      const std::int64_t end = last < count ? last : count;
      if (begin < end) work(begin, end);
    });
  }

  // Calls work(piece, thread) for each piece of [0, num_pieces); thread t gets the pieces t, t + size(), ... A piece's
  // result must not depend on the thread: sums over pieces, added in the pieces' order, are then the same for any pool.
  template <class Work>
  void for_pieces(std::int64_t num_pieces, Work&& work) {
    if (size() == 1 || num_pieces <= 1) {
      for (std::int64_t piece = 0; piece < num_pieces; ++piece) work(piece, 0);
      return;
    }
    on_each_thread([&](int thread) {
      for (std::int64_t piece = thread; piece < num_pieces; piece += size()) work(piece, thread);
    });
  }

  // Memory of one thread for the duration of a kernel, 128-byte aligned, with undefined content; it is kept for the
  // next kernel. Only that thread may call this. `thread` -1 is memory shared by all threads; request it outside of
  // work.
  std::byte* scratch(int thread, std::size_t size_bytes);
  template <class T>
  std::span<T> scratch_of(int thread, std::size_t elems) {
    return {reinterpret_cast<T*>(scratch(thread, elems * sizeof(T))), elems};
  }

  // The pool's only object of type T, made as T(size()) on first use and destroyed with the pool: for facts about the
  // machine that a kernel family keeps, without a global. Call it outside of work.
  template <class T>
  T& kept() {
    std::shared_ptr<void>& object = kept_object(typeid(T));
    if (!object) object = std::make_shared<T>(size());
    return *static_cast<T*>(object.get());
  }

 private:
  void run(void (*call)(void* work, int thread), void* work);
  std::shared_ptr<void>& kept_object(std::type_index type);
  struct State;
  std::unique_ptr<State> state_;
};

// Sizes of the machine's caches, by which kernels choose between ordinary and non-temporal stores.

// Made once per pool by ThreadPool::kept(), because querying the system takes many microseconds in a virtual machine.
class Caches {
 public:
  explicit Caches(int num_threads);
  // For tests: as on a machine with caches of this size.
  static Caches of_bytes(std::size_t own_bytes) { return Caches(own_bytes); }
  // Returns whether an output of this size should be written with non-temporal stores: if it is larger than the L2
  // caches of the pool's threads. A line that is written whole then need not be read first. Two threads on Sapphire
  // Rapids, y = a + b, GB/s with ordinary and with non-temporal stores: 129 and 93 at 1 MB per operand, 56 and 70 at 4
  // MB, 31 and 39 at 50 MB.
  bool outgrown_by(std::size_t output_bytes) const { return output_bytes > own_bytes_; }
  // The same for an output that is read again soon: if it is larger than half of the L3 cache, of which other programs
  // use the rest. One thread on Zen 3, 2^20 codes to f32: 205 us with non-temporal stores, 95 us into the L3 cache.
  bool all_outgrown_by(std::size_t output_bytes) const { return output_bytes > all_bytes_; }

 private:
  explicit Caches(std::size_t own_bytes) : own_bytes_(own_bytes), all_bytes_(own_bytes) {}

  std::size_t own_bytes_;
  std::size_t all_bytes_;
};

}  // namespace lockstep::kernels
