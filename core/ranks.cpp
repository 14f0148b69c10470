#include "core/ranks.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "core/wait.h"

namespace lockstep::core {

namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kHugeFromBytes = std::size_t{4}
                                       << 20;  // for smaller regions, clearing a huge page costs more than it saves
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSmallAlignment = 128;

}  // namespace

SharedRegion::SharedRegion(Sharing sharing, std::size_t size_bytes)
    : size_bytes_(round_up(size_bytes, size_bytes < kHugeFromBytes ? kPageBytes : kHugePageBytes)) {
  const int visibility = sharing == Sharing::threads ? MAP_PRIVATE : MAP_SHARED;
  void* mapping = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, visibility | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Error(Failure::internal, "cannot map " + std::to_string(size_bytes_) +
                                       " bytes of memory for the ranks: " + std::strerror(errno));
  }
  // A hint: fewer TLB misses if the kernel grants it.
  if (size_bytes_ >= kHugeFromBytes) madvise(mapping, size_bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapping);
}

SharedRegion::~SharedRegion() {
  munmap(data_, size_bytes_);
}

std::byte* Arena::allocate(std::size_t size_bytes) {
  const auto base = reinterpret_cast<std::uintptr_t>(data_);
  const std::size_t alignment = size_bytes >= kHugePageBytes ? kHugePageBytes : kSmallAlignment;
  const std::size_t begin = round_up(base + used_bytes_, alignment) - base;
  if (begin > size_bytes_ || size_bytes > size_bytes_ - begin) {
    throw Error(Failure::internal, "a rank's shared memory of " + std::to_string(size_bytes_) +
                                       " bytes is used up: " + std::to_string(used_bytes_) + " in use, " +
                                       std::to_string(size_bytes) + " more requested");
  }
  used_bytes_ = begin + size_bytes;
  return data_ + begin;
}

namespace {

// Runs one rank; raises what it throws for all ranks.
void run_guarded(int rank, AbortFlag& abort, const std::function<void(int)>& body) noexcept {
  try {
    body(rank);
  } catch (const Error& error) {
    abort.raise(rank, error.failure(), error.what());
  } catch (const std::exception& error) {
    abort.raise(rank, Failure::internal, "rank " + std::to_string(rank) + ": " + error.what());
  }
}

// Sleeps until a rank has failed. A thread that is stuck in a driver call cannot be ended, and waiting for it would
// hide the failed rank's message.
class ThreadWatch {
 public:
  ThreadWatch(int num_ranks, const AbortFlag& abort, std::chrono::milliseconds grace)
      : abort_(abort), grace_(grace), alive_(static_cast<std::size_t>(num_ranks), true) {}

  void rank_ends(int rank) {
    const std::lock_guard lock(mutex_);
    alive_[static_cast<std::size_t>(rank)] = false;
    if (abort_.raised()) changed_.notify_all();
  }

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [this] { return abort_.raised(); })) return;
    const auto all_end = [this] { return std::find(alive_.begin(), alive_.end(), true) == alive_.end(); };
    if (!changed_.wait_for(lock, stop, grace_, all_end) && !stop.stop_requested()) end_process();
  }

 private:
  [[noreturn]] void end_process() const {
    std::string stuck;
    for (std::size_t rank = 0; rank < alive_.size(); ++rank) {
      if (alive_[rank]) stuck += (stuck.empty() ? "" : ", ") + std::to_string(rank);
    }
    try {
      abort_.throw_raised();
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n%lld ms later these ranks have not ended, and the process ends without them: %s\n",
                   error.what(), static_cast<long long>(grace_.count()), stuck.c_str());
      std::fflush(nullptr);
      _exit(error.exit_status());
    }
  }

  const AbortFlag& abort_;
  const std::chrono::milliseconds grace_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<bool> alive_;  // [rank]
};

void run_threads(int num_ranks, AbortFlag& abort, const std::function<void(int)>& body,
                 std::chrono::milliseconds grace) {
  ThreadWatch watch(num_ranks, abort, grace);
  std::jthread watcher([&watch](const std::stop_token& stop) { watch.watch(stop); });
  const auto run = [&](int rank) {
    run_guarded(rank, abort, body);
    watch.rank_ends(rank);
  };
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(num_ranks) - 1);
  for (int rank = 1; rank < num_ranks; ++rank) threads.emplace_back([rank, &run] { run(rank); });
  run(0);
}

struct Child {
  int rank;
  pid_t pid;
};

std::string how_it_ended(const Child& child, int status) {
  const std::string name = "rank " + std::to_string(child.rank) + " (process " + std::to_string(child.pid) + ")";
  if (WIFSIGNALED(status)) {
    return name + " was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) +
           ")";
  }
  return name + " ended with status " + std::to_string(WEXITSTATUS(status));
}

// Rank 0 is the parent, which reports failures. If it is stopped it cannot: then the child whose failure came first
// reports in its place and kills it, and with it all other ranks.
void speak_for_stopped_parent(int rank, pid_t parent, const AbortFlag& abort) {
  if (!abort.raised() || abort.rank() != rank || process_state(parent) != 'T') return;
  try {
    abort.throw_raised();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s; rank 0 (process %d) is stopped, and is killed\n", error.what(), static_cast<int>(parent));
  }
  std::fflush(nullptr);
  kill(parent, SIGKILL);
}

[[noreturn]] void run_child(int rank, pid_t parent, AbortFlag& abort, const std::function<void(int)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives rank 0
  if (getppid() != parent) _exit(1);
  run_guarded(rank, abort, body);
  speak_for_stopped_parent(rank, parent, abort);
  std::fflush(nullptr);
  _exit(0);
}

std::vector<Child> fork_children(int num_ranks, AbortFlag& abort, const std::function<void(int)>& body) {
  std::fflush(nullptr);  // otherwise every child would print what is buffered now
  std::vector<Child> children;
  const pid_t parent = getpid();
  for (int rank = 1; rank < num_ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) run_child(rank, parent, abort, body);
    if (pid < 0) {
      abort.raise(0, Failure::internal, "cannot fork rank " + std::to_string(rank) + ": " + std::strerror(errno));
      break;
    }
    children.push_back({rank, pid});
  }
  return children;
}

// Waits for every child, and raises the abort flag if one died without raising it. After an abort, children that do not
// end by themselves (stopped, or stuck in a system call) are killed.
void watch_children(const std::vector<Child>& children, AbortFlag& abort) {
  constexpr auto kLook = std::chrono::milliseconds(2);
  constexpr auto kGrace = std::chrono::seconds(3);
  std::vector<Child> alive = children;
  std::optional<Deadline> grace;  // from the abort on
  while (!alive.empty()) {
    if (!grace && abort.raised()) grace = Deadline::after(kGrace);
    if (grace && grace->passed()) {
      for (const Child& child : alive) kill(child.pid, SIGKILL);
    }
    for (std::size_t i = 0; i < alive.size();) {
      int status = 0;
      if (waitpid(alive[i].pid, &status, WNOHANG) != alive[i].pid) {
        ++i;
        continue;
      }
      if (status != 0) abort.raise(alive[i].rank, Failure::rank_lost, how_it_ended(alive[i], status));
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::this_thread::sleep_for(kLook);
  }
}

void run_processes(int num_ranks, AbortFlag& abort, const std::function<void(int)>& body) {
  const std::vector<Child> children = fork_children(num_ranks, abort, body);
  std::jthread watcher([&] { watch_children(children, abort); });
  run_guarded(0, abort, body);
}

}  // namespace

void run_ranks(Sharing sharing, int num_ranks, AbortFlag& abort, const std::function<void(int)>& body,
               std::chrono::milliseconds grace) {
  LOCKSTEP_CHECK(num_ranks >= 1, "no ranks to run");
  if (sharing == Sharing::threads) {
    run_threads(num_ranks, abort, body, grace);
  } else {
    run_processes(num_ranks, abort, body);
  }
  if (abort.raised()) abort.throw_raised();
}

// The state follows the name in parentheses, which may contain anything (proc_pid_stat(5)).
std::optional<char> process_state(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(") ");
  if (end == std::string::npos || end + 2 >= text.size()) return std::nullopt;
  return text[end + 2];
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));  // more cores than the set can hold
}

int present_core() {
  return sched_getcpu();
}

CoreBinding::CoreBinding(int index) {
  static_assert(sizeof before_ == sizeof(cpu_set_t), "a set of the same size");
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::memcpy(before_, &allowed, sizeof before_);
  int skip = index % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    bound_ = sched_setaffinity(0, sizeof cores, &cores) == 0;
    return;
  }
}

CoreBinding::~CoreBinding() {
  if (bound_) sched_setaffinity(0, sizeof before_, reinterpret_cast<const cpu_set_t*>(before_));
}

namespace {

// Variables of Open MPI and PRRTE; of MPICH, Intel MPI and MVAPICH (PMI); of anything that speaks PMIx, such as srun
// --mpi=pmix.
const char* text_of_rank() {
  for (const char* name : std::array{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (const char* text = std::getenv(name)) return text;
  }
  return nullptr;
}

}  // namespace

bool started_by_mpi() {
  return text_of_rank() != nullptr;
}

int started_rank() {
  const char* text = text_of_rank();
  return text == nullptr ? 0 : std::atoi(text);
}

int started_processes() {
  // PMIx gives a process its rank, but not the number of ranks; srun --mpi=pmix sets a variable for that. Without
  // PMIX_RANK, that variable may be of a batch script's own step.
  const bool by_pmix = std::getenv("PMIX_RANK") != nullptr;
  for (const char* name : std::array{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", by_pmix ? "SLURM_STEP_NUM_TASKS" : ""}) {
    if (const char* text = std::getenv(name)) return std::max(1, std::atoi(text));
  }
  return 1;
}

}  // namespace lockstep::core
