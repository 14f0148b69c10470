#include "bench/step/pass.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::step_bench {

std::function<void()> Exchanger::make(const collectives::Operation& operation, const void* input, void* output) {
  collectives::Collective& collective = prepared(operation);
  return [&collective, input, output] { collective.run(input, output); };
}

void Exchanger::run(const collectives::Operation& operation, const void* input, void* output) {
  prepared(operation).run(input != nullptr ? input : &nothing_, output != nullptr ? output : &nothing_);
}

// Broadcasts, reductions to a root and exchanges of unequal blocks use the default, because the flag names an algorithm
// of the other collectives.
collectives::Collective& Exchanger::prepared(const collectives::Operation& operation) {
  const bool is_named = !collectives::has_root(operation.kind) && operation.matrix == nullptr;
  return prepared(operation, is_named ? algorithm_ : "auto");
}

collectives::Collective& Exchanger::prepared(const collectives::Operation& operation, const std::string& algorithm) {
  const std::vector<std::int64_t> pairs =
      operation.matrix == nullptr ? std::vector<std::int64_t>{} : operation.matrix->counts;
  auto& collective =
      prepared_[{operation.kind, operation.dtype, operation.count, operation.root, operation.in_place, pairs}];
  if (!collective) collective = rank_.prepare(channel_, operation, algorithm).collective;
  return *collective;
}

namespace {

std::uint64_t mark(std::uint64_t number, std::size_t tasks) {
  return number << 32U | static_cast<std::uint64_t>(tasks);
}

bool is_in(const Task& task, Mode mode) {
  return is_whole(mode) || task.is_exchange == (mode == Mode::exchanges);
}

// Adds the task's time to its share.
void run_counted(const Task& task, Spent& spent) {
  const auto start = core::Clock::now();
  task.run();
  spent[task.share] += core::us_between(start, core::Clock::now());
}

}  // namespace

PassRunner::PassRunner(backends::MeshRank& rank, std::size_t channel, const core::WaitPolicy& policy)
    : rank_(rank),
      exchanges_(rank.queues == nullptr ? nullptr : rank.queues->of_channel[channel]),
      policy_(policy),
      thread_([this] { exchange_thread(); }) {}

PassRunner::~PassRunner() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  started_.notify_one();
}

Spent PassRunner::run(const Pass& pass, Mode mode) {
  if (exchanges_ != nullptr) return run_queued(pass, mode);
  // Without exchanges, do not wake the communication thread.
  const auto is_exchange = [](const Task& task) { return task.is_exchange; };
  if (mode == Mode::overlapped && rank_.threaded && std::any_of(pass.tasks().begin(), pass.tasks().end(), is_exchange))
    return run_overlapped(pass);
  Spent spent{};
  for (const Task& task : pass.tasks()) {
    if (is_in(task, mode)) run_counted(task, spent);
  }
  return spent;
}

// Streams wait for each other on the device; the host waits only for the end.
Spent PassRunner::run_queued(const Pass& pass, Mode mode) {
  const std::vector<Task>& tasks = pass.tasks();
  while (task_ends_.size() < tasks.size()) {
    task_starts_.push_back(rank_.device.make_event());
    task_ends_.push_back(rank_.device.make_event());
  }
  int before = kNothing;  // the task that was queued last
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!is_in(tasks[i], mode)) continue;
    core::Stream& stream = tasks[i].is_exchange ? *exchanges_ : *rank_.queues->compute;
    const int after = mode == Mode::serial ? before : mode == Mode::overlapped ? tasks[i].after : kNothing;
    if (after != kNothing) stream.wait(*task_ends_[static_cast<std::size_t>(after)]);
    task_starts_[i]->record(stream);
    tasks[i].run();
    task_ends_[i]->record(stream);
    before = static_cast<int>(i);
  }
  rank_.settle();
  Spent spent{};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (is_in(tasks[i], mode)) spent[tasks[i].share] += task_ends_[i]->us_since(*task_starts_[i]);
  }
  return spent;
}

Spent PassRunner::run_overlapped(const Pass& pass) {
  {
    const std::lock_guard lock(mutex_);
    pass_ = &pass;
    ++number_;
    started_.notify_one();
  }
  const std::uint64_t end = mark(number_, pass.tasks().size());
  // The other thread always ends because each of its waits has a deadline.
  const auto end_of_exchanges = [&] {
    while (!exchanges_done_.reached(end)) exchanges_done_.sleep(end, std::chrono::milliseconds(20));
  };
  Spent spent{};
  try {
    spent = run_thread(pass, false);
  } catch (...) {
    fail();
    end_of_exchanges();
    throw;
  }
  end_of_exchanges();
  if (failure_) std::rethrow_exception(failure_);
  for (std::size_t share = 0; share < spent.size(); ++share) spent[share] += spent_in_exchanges_[share];
  return spent;
}

Spent PassRunner::run_thread(const Pass& pass, bool exchanges) {
  core::Gate& own = exchanges ? exchanges_done_ : kernels_done_;
  core::Gate& other = exchanges ? kernels_done_ : exchanges_done_;
  Spent spent{};
  for (std::size_t i = 0; i < pass.tasks().size(); ++i) {
    const Task& task = pass.tasks()[i];
    if (task.is_exchange != exchanges) continue;
    if (task.after != kNothing) wait(other, mark(number_, static_cast<std::size_t>(task.after) + 1));
    run_counted(task, spent);
    own.open(mark(number_, i + 1));
  }
  return spent;
}

void PassRunner::wait(core::Gate& gate, std::uint64_t target) const {
  core::Waiter waiter(policy_, rank_.abort);
  while (!gate.reached(target)) {
    if (!waiter.pause(gate, target)) {
      throw core::Error(core::Failure::timeout,
                        "rank " + std::to_string(rank_.messages.rank()) + ": a task before this one does not end");
    }
  }
}

void PassRunner::exchange_thread() {
  for (std::uint64_t done = 0;; ++done) {
    std::unique_lock lock(mutex_);
    started_.wait(lock, [&] { return ends_ || number_ > done; });
    if (ends_) return;
    const Pass& pass = *pass_;
    lock.unlock();
    try {
      spent_in_exchanges_ = run_thread(pass, true);
    } catch (...) {
      fail();
      failure_ = std::current_exception();
    }
    exchanges_done_.open(mark(done + 1, pass.tasks().size()));
  }
}

void PassRunner::fail() {
  try {
    throw;
  } catch (const core::Error& error) {
    rank_.abort.raise(rank_.messages.rank(), error.failure(), error.what());
  } catch (const std::exception& error) {
    rank_.abort.raise(rank_.messages.rank(), core::Failure::internal, error.what());
  }
}

}  // namespace lockstep::step_bench
