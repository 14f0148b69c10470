#include "bench/scaling/turns.h"

#include <string>
#include <thread>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::scaling {
namespace {

// A waiting rank sleeps so that it takes no time from the rank that is being timed.
constexpr auto kNap = std::chrono::microseconds(20);

}  // namespace

RankSlots rank_slots_of(const std::vector<Slot>& slots, const schedules::Step& step, std::int32_t rank) {
  RankSlots mine;
  mine.of_task.resize(step.of_rank[static_cast<std::size_t>(rank)].tasks.size());
  for (const Slot& slot : slots) {
    const std::uint64_t before = mine.all;
    mine.all += slot.size();
    for (const auto* part : {&slot.kernels, &slot.collective, &slot.other}) {
      for (const TaskPlace& place : *part) {
        if (place.rank == rank) mine.of_task[place.task] = {before, mine.all};
      }
    }
  }
  return mine;
}

bool SlotWorker::begin(std::uint32_t task) {
  const RankSlots::Entry entry = mine_.of_task[task];
  // Acquire, here and below: pairs with the releasing increments by the tasks of earlier slots.
  if (progress_.ended.load(std::memory_order_acquire) < base_ + entry.before) return false;
  progress_.begun.fetch_add(1, std::memory_order_acq_rel);
  const core::Deadline deadline = core::Deadline::after(timeout_);
  while (progress_.begun.load(std::memory_order_acquire) < base_ + entry.with) {
    if (mesh_.abort.raised()) mesh_.abort.throw_raised();
    if (deadline.passed()) {
      throw core::Error(core::Failure::timeout,
                        "task " + std::to_string(task) + " timed out waiting for the other tasks of its slot");
    }
    std::this_thread::yield();
  }
  return worker_.begin(task);
}

bool SlotWorker::ended(std::uint32_t task) {
  if (!worker_.ended(task)) return false;
  mesh_.settle();
  progress_.ended.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void SlotWorker::idle(int /*thread*/) {
  std::this_thread::sleep_for(kNap);
}

}  // namespace lockstep::scaling
