// Local ranks as threads or processes, the memory that they share, and the cores that they run on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "core/wait.h"

namespace lockstep::core {

// Memory that all local ranks see at the same address: mapped before the ranks start, handed out in pieces.

enum class Sharing { threads, processes };

// One mapping. Pages are allocated when they are touched; nothing has a name in the file system, so nothing is left
// behind however the processes end.
class SharedRegion {
 public:
  SharedRegion(Sharing sharing, std::size_t size_bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Hands out pieces of a part of a region, in order; all are freed at once. Used by one rank.
class Arena {
 public:
  Arena(std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  // Throws an Error with the sizes if the part is used up. Large pieces begin on a huge page boundary.
  std::byte* allocate(std::size_t size_bytes);
  void reset() { used_bytes_ = 0; }
  std::size_t used_bytes() const { return used_bytes_; }

  template <class T, class... Args>
  T* make(Args&&... args) {
    return new (allocate(sizeof(T))) T(std::forward<Args>(args)...);
  }
  template <class T>
  T* make_array(std::size_t count) {
    return new (allocate(sizeof(T) * count)) T[count];
  }

 private:
  std::byte* data_;
  std::size_t size_bytes_;
  std::size_t used_bytes_ = 0;
};

// Starts local ranks: threads of this process, or processes forked from it.

// Runs body(rank) for all ranks and returns when every one has ended. Rank 0 runs on the calling thread, so that its
// results stay in this process. If a rank throws, its message is raised on `abort`, every other rank sees it in its
// next wait, and the Error of the rank that failed first is thrown here. With processes, a rank that dies (kill -9, a
// crash) is noticed and named, and no child outlives this process. If this process is stopped (SIGSTOP), the child that
// fails waiting for it writes its message to standard error and kills it. `abort` must be in memory of the same
// sharing.
//
// Threads that have not ended `grace` after the first failure are stuck in a call that we cannot end (for example a GPU
// driver's): the failure and the numbers of these ranks are written to standard error, and the process ends with the
// failure's status.
void run_ranks(Sharing sharing, int num_ranks, AbortFlag& abort, const std::function<void(int)>& body,
               std::chrono::milliseconds grace = std::chrono::seconds(120));

// State letter of a process of this machine, as in ps: 'T' stopped by a signal, 'Z' ended but not waited for, ...;
// nothing if there is no such process.
std::optional<char> process_state(int process);

// The cores that this process may run on.

int usable_cores();  // number of cores that the scheduler grants the calling thread
int present_core();  // system's number of the core that runs the calling thread right now; -1 if unknown

// Pins the calling thread to one core during its lifetime: number `index` of the usable cores, modulo their number.
// Best effort: if the system refuses, the thread is not pinned.
class CoreBinding {
 public:
  explicit CoreBinding(int index);
  ~CoreBinding();
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;

 private:
  static constexpr unsigned kMostCores = 1024;  // as in glibc's cpu_set_t
  unsigned long before_[kMostCores / (8 * sizeof(unsigned long))] = {};
  bool bound_ = false;
};

// True if mpirun or a resource manager started this process, by the variables that they set.
bool started_by_mpi();
// The number of processes that it started, by such variables; 1 if none of them is set.
int started_processes();
// This process's number among them; 0 if none of the variables is set.
int started_rank();

}  // namespace lockstep::core
