// The threads on which one rank's CPU kernels run. The rank's own thread is thread 0 and works too, so that a pool of
// one starts no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <typeindex>

namespace lockstep::kernels {

// To be used by one thread at a time, which is the one that made it.
class ThreadPool {
 public:
  // `first_core`: thread t is bound to the usable core number first_core + t; -1: threads are left where the system
  // puts them. The calling thread is bound while the pool lives.
  explicit ThreadPool(int num_threads, int first_core = -1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls work(thread) once on each thread, and returns when all have. What one throws is thrown here.
  template <class Work>
  void on_each_thread(Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    run([](void* erased, int thread) { (*static_cast<Plain*>(erased))(thread); },
        const_cast<void*>(static_cast<const void*>(&work)));
  }

  // Calls work(begin, end) for ranges that together are [0, count), each thread one range whose ends are multiples of
  // `grain` (but the last). Results must not depend on where ranges end: sums across elements belong into for_pieces.
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

  // Calls work(piece, thread) for each piece of [0, num_pieces), thread t the pieces t, t + size(), ... A piece's
  // result may not depend on the thread: then sums over pieces, taken in the pieces' order, are the same for any pool.
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

  // Memory of one thread for the time of a kernel, 128-byte aligned, of undefined content; it is kept for the next.
  // To be called by that thread; `thread` -1 is memory that all threads may see, to be asked for outside of work.
  std::byte* scratch(int thread, std::size_t size_bytes);
  template <class T>
  std::span<T> scratch_of(int thread, std::size_t elems) {
    return {reinterpret_cast<T*>(scratch(thread, elems * sizeof(T))), elems};
  }

  // The pool's one object of type T, made as T(size()) on first use and gone with the pool: what a kernel family learns
  // about the machine and wants to keep, without a global. To be called outside of work.
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

}  // namespace lockstep::kernels
