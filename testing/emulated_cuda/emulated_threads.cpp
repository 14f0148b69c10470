#include "testing/emulated_cuda/emulated_threads.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::kernels::emulated {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;

// A saved context. swapcontext would do, but makes a system call to save the signal mask at each switch, which takes
// most of a test's time; so the system makes a context once, and setjmp and longjmp switch from then on.
struct SavedContext {
  ucontext_t context = {};
  jmp_buf jump = {};
  bool started = false;
};

// Switches from `from`, to which another switch may return, to `to`. Not inlined: local variables are indeterminate
// after setjmp returns for the second time, and this function has none.
[[gnu::noinline]] void go(SavedContext& from, SavedContext& to) {
  if (_setjmp(from.jump) != 0) return;
  if (to.started) _longjmp(to.jump, 1);
  to.started = true;
  setcontext(&to.context);
}

// Threads that wait for each other.
struct Meeting {
  int members = 0;
  std::vector<int> waiting = {};
};

struct Thread {
  SavedContext saved = {};
  int exchanges = 0;
};

struct Warp {
  Meeting meeting;
  std::array<Threads::WarpWords, 2> words = {};  // two exchanges alternate
};

}  // namespace

struct Threads::State {
  std::vector<Thread> threads;
  std::unique_ptr<std::byte[]> stacks;  // not initialised: most of it is never touched
  std::vector<Warp> warps;
  Meeting all;
  SavedContext scheduler = {.started = true};
  const std::function<void(int)>* body = nullptr;
  std::vector<int> ready;
  int current = 0;
  int unfinished = 0;
  std::exception_ptr error = nullptr;

  static void enter(unsigned upper, unsigned lower);
  Thread& running() { return threads.at(static_cast<std::size_t>(current)); }
  Warp& warp_of_running() { return warps.at(static_cast<std::size_t>(current / kWarp)); }
  void body_of_running();
  void prepare(int count);
  void start(int thread);
  void meet(Meeting& meeting);
};

// makecontext passes only ints.
void Threads::State::enter(unsigned upper, unsigned lower) {
  const auto address = static_cast<std::uintptr_t>(std::uint64_t{upper} << 32 | lower);
  reinterpret_cast<State*>(address)->body_of_running();  // NOLINT(performance-no-int-to-ptr)
}

void Threads::State::body_of_running() {
  try {
    (*body)(current);
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  --unfinished;
  go(running().saved, scheduler);  // does not return
}

void Threads::State::start(int thread) {
  Thread& started = threads.at(static_cast<std::size_t>(thread));
  started.exchanges = 0;
  started.saved.started = false;
  ucontext_t& context = started.saved.context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks.get() + static_cast<std::size_t>(thread) * kStackBytes;
  context.uc_stack.ss_size = kStackBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context, reinterpret_cast<void (*)()>(&State::enter), 2, static_cast<unsigned>(address >> 32),
              static_cast<unsigned>(address));
  ready.push_back(thread);
}

void Threads::State::prepare(int count) {
  if (threads.size() < static_cast<std::size_t>(count)) {
    threads.resize(static_cast<std::size_t>(count));
    stacks.reset(new std::byte[threads.size() * kStackBytes]);
  }
  warps.assign(static_cast<std::size_t>((count + kWarp - 1) / kWarp), Warp{{.members = std::min(count, kWarp)}});
  all = {.members = count};
  unfinished = count;
  error = nullptr;
  ready.clear();
  for (int t = 0; t < count; ++t) start(t);
}

void Threads::State::meet(Meeting& meeting) {
  meeting.waiting.push_back(current);
  if (static_cast<int>(meeting.waiting.size()) == meeting.members) {
    ready.insert(ready.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  go(running().saved, scheduler);
}

Threads::Threads() : state_(std::make_unique<State>()) {}
Threads::~Threads() = default;

void Threads::run(int count, core::Random& random, const std::function<void(int)>& body) {
  State& s = *state_;
  s.body = &body;
  s.prepare(count);
  while (!s.ready.empty() && !s.error) {
    std::swap(s.ready.at(random.below(s.ready.size())), s.ready.back());
    s.current = s.ready.back();
    s.ready.pop_back();
    go(s.scheduler, s.running().saved);
  }
  if (s.error) std::rethrow_exception(s.error);
  if (s.unfinished == 0) return;
  throw core::Error(core::Failure::internal,
                    "emulated block: " + std::to_string(s.unfinished) + " threads wait for others for ever");
}

int Threads::current() const {
  return state_->current;
}

void Threads::meet_block() {
  state_->meet(state_->all);
}

void Threads::give_way() {
  state_->ready.push_back(state_->current);
  go(state_->running().saved, state_->scheduler);
}

const Threads::WarpWords& Threads::exchange(const Words& mine) {
  Warp& warp = state_->warp_of_running();
  WarpWords& words = warp.words.at(static_cast<std::size_t>(state_->running().exchanges++ % 2));
  words.at(static_cast<std::size_t>(state_->current % kWarp)) = mine;
  state_->meet(warp.meeting);
  return words;
}

}  // namespace lockstep::kernels::emulated
