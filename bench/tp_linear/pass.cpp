#include "bench/tp_linear/pass.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::tp_linear {
namespace {

using schedules::Comm;

constexpr std::array kNamesOfKinds{"products", "other_kernels", "communication"};  // in the order of TaskKind

struct NamedWay {
  Way way;
  const char* name;
  bool has_both;  // kernels and communication
};
constexpr std::array kWaysOfRecords{
    NamedWay{Way::kernels, "kernels", false},
    NamedWay{Way::exchanges, "communication", false},
    NamedWay{Way::one_by_one, "serial", true},
    NamedWay{Way::beside, "async", true},
};

collectives::Operation operation_of(Comm comm, const kernels::InOut& from, const kernels::Out& to) {
  if (comm == Comm::all_reduce) {
    return {.kind = collectives::Kind::all_reduce, .count = from.elems, .dtype = from.dtype, .in_place = true};
  }
  if (comm == Comm::all_gather)
    return {.kind = collectives::Kind::all_gather, .count = from.elems, .dtype = from.dtype};
  LOCKSTEP_CHECK(comm == Comm::reduce_scatter, "a collective of tensor-parallel ranks");
  return {.kind = collectives::Kind::reduce_scatter, .count = to.elems, .dtype = from.dtype};
}

}  // namespace

std::function<void()> Exchanger::make(Comm comm, const kernels::InOut& from, const kernels::Out& to) {
  return make(operation_of(comm, from, to), from.data, to.data);
}

std::function<void()> Exchanger::make(const collectives::Operation& operation, const void* input, void* output) {
  collectives::Collective& one = prepared(operation);
  return [&one, input, output] { one.run(input, output); };
}

collectives::Collective& Exchanger::prepared(const collectives::Operation& operation) {
  auto& one = prepared_[{operation.kind, operation.dtype, operation.count, operation.root, operation.in_place}];
  // Broadcasts and reductions to a root use the default, because the flag names an algorithm of the other collectives.
  const std::string_view algorithm = collectives::has_root(operation.kind) ? "auto" : std::string_view(algorithm_);
  if (!one) one = rank_.prepare(channel_, operation, algorithm).collective;
  return *one;
}

namespace {

std::uint64_t mark(std::uint64_t number, std::size_t tasks) {
  return number << 32U | static_cast<std::uint64_t>(tasks);
}

bool is_in(const Task& task, Way way) {
  return way == Way::one_by_one || way == Way::beside || task.is_exchange() == (way == Way::exchanges);
}

// Runs it and adds its time to that of its kind.
void count(Spent& spent, TaskKind kind, const std::function<void()>& run) {
  const auto start = core::Clock::now();
  run();
  spent[static_cast<std::size_t>(kind)] += core::us_between(start, core::Clock::now());
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

Spent PassRunner::run(const Pass& pass, Way way) {
  if (exchanges_ != nullptr) return run_queued(pass, way);
  // Without exchanges, do not wake the communication thread.
  const auto is_exchange = [](const Task& task) { return task.is_exchange(); };
  if (way == Way::beside && rank_.threaded && std::any_of(pass.tasks().begin(), pass.tasks().end(), is_exchange))
    return run_beside(pass);
  Spent spent{};
  for (const Task& task : pass.tasks()) {
    if (is_in(task, way)) count(spent, task.kind, task.run);
  }
  return spent;
}

// Streams wait for each other on the device; the host waits only for the end.
Spent PassRunner::run_queued(const Pass& pass, Way way) {
  const std::vector<Task>& tasks = pass.tasks();
  while (task_ends_.size() < tasks.size()) {
    task_starts_.push_back(rank_.device.make_event());
    task_ends_.push_back(rank_.device.make_event());
  }
  int before = kNothing;  // the task that was queued last
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!is_in(tasks[i], way)) continue;
    core::Stream& stream = tasks[i].is_exchange() ? *exchanges_ : *rank_.queues->compute;
    const int after = way == Way::one_by_one ? before : way == Way::beside ? tasks[i].after : kNothing;
    if (after != kNothing) stream.wait(*task_ends_[static_cast<std::size_t>(after)]);
    task_starts_[i]->record(stream);
    tasks[i].run();
    task_ends_[i]->record(stream);
    before = static_cast<int>(i);
  }
  rank_.settle();
  Spent spent{};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (is_in(tasks[i], way))
      spent[static_cast<std::size_t>(tasks[i].kind)] += task_ends_[i]->us_since(*task_starts_[i]);
  }
  return spent;
}

Spent PassRunner::run_beside(const Pass& pass) {
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
    spent = run_kind(pass, false);
  } catch (...) {
    fail();
    end_of_exchanges();
    throw;
  }
  end_of_exchanges();
  if (failure_) std::rethrow_exception(failure_);
  return spent;
}

Spent PassRunner::run_kind(const Pass& pass, bool exchanges) {
  core::Gate& own = exchanges ? exchanges_done_ : kernels_done_;
  core::Gate& other = exchanges ? kernels_done_ : exchanges_done_;
  Spent spent{};
  for (std::size_t i = 0; i < pass.tasks().size(); ++i) {
    const Task& task = pass.tasks()[i];
    if (task.is_exchange() != exchanges) continue;
    if (task.after != kNothing) wait(other, mark(number_, static_cast<std::size_t>(task.after) + 1));
    count(spent, task.kind, task.run);
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
      run_kind(pass, true);
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

std::size_t median_round(std::span<const double> samples_us) {
  std::vector<std::size_t> rounds(samples_us.size());
  std::iota(rounds.begin(), rounds.end(), std::size_t{0});
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>((rounds.size() - 1) / 2);
  std::nth_element(rounds.begin(), middle, rounds.end(),
                   [&](std::size_t a, std::size_t b) { return samples_us[a] < samples_us[b]; });
  return *middle;
}

void LayerTimes::add(Way way, Direction direction, double us, const Spent& spent) {
  Rounds& rounds = rounds_[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)];
  rounds.samples_us.push_back(us);
  rounds.spent_us.push_back(spent);
}

std::vector<double> LayerTimes::both(Way way) const {
  std::vector<double> sums = samples(way, Direction::forward);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += samples(way, Direction::backward)[i];
  return sums;
}

std::vector<double> LayerTimes::exposed(Way way, Direction direction) const {
  std::vector<double> differences = samples(way, direction);
  const std::vector<double>& kernels = samples(Way::kernels, direction);
  std::transform(differences.begin(), differences.end(), kernels.begin(), differences.begin(),
                 [](double both, double alone) { return both - alone; });
  return differences;
}

const Spent& LayerTimes::median_spent(Way way, Direction direction) const {
  return of(way, direction).spent_us[median_round(samples(way, direction))];
}

std::vector<core::LayerTimeRecord> LayerTimes::records() const {
  std::vector<core::LayerTimeRecord> records;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const NamedWay& way : kWaysOfRecords) {
      core::LayerTimeRecord& time = records.emplace_back();
      time.direction = direction == Direction::forward ? "forward" : "backward";
      time.way = way.name;
      time.samples_us = samples(way.way, direction);
      const Spent& spent = median_spent(way.way, direction);
      for (std::size_t k = 0; k < spent.size(); ++k) {
        time.parts_us.emplace_back(kNamesOfKinds[k], std::max(spent[k], 0.0));
      }
      if (way.has_both) time.exposed_us = exposed(way.way, direction);
    }
  }
  return records;
}

}  // namespace lockstep::tp_linear
