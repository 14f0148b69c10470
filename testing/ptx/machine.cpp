#include "testing/ptx/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <tuple>

namespace lockstep::ptx {

Block::Block(LaunchState& its_launch, std::uint64_t its_number, std::uint32_t rank_in_cluster)
    : launch(its_launch),
      number(its_number),
      rank(rank_in_cluster),
      id(its_launch.machine.new_block_id()),
      shared(its_launch.program->dynamic_shared_at() + its_launch.launch.dynamic_shared_bytes),
      shadow(shared.size(), false) {
  const auto num_warps = static_cast<int>((launch.launch.block.count() + kLanes - 1) / kLanes);
  num_threads = static_cast<std::uint32_t>(num_warps * kLanes);
  // Shared memory holds what the last block left: nothing to rely on.
  for (std::byte& byte : shared) byte = static_cast<std::byte>(launch.machine.random().next());
  for (int i = 0; i < num_warps; ++i) warps.push_back(std::make_unique<Warp>(*this, i));
}

cuda_stand_in::Extent Block::index() const {
  const cuda_stand_in::Extent& grid = launch.launch.grid;
  return {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
          static_cast<unsigned>(number / grid.x / grid.y)};
}

bool Block::has_ended() const {
  return std::all_of(warps.begin(), warps.end(), [](const auto& warp) { return warp->has_exited(); });
}

WarpId Machine::new_warps(Block& block, int index) {
  const auto id = static_cast<WarpId>(owners_.size());
  owners_.insert(owners_.end(), 2, Owner{block.id, block.launch.id, block.number, index});
  return id;
}

void Machine::begin(const cuda_stand_in::Launch& launch, std::shared_ptr<const Program> program) {
  auto state = std::make_unique<LaunchState>(*this, launch, std::move(program), ++launches_);
  for (auto& [number, other] : running_) {
    state->concurrent.insert(other->id);
    other->concurrent.insert(state->id);
  }
  running_[launch.number] = std::move(state);
}

namespace {

// Shared memory of a block, with 1 KiB that the system takes.
std::size_t shared_bytes_of(const LaunchState& launch) {
  return launch.program->dynamic_shared_at() + launch.launch.dynamic_shared_bytes + 1024;
}

}  // namespace

bool Machine::has_room(const LaunchState& launch, int multiprocessor) const {
  const Room& room = rooms_[static_cast<std::size_t>(multiprocessor)];
  return room.blocks > 0 && room.shared_bytes >= shared_bytes_of(launch) && room.threads >= launch.launch.block.count();
}

void Machine::take(const LaunchState& launch, int multiprocessor) {
  Room& room = rooms_[static_cast<std::size_t>(multiprocessor)];
  room.shared_bytes -= shared_bytes_of(launch);
  room.threads -= launch.launch.block.count();
  --room.blocks;
}

void Machine::give_back(const Block& block) {
  Room& room = rooms_[static_cast<std::size_t>(block.multiprocessor)];
  room.shared_bytes += shared_bytes_of(block.launch);
  room.threads += block.launch.launch.block.count();
  ++room.blocks;
}

// Takes multiprocessors for the next cluster, for each block the one with the most room; nothing if a block has none.
std::vector<int> Machine::places_for(const LaunchState& launch) {
  std::size_t all = 0;
  for (const auto& [number, other] : running_) all += other->running.size();
  const auto together = static_cast<std::size_t>(launch.launch.cluster.count());
  if (all + together > std::max(window_, together)) return {};
  const std::vector<Room> before = rooms_;
  std::vector<int> places;
  for (std::size_t rank = 0; rank < together; ++rank) {
    const auto most = std::max_element(rooms_.begin(), rooms_.end(), [](const Room& a, const Room& b) {
      return std::tie(a.shared_bytes, a.threads) < std::tie(b.shared_bytes, b.threads);
    });
    places.push_back(static_cast<int>(most - rooms_.begin()));
    if (!has_room(launch, places.back())) {
      rooms_ = before;
      return {};
    }
    take(launch, places.back());
  }
  return places;
}

void Machine::start_blocks(LaunchState& launch) {
  while (launch.next_block < launch.launch.grid.count()) {
    const std::vector<int> places = places_for(launch);
    if (places.empty()) return;
    std::vector<Block*> cluster;
    for (const int multiprocessor : places) {
      launch.running.push_back(
          std::make_unique<Block>(launch, launch.next_block++, static_cast<std::uint32_t>(cluster.size())));
      cluster.push_back(launch.running.back().get());
      cluster.back()->multiprocessor = multiprocessor;
    }
    for (Block* block : cluster) block->cluster = cluster;
    progressed();
  }
}

void Machine::complete_some() {
  if (in_flight_.empty() || random_.below(4) != 0) return;
  const std::size_t which = random_.below(in_flight_.size());
  const auto work = std::move(in_flight_[which]);
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(which));
  work();
  progressed();
}

std::uint64_t Machine::nanoseconds() {
  return instructions_ / 64;
}

namespace {

// Blocks of a cluster stay until all of them have ended: others may read their shared memory.
bool may_leave(const Block& block) {
  return std::all_of(block.cluster.begin(), block.cluster.end(), [](const Block* one) { return one->has_ended(); });
}

void check_end(const Block& block) {
  for (const auto& [at, barrier] : block.memory_barriers) {
    if (barrier.bytes != 0) {
      throw Fault(fmt::format("{}: block {} ends while a barrier at offset {} of its shared memory expects {} bytes",
                              block.launch.launch.kernel, block.number, at, barrier.bytes));
    }
  }
}

}  // namespace

std::vector<Machine::Ended> Machine::run(int turns) {
  std::vector<Ended> ended;
  for (int turn = 0; turn < turns && ended.empty(); ++turn) {
    std::vector<Warp*> able;
    for (auto& [number, launch] : running_) {
      start_blocks(*launch);
      for (const auto& block : launch->running) {
        for (const auto& warp : block->warps) {
          if (!warp->has_exited()) able.push_back(warp.get());
        }
      }
    }
    // A round: as many turns as there are warps, each of a warp that is drawn.
    for (std::size_t i = 0; i < able.size(); ++i) {
      Warp& warp = *able[random_.below(able.size())];
      if (warp.has_exited()) continue;
      const auto budget = static_cast<int>(1 + random_.below(64));
      instructions_ += static_cast<std::uint64_t>(budget);
      if (warp.turn(budget)) stalled_turns_ = warp.idle_polls > 0 ? stalled_turns_ : 0;
      complete_some();
    }
    collect(ended);
    watch_progress();
  }
  return ended;
}

void Machine::collect(std::vector<Ended>& ended) {
  for (auto at = running_.begin(); at != running_.end();) {
    LaunchState& launch = *at->second;
    const auto left = std::partition(launch.running.begin(), launch.running.end(),
                                     [](const auto& block) { return !may_leave(*block); });
    // Copies that are still in flight belong to barriers of these blocks.
    if (left != launch.running.end()) {
      while (!in_flight_.empty()) {
        const auto work = std::move(in_flight_.back());
        in_flight_.pop_back();
        work();
      }
      for (auto block = left; block != launch.running.end(); ++block) {
        check_end(**block);
        give_back(**block);
      }
      launch.num_ended += static_cast<std::uint64_t>(launch.running.end() - left);
      launch.running.erase(left, launch.running.end());
    }
    if (launch.num_ended == launch.launch.grid.count()) {
      ended.push_back({at->first, launch.counts, launch.executed});
      at = running_.erase(at);
    } else {
      ++at;
    }
  }
}

// Nothing has changed for many rounds: first more blocks may begin, then clocks jump (a kernel's own patience ends),
// and then it is a deadlock.
void Machine::watch_progress() {
  constexpr std::uint64_t kRounds = 200;
  if (progress_ != last_progress_ || running_.empty()) {
    last_progress_ = progress_;
    stalled_turns_ = 0;
    stalled_since_ = {};
    return;
  }
  if (++stalled_turns_ < kRounds) return;
  const bool all_poll = [&] {
    for (const auto& [number, launch] : running_) {
      for (const auto& block : launch->running) {
        for (const auto& warp : block->warps) {
          if (!warp->has_exited() && warp->computes) return false;
        }
      }
    }
    return true;
  }();
  for (auto& [number, launch] : running_) {
    for (const auto& block : launch->running) {
      for (const auto& warp : block->warps) warp->computes = false;
    }
  }
  stalled_turns_ = 0;
  if (!all_poll) return;
  const bool more_blocks = std::any_of(running_.begin(), running_.end(), [](const auto& one) {
    return one.second->next_block < one.second->launch.grid.count();
  });
  if (more_blocks && window_ < 1U << 20) {
    window_ *= 2;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (stalled_since_ == std::chrono::steady_clock::time_point{}) stalled_since_ = now;
  if (now - stalled_since_ < options_.patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  report_deadlock();
}

void Machine::report_deadlock() {
  std::string text = "no warp can go on:";
  int listed = 0;
  for (const auto& [number, launch] : running_) {
    for (const auto& block : launch->running) {
      for (const auto& warp : block->warps) {
        if (warp->has_exited() || ++listed > 8) continue;
        text += " " + warp->where() + ";";
      }
    }
  }
  const std::string kernel = running_.empty() ? "" : running_.begin()->second->launch.kernel;
  throw Fault(kernel + ": " + text);
}

void Machine::reset() {
  running_.clear();
  in_flight_.clear();
  window_ = 8;
  const Room whole{.shared_bytes = options_.shared_bytes_per_multiprocessor,
                   .threads = static_cast<std::uint64_t>(options_.threads_per_multiprocessor),
                   .blocks = 32};
  rooms_.assign(static_cast<std::size_t>(options_.multiprocessors), whole);
}

}  // namespace lockstep::ptx
