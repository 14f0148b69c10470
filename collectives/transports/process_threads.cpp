// The parts of mpi_transport.h that need no MPI: threads of processes as ranks, and the watchdog.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include "collectives/transports/local_world.h"
#include "collectives/transports/mpi_transport.h"
#include "core/wait.h"

namespace lockstep::transports {

namespace {

class ThreadOfProcess final : public Transport {
 public:
  ThreadOfProcess(LocalWorld& here, Transport& end) : here_(here), end_(end) {}

  std::string_view name() const override { return end_.name(); }
  int rank() const override { return end_.rank() * threads() + here_.rank(); }
  int num_ranks() const override { return end_.num_ranks() * threads(); }

  Request send(int peer, int channel, std::span<const std::byte> bytes) override {
    return end_.send(peer / threads(), between(here_.rank(), peer % threads(), channel), bytes);
  }
  Request recv(int peer, int channel, std::span<std::byte> bytes) override {
    return end_.recv(peer / threads(), between(peer % threads(), here_.rank(), channel), bytes);
  }
  bool done(Request request) override { return end_.done(request); }
  void idle() override {
    here_.check();
    end_.idle();
  }
  void abandon() override { end_.abandon(); }

  void check() override { here_.check(); }
  void barrier() override {
    here_.barrier();
    if (here_.rank() == 0) end_.barrier();
    here_.barrier();
  }

  // Thread 0 gathers for all, into its own memory, which the others then copy from.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    LOCKSTEP_CHECK(all.size() == mine.size() * static_cast<std::size_t>(num_ranks()), "all_gather sizes");
    std::vector<std::byte> of_process(mine.size() * static_cast<std::size_t>(threads()));
    here_.all_gather(mine, of_process);
    if (here_.rank() == 0) end_.all_gather(of_process, all);
    const std::byte* const gathered = all_gather_value(here_, all.data()).front();
    if (here_.rank() != 0) std::copy_n(gathered, all.size(), all.data());
    here_.barrier();
  }

 private:
  int threads() const { return here_.num_ranks(); }
  int between(int from, int to, int channel) const { return (channel * threads() + from) * threads() + to; }

  LocalWorld& here_;
  Transport& end_;
};

}  // namespace

void run_threads(const std::vector<std::unique_ptr<Transport>>& ends, core::AbortFlag& abort,
                 std::chrono::milliseconds timeout, const std::function<void(Transport&)>& body) {
  std::optional<LocalGroup> group;
  AmongGroups among;
  among.numbers.resize(ends.size());
  among.num_threads = static_cast<int>(ends.size());
  std::iota(among.numbers.begin(), among.numbers.end(), ends.front()->rank() * among.num_threads);
  among.abort = &abort;
  among.waits_for = [&group](int number) { return group->waits_for(number); };
  LocalOptions options;
  options.num_ranks = among.num_threads;
  options.memory_bytes_per_rank = 4096;  // they have the memory of their process
  options.deadline = timeout + std::chrono::seconds(1);
  options.bind = false;
  options.among = std::move(among);
  group.emplace(options);
  group->run([&](LocalWorld& here) {
    ThreadOfProcess rank(here, *ends[static_cast<std::size_t>(here.rank())]);
    body(rank);
  });
}

void run_threads_of_process(MpiWorld& mpi, int threads, std::chrono::milliseconds timeout,
                            const std::function<void(Transport&)>& body) {
  mpi.set_ranks_per_process(threads);
  if (threads == 1) return body(*mpi.make_transport({.alone = true}));
  core::AbortFlag abort;
  MpiTransportOptions options;
  options.abort = &abort;
  run_threads(mpi.make_transports(threads, options), abort, timeout, body);
}

Watchdog::Watchdog(std::chrono::nanoseconds timeout, std::function<void()> expired)
    : timeout_(timeout), expired_(std::move(expired)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  std::uint64_t seen = 0;
  core::Clock::time_point since = core::Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, timeout_ / 8, [this] { return stopped_; })) {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    const bool within_a_call = calls % 2 == 1;
    if (!within_a_call || calls != seen) {
      seen = calls;
      since = core::Clock::now();
    } else if (core::Clock::now() - since >= timeout_) {
      expired_();
      return;
    }
  }
}

}  // namespace lockstep::transports
