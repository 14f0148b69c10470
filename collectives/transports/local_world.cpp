#include "collectives/transports/local_world.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

#include "core/device.h"
#include "core/error.h"
#include "core/index.h"
#include "core/options.h"
#include "core/ranks.h"

namespace lockstep::transports {
namespace {

std::size_t control_bytes(int num_ranks) {
  const std::size_t a_rank = sizeof(RankBoard) + sizeof(LinkTable::Port) + 1024;
  return (std::size_t{1} << 16) + a_rank * static_cast<std::size_t>(num_ranks);
}

// Ranks with little memory, such as the ranks of a group within a mesh, use small pages.
std::size_t round_up_to_page(std::size_t size_bytes, const LocalOptions& options) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t page = options.memory_bytes_per_rank < kHugePage ? 4096 : kHugePage;
  return round_up(size_bytes, page);
}

}  // namespace

LocalGroup::LocalGroup(const LocalOptions& options)
    : options_(options),
      num_cores_(core::usable_cores()),
      control_bytes_(round_up_to_page(control_bytes(options.num_ranks), options)) {
  const auto ranks = static_cast<std::size_t>(options.num_ranks);
  const std::size_t rank_bytes = round_up_to_page(options.memory_bytes_per_rank, options);
  region_ = std::make_unique<core::SharedRegion>(options.sharing, control_bytes_ + ranks * rank_bytes);
  core::Arena control(region_->data(), control_bytes_);
  for (std::size_t r = 0; r < ranks; ++r) boards_.push_back(control.make<RankBoard>());
  paced_calls_ = control.make<PacedCalls>();
  if (options.among) {
    LOCKSTEP_CHECK(options.sharing == core::Sharing::threads && !options.link, "groups of threads share their links");
    abort_ = options.among->abort;
    links_ = options.among->links;
    return;
  }
  abort_ = control.make<core::AbortFlag>();
  if (options.link) links_ = control.make<LinkTable>(*options.link, control.make_array<LinkTable::Port>(ranks));
}

LocalGroup::~LocalGroup() = default;

core::Arena LocalGroup::arena_of(int rank) const {
  const std::size_t rank_bytes = round_up_to_page(options_.memory_bytes_per_rank, options_);
  return {region_->data() + control_bytes_ + rank_bytes * static_cast<std::size_t>(rank), rank_bytes};
}

int LocalGroup::number_of(int rank) const {
  return options_.among ? options_.among->numbers[static_cast<std::size_t>(rank)] : rank;
}

core::WaitPolicy LocalGroup::wait_policy() const {
  return options_.among ? core::WaitPolicy::beside_work(options_.among->num_threads, num_cores_, options_.deadline)
                        : core::WaitPolicy::for_ranks(options_.num_ranks, num_cores_, options_.deadline);
}

int LocalGroup::waits_for(int number) const {
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    if (number_of(rank) != number) continue;
    const int peer = boards_[static_cast<std::size_t>(rank)]->blocked_on.load(std::memory_order_relaxed);
    return peer < 0 ? -1 : number_of(peer);
  }
  return -1;
}

std::byte* LocalGroup::allocate(core::Arena& of_rank, std::size_t size_bytes) {
  if (options_.sharing != core::Sharing::threads) return of_rank.allocate(size_bytes);
  auto region = std::make_unique<core::SharedRegion>(options_.sharing, size_bytes);
  std::byte* data = region->data();
  const std::lock_guard lock(grown_mutex_);
  grown_.push_back(std::move(region));
  return data;
}

LocalGroup::Shared LocalGroup::make_once(std::uint64_t number, const std::function<Shared()>& make) {
  const std::lock_guard lock(made_mutex_);
  Made& shared = made_[number];
  if (shared.thing == nullptr) shared.thing = make();
  Shared thing = shared.thing;
  const int ranks_here = options_.sharing == core::Sharing::threads ? options_.num_ranks : 1;
  if (++shared.takers == ranks_here) made_.erase(number);
  return thing;
}

void LocalGroup::run(const std::function<void(LocalWorld&)>& body) {
  core::run_ranks(
      options_.sharing, options_.num_ranks, *abort_,
      [&](int rank) {
        std::optional<core::CoreBinding> binding;  // rank 0 runs on the caller's thread, whose binding is restored
        if (options_.bind && options_.num_ranks <= num_cores_) binding.emplace(rank);
        LocalWorld world(*this, rank);
        body(world);
      },
      options_.deadline + std::chrono::seconds(1));  // waits for GPU work have the same deadline
}

LocalWorld::LocalWorld(LocalGroup& group, int rank)
    : group_(group),
      rank_(rank),
      num_ranks_(static_cast<std::size_t>(group.options().num_ranks)),
      policy_(group.wait_policy()),
      arena_(group.arena_of(rank)),
      seen_(num_ranks_) {
  if (group.options().sharing == core::Sharing::processes) group.board(rank).process = getpid();
}

std::byte* LocalWorld::scratch(int half, std::size_t size_bytes) {
  Scratch& scratch = scratch_[half];
  if (size_bytes > scratch.size_bytes) {
    const std::size_t available = core::available_host_bytes() / static_cast<std::size_t>(num_ranks());
    if (size_bytes > available) {
      throw core::usage_error(
          "this algorithm needs " + core::format_size(static_cast<std::int64_t>(size_bytes)) +
          " of scratch per rank at this size; available: " + core::format_size(static_cast<std::int64_t>(available)));
    }
    scratch = {group_.allocate(arena_, size_bytes), size_bytes};
  }
  return scratch.data;
}

// A stopped rank may have been waiting for others when it was stopped, so that the chain of waits is a circle: the
// system knows.
std::string LocalWorld::stopped_ranks() const {
  std::string text;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const int process = group_.board(rank).process;
    if (process == 0 || core::process_state(process) != 'T') continue;
    text += "; rank " + std::to_string(rank) + " (process " + std::to_string(process) + ") is stopped";
  }
  return text;
}

// Follows the chain of waiting ranks from `peer` on: a rank that waits for no other is the one that does not answer.
void LocalWorld::time_out(int peer, const std::string& doing) {
  const auto& among = group_.options().among;
  const int first = number_of(peer);
  std::string text = "rank " + std::to_string(number_of(rank_)) + " waited " +
                     std::to_string(policy_.deadline.count()) + " ms for rank " + std::to_string(first) + " (" + doing +
                     ")";
  const std::string stopped = stopped_ranks();
  if (!stopped.empty()) throw core::Error(core::Failure::timeout, text + stopped);
  int last = first;
  constexpr int kMostHops = 32;  // bounds the length of the text if ranks wait in a circle
  for (int hops = 0; hops < std::max(num_ranks(), among ? kMostHops : 0); ++hops) {
    const int next = among ? among->waits_for(last) : group_.waits_for(last);
    if (next < 0) {
      text += ", " + std::string(last == first ? "which" : "and rank " + std::to_string(last)) + " does not answer";
      break;
    }
    text += ", which waits for rank " + std::to_string(next);
    last = next;
  }
  throw core::Error(core::Failure::timeout, text);
}

void LocalWorld::pause(core::Waiter& waiter, int peer, core::Gate& gate, std::uint64_t target,
                       std::chrono::nanoseconds longest, const std::string& doing) {
  group_.board(rank_).blocked_on.store(peer, std::memory_order_relaxed);
  if (waiter.pause(gate, target, longest)) return;
  time_out(peer, doing);
}

void LocalWorld::wait(int peer, core::Gate& gate, std::uint64_t target, const std::string& doing) {
  if (gate.reached(target)) return;
  std::atomic<int>& blocked_on = group_.board(rank_).blocked_on;
  blocked_on.store(peer, std::memory_order_relaxed);
  core::Waiter waiter(policy_, group_.abort());
  while (!gate.reached(target)) {
    if (!waiter.pause(gate, target)) time_out(peer, doing);
  }
  blocked_on.store(-1, std::memory_order_relaxed);
}

// Two phases, so that no rank overwrites data that another has yet to read.
void LocalWorld::meet(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto wait_for_all = [&](std::uint64_t target) {
    for (int peer = 0; peer < num_ranks(); ++peer) wait(peer, group_.board(peer).coordination, target, "at a barrier");
  };
  RankBoard& board = group_.board(rank_);
  std::copy(mine.begin(), mine.end(), board.gathered);
  const std::size_t turn = meetings_ / 2 % 2;  // no rank is in the next but one before all have left this one
  board.paced.came_ns[turn] = now_ns();
  board.coordination.open(++meetings_);
  wait_for_all(meetings_);
  if (group_.links() != nullptr) start_together(turn);
  for (int peer = 0; peer < num_ranks() && !mine.empty(); ++peer) {
    std::memcpy(all.data() + static_cast<std::size_t>(peer) * mine.size(), group_.board(peer).gathered, mine.size());
  }
  board.coordination.open(++meetings_);
  if (!mine.empty()) wait_for_all(meetings_);
}

// On emulated links, where a call's time begins when its last rank enters: all ranks go on at the same time, late
// enough for sleeping ranks to be awake.
void LocalWorld::start_together(std::size_t turn) {
  constexpr std::int64_t kWakeUpNs = 200'000;
  std::int64_t last_came_ns = 0;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    last_came_ns = std::max(last_came_ns, group_.board(peer).paced.came_ns[turn]);
  }
  wait_until_ns(last_came_ns + kWakeUpNs);
  group_.board(rank_).paced.woken_ns = 0;
}

void LocalWorld::barrier() {
  meet({}, {});
}

void LocalWorld::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  LOCKSTEP_CHECK(all.size() == mine.size() * static_cast<std::size_t>(num_ranks()), "all_gather sizes");
  const std::size_t piece = sizeof(RankBoard::gathered);
  if (mine.size() <= piece) return meet(mine, all);
  std::vector<std::byte> part(piece * static_cast<std::size_t>(num_ranks()));
  for (std::size_t begin = 0; begin < mine.size(); begin += piece) {
    const std::size_t length = std::min(piece, mine.size() - begin);
    meet(mine.subspan(begin, length), std::span(part).first(length * static_cast<std::size_t>(num_ranks())));
    for (std::size_t r = 0; r < static_cast<std::size_t>(num_ranks()); ++r) {
      std::memcpy(all.data() + r * mine.size() + begin, part.data() + r * length, length);
    }
  }
}

}  // namespace lockstep::transports
