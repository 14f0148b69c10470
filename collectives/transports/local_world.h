// Ranks on this machine that share memory: threads of one process, or processes over a shared mapping.
//
//   LocalGroup   made once, before the ranks start: the mapping, the counters, the abort flag
//   LocalWorld   one rank's end of it: implements World, and has the memory and waits that shared-memory executors need
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/ranks.h"
#include "core/wait.h"

namespace lockstep::transports {

// State that a group shares with other groups of the same ranks, if there are several; threads only.
struct AmongGroups {
  std::vector<std::int32_t> numbers;  // the members' among all ranks, for error messages
  int num_threads = 1;                // all ranks' together: decides whether waits may spin
  core::AbortFlag* abort = nullptr;
  LinkTable* links = nullptr;  // ports by number; nullptr without emulated links
  // The number of the rank that this rank waits for, in whichever group; -1: none. For error messages.
  std::function<int(int number)> waits_for;
};

struct LocalOptions {
  int num_ranks = 1;
  core::Sharing sharing = core::Sharing::threads;
  std::size_t memory_bytes_per_rank = std::size_t{64} << 20;  // address space; pages are committed when touched
  std::chrono::milliseconds deadline{60'000};                 // of every wait
  bool bind = true;                                           // binds ranks to cores, if each can have its own
  std::optional<LinkSpec> link = {};                          // emulated link, if set
  std::optional<AmongGroups> among = {};                      // in place of `link` and of an abort flag of its own
};

// A rank's progress: the call that it is in, and the number of instructions of a lane that it has done in it. Both are
// in the low half of the number, as a futex compares only that: a sleeper must notice every change, also from one call
// to the next.
inline constexpr int kInstructionBits = 20;
constexpr std::uint64_t progress(std::uint64_t call, std::uint64_t instructions) {
  return call << kInstructionBits | instructions;
}

// Addresses of a rank's buffers in one call; written by the rank before it signals, read by peers.
struct alignas(64) CallBases {
  std::byte* base[3];  // [plan::Buffer]
};

// With emulated links: one rank's part of the current call (executors/program_time.h).
struct PacedRank {
  core::Gate entered;  // calls
  std::int64_t entered_ns = 0;
  const std::int64_t* costs_ns = nullptr;  // costs of the rank's instructions
  std::int64_t leaves_ns = 0;              // computed time at which it leaves
  std::int64_t woken_ns = 0;               // when it woke up; 0: it did not have to wait
  std::int64_t came_ns[2] = {0, 0};        // arrival at even and odd barriers
  std::atomic<std::uint64_t> calls_done{0};
};

// The same for all ranks together.
struct PacedCalls {
  std::atomic<std::uint64_t> done{0};  // calls that ranks have done, summed
  core::Gate played;                   // calls whose leaving times are computed
};

// One rank's part of the memory that all ranks share.
struct RankBoard {
  static constexpr int kMaxLanes = 64;
  // For executors: progress(), one per lane. Lane 0 also holds the call that the rank has entered.
  core::Gate lanes[kMaxLanes];
  CallBases calls[2];  // [call % 2]
  PacedRank paced;
  core::Gate coordination;          // number of barriers and gathers done
  std::atomic<int> blocked_on{-1};  // the rank that this one has waited for for some time; for error messages
  std::atomic<int> process{0};      // the rank's, if each has its own; for error messages
  std::byte gathered[1024];
};

class LocalGroup {
 public:
  explicit LocalGroup(const LocalOptions& options);
  ~LocalGroup();

  // Starts the ranks and waits for them; see core::run_ranks.
  void run(const std::function<void(class LocalWorld&)>& body);

  const LocalOptions& options() const { return options_; }
  int num_cores() const { return num_cores_; }  // before any rank was bound
  core::AbortFlag& abort() { return *abort_; }
  RankBoard& board(int rank) { return *boards_[static_cast<std::size_t>(rank)]; }
  core::Arena arena_of(int rank) const;
  LinkTable* links() { return links_; }  // nullptr without emulated links
  PacedCalls& paced_calls() { return *paced_calls_; }
  int number_of(int rank) const;  // see World; also the number of its port
  core::WaitPolicy wait_policy() const;
  // Number of the rank that rank `number` waits for in this group; -1: none.
  int waits_for(int number) const;

  // Makes an object that all ranks share once: by the first rank that asks for number `number`; the others of this
  // process wait for it. (Forked ranks each have a process, and make it each.)
  using Shared = std::shared_ptr<const void>;
  Shared make_once(std::uint64_t number, const std::function<Shared()>& make);

  // Allocates memory that all ranks can access, until the group ends: from the rank's part, or among threads as much as
  // the machine has.
  std::byte* allocate(core::Arena& of_rank, std::size_t size_bytes);

 private:
  const LocalOptions options_;
  const int num_cores_;
  std::size_t control_bytes_ = 0;
  std::unique_ptr<core::SharedRegion> region_;
  core::AbortFlag* abort_ = nullptr;
  std::vector<RankBoard*> boards_;
  LinkTable* links_ = nullptr;
  PacedCalls* paced_calls_ = nullptr;
  struct Made {
    Shared thing;
    int takers = 0;
  };
  std::mutex made_mutex_;
  std::map<std::uint64_t, Made> made_;  // kept until every rank has fetched it
  std::mutex grown_mutex_;
  std::vector<std::unique_ptr<core::SharedRegion>> grown_;
};

class LocalWorld final : public World {
 public:
  LocalWorld(LocalGroup& group, int rank);

  std::string_view name() const override { return "local"; }
  int rank() const override { return rank_; }
  int num_ranks() const override { return group_.options().num_ranks; }
  int number_of(int rank) const override { return group_.number_of(rank); }
  void barrier() override;
  void check() override {
    if (group_.abort().raised()) group_.abort().throw_raised();
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

  LocalGroup& group() { return group_; }
  const core::WaitPolicy& wait_policy() const { return policy_; }
  // Calls LocalGroup::make_once; ranks make their calls in the same order.
  template <class T>
  std::shared_ptr<const T> make_once(const std::function<std::shared_ptr<const T>()>& make) {
    return std::static_pointer_cast<const T>(group_.make_once(++things_, make));
  }
  core::Arena& arena() { return arena_; }

  // Scratch memory of this rank's executors of at least this size: one area for even calls and one for odd ones (`half`
  // 1), as calls follow each other, but peers may still read the data of the previous call. The content of a smaller
  // area is lost.
  std::byte* scratch(int half, std::size_t size_bytes);
  // Makes room for what reached() has seen of so many lanes; it may be asked about lane 0 at any time.
  void watch_lanes(int lanes) { seen_.resize(std::max(seen_.size(), static_cast<std::size_t>(lanes) * num_ranks_)); }
  // True if lane `lane` of `peer` has reached `target`. A value that was read once is not read again.
  bool reached(int peer, int lane, std::uint64_t target) {
    std::uint64_t& seen = seen_[static_cast<std::size_t>(lane) * num_ranks_ + static_cast<std::size_t>(peer)];
    if (seen >= target) return true;
    seen = group_.board(peer).lanes[lane].value.load(std::memory_order_acquire);
    return seen >= target;
  }
  // Waits for a peer's counter, at most until the deadline: then throws Error(timeout), which names the rank at the end
  // of the chain of waits. `doing` describes the wait.
  void wait(int peer, core::Gate& gate, std::uint64_t target, const std::string& doing);
  // One round of a wait that polls several counters itself; see core::Waiter::pause.
  void pause(core::Waiter& waiter, int peer, core::Gate& gate, std::uint64_t target, std::chrono::nanoseconds longest,
             const std::string& doing);
  void has_waited() { group_.board(rank_).blocked_on.store(-1, std::memory_order_relaxed); }  // call it after pauses
  // Number of the next call of an executor; equal on all ranks, as they make the same calls in the same order.
  std::uint64_t next_call() { return ++calls_; }

 private:
  [[noreturn]] void time_out(int peer, const std::string& doing);
  std::string stopped_ranks() const;
  void meet(std::span<const std::byte> mine, std::span<std::byte> all);
  void start_together(std::size_t turn);

  LocalGroup& group_;
  const int rank_;
  const std::size_t num_ranks_;
  const core::WaitPolicy policy_;
  core::Arena arena_;
  struct Scratch {
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
  };
  Scratch scratch_[2];               // [call % 2]
  std::vector<std::uint64_t> seen_;  // [lane * num_ranks + peer]
  std::uint64_t calls_ = 0;
  std::uint64_t things_ = 0;
  std::uint64_t meetings_ = 0;
};

}  // namespace lockstep::transports
