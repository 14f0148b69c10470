#include "kernels/emulated_cuda/emulated_crew.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::kernels::emulated {

struct Crew::State {
  std::mutex mutex;
  std::condition_variable begins;
  std::condition_variable ended;
  std::uint64_t turn = 0;
  unsigned wanted = 0;   // of this turn
  unsigned working = 0;  // of them
  const std::function<void(unsigned)>* work = nullptr;
  bool over = false;
  std::vector<std::jthread> members;

  void serve(unsigned number, std::uint64_t last_turn);
};

void Crew::State::serve(unsigned number, std::uint64_t last_turn) {
  std::unique_lock lock(mutex);
  while (true) {
    begins.wait(lock, [&] { return over || (turn != last_turn && number < wanted); });
    if (over) return;
    last_turn = turn;
    lock.unlock();
    (*work)(number);
    lock.lock();
    if (--working == 0) ended.notify_one();
  }
}

Crew::Crew() : state_(std::make_unique<State>()) {}

Crew::~Crew() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->begins.notify_all();
  state_->members.clear();
}

void Crew::run(unsigned count, const std::function<void(unsigned)>& work) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  for (auto number = static_cast<unsigned>(s.members.size()); number < count; ++number) {
    s.members.emplace_back([&s, number, now = s.turn] { s.serve(number, now); });
  }
  s.work = &work;
  s.wanted = s.working = count;
  ++s.turn;
  s.begins.notify_all();
  s.ended.wait(lock, [&] { return s.working == 0; });
}

}  // namespace lockstep::kernels::emulated
