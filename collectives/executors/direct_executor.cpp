#include "collectives/executors/executors.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/executors/message_program.h"
#include "collectives/executors/program_time.h"
#include "collectives/plan/program.h"
#include "core/error.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::executors {
namespace {

using plan::Instruction;
using plan::LaneProgram;
using plan::LowerOptions;
using plan::Plan;
using plan::Program;
using plan::Wait;
using transports::LocalWorld;
using transports::RankBoard;

std::int64_t longest_block(const collectives::Operation& operation) {
  if (operation.matrix == nullptr) return operation.count;
  return *std::max_element(operation.matrix->counts.begin(), operation.matrix->counts.end());
}

// Blocks of an all_to_all_v without elements need no step: not even the latency of an empty message. The plans of its
// algorithms send each block straight to its destination, in one lane.
Plan without_empty_blocks(Plan plan, const collectives::CountMatrix& counts) {
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    for (plan::Lane& lane : plan.ranks[static_cast<std::size_t>(rank)].lanes) {
      std::erase_if(lane, [&](const plan::Step& step) {
        const int from = plan::reads_peer(step.op) ? step.peer : rank;
        const int to = step.op == plan::Op::send ? step.peer : rank;
        return counts.at(from, to) == 0;
      });
    }
  }
  return plan;
}

}  // namespace

Program lower_for_direct(const Plan& plan, const collectives::Operation& operation, const DirectOptions& options) {
  const Plan whole = usable_plan(plan, operation);
  const Plan base = operation.matrix != nullptr ? without_empty_blocks(whole, *operation.matrix) : whole;
  const std::int64_t block_bytes = longest_block(operation) * static_cast<std::int64_t>(core::size_of(operation.dtype));
  const std::int64_t chunk_bytes = block_bytes / plan.chunks_per_block;
  constexpr std::int64_t kMostSegments = 64;
  const auto segments =
      static_cast<int>(std::clamp<std::int64_t>(chunk_bytes / options.segment_bytes, 1, kMostSegments));

  if (chunk_bytes >= options.stage_below_bytes) {
    for (const LowerOptions& lowering : {LowerOptions{segments, true, true}, LowerOptions{segments, true, false},
                                         LowerOptions{segments, false, false}}) {
      Program program = plan::lower(base, operation, lowering);
      if (!plan::find_deadlock(program)) return program;
    }
  }
  const Plan staged = plan::stage_sends(base);
  for (const bool fuse : {true, false}) {
    Program program = plan::lower(staged, operation, {segments, fuse, false});
    if (!plan::find_deadlock(program)) return program;
  }
  throw core::Error(core::Failure::internal, "no lowering of plan '" + plan.algorithm + "' runs to its end: " +
                                                 *plan::find_deadlock(plan::lower(staged, operation, {})));
}

namespace {

// Data that all ranks share.
struct Lowered {
  explicit Lowered(plan::Program lowered) : program(std::move(lowered)) {}
  const plan::Program program;
  std::optional<ProgramTime> time;  // with emulated links
};

std::size_t most_instructions(const plan::Program& program) {
  std::size_t most = 0;
  for (const auto& rank : program.ranks) {
    for (const auto& lane : rank.lanes) most = std::max(most, lane.instructions.size());
  }
  return most;
}

class DirectCollective final : public collectives::Collective {
 public:
  DirectCollective(std::shared_ptr<const Lowered> lowered, std::string label, const collectives::Operation& operation,
                   LocalWorld& world, bool bypass_cache)
      : label_(std::move(label)),
        operation_(operation),
        world_(world),
        group_(world.group()),
        board_(group_.board(world.rank())),
        lowered_(std::move(lowered)),
        program_(lowered_->program.ranks[static_cast<std::size_t>(world.rank())]),
        bypass_cache_(bypass_cache) {
    const plan::Program& program = lowered_->program;
    LOCKSTEP_CHECK(program.num_lanes <= RankBoard::kMaxLanes, "more lanes than a rank has gates");
    world.watch_lanes(program.num_lanes);
    LOCKSTEP_CHECK(most_instructions(program) < std::size_t{1} << transports::kInstructionBits, "a lane is too long");
    if (program.scratch_bytes > 0) {
      for (int half : {0, 1}) scratch_[half] = world.scratch(half, static_cast<std::size_t>(program.scratch_bytes));
    }
    if (lowered_->time) paced_.emplace(world, program, *lowered_->time, label_);
    std::size_t most_places = 0;
    for (const LaneProgram& lane : program_.lanes) {
      for (const Instruction& i : lane.instructions) {
        most_places = std::max<std::size_t>({most_places, i.num_sources, i.num_destinations});
      }
    }
    for (const Instruction& i : program_.lanes.at(0).instructions) lane0_awaited_ |= i.awaited;
    sources_.resize(most_places);
    destinations_.resize(most_places);
    cursors_.resize(program_.lanes.size());
  }

  void run(const void* input, void* output) override {
    enter(input, output);
    if (program_.lanes.size() == 1) {
      run_one_lane();
    } else {
      run_side_by_side();
    }
    for (const Wait& w : program_.exit_waits) wait(w.rank, w.lane, target_of(w));
    if (paced_) paced_->leave();
  }

 private:
  struct LaneCursor {
    std::size_t instruction = 0;
    std::size_t wait = 0;  // next wait of the instruction: earlier ones are satisfied
  };

  // Publishes the addresses of this rank's buffers in this call. The slot was last used two calls ago: all ranks must
  // have left that call, which every rank that has entered the next one has.
  void enter(const void* input, void* output) {
    call_ = world_.next_call();
    for (int peer = 0; peer < world_.num_ranks(); ++peer) {
      if (peer != world_.rank()) wait(peer, 0, transports::progress(call_ - 1, 0));
    }
    // The program never writes to the input (the checker has proved it), except where it is also the output.
    auto* in = const_cast<std::byte*>(static_cast<const std::byte*>(input));
    board_.calls[call_ % 2] = {{in, static_cast<std::byte*>(output), scratch_[call_ % 2]}};
    if (paced_) paced_->enter(call_);
    const int lanes = static_cast<int>(program_.lanes.size());
    for (int lane = lanes - 1; lane >= 0; --lane) {
      const bool awaited = program_.lanes[static_cast<std::size_t>(lane)].entry_awaited;
      count_instruction(lane, 0, awaited || (lane == 0 && !lane0_awaited_));
    }
  }

  void run_one_lane() {
    const LaneProgram& lane = program_.lanes[0];
    std::uint32_t done = 0;
    for (const Instruction& instruction : lane.instructions) {
      for (const Wait& w : lane.waits_of(instruction)) wait(w.rank, w.lane, target_of(w));
      execute(0, done);
      count_instruction(0, ++done, instruction.awaited);
    }
  }

  // Runs one instruction of each lane that can go on, in rotation; waits briefly if none can.
  void run_side_by_side() {
    constexpr auto kShortNap = std::chrono::microseconds(200);  // a nap watches the counter of only one lane
    std::fill(cursors_.begin(), cursors_.end(), LaneCursor{});
    const int lanes = static_cast<int>(program_.lanes.size());
    core::Waiter waiter(world_.wait_policy(), group_.abort());
    while (true) {
      bool moved = false;
      const Wait* blocked = nullptr;
      for (int l = 0; l < lanes; ++l) {
        const LaneProgram& lane = program_.lanes[static_cast<std::size_t>(l)];
        LaneCursor& cursor = cursors_[static_cast<std::size_t>(l)];
        if (cursor.instruction == lane.instructions.size()) continue;
        if (!waits_over(l, cursor)) {
          if (blocked == nullptr) blocked = &lane.waits_of(lane.instructions[cursor.instruction])[cursor.wait];
          continue;
        }
        const bool awaited = lane.instructions[cursor.instruction].awaited;
        execute(l, cursor.instruction);
        cursor = {cursor.instruction + 1, 0};
        count_instruction(l, static_cast<std::uint32_t>(cursor.instruction), awaited);
        moved = true;
      }
      if (moved) {
        waiter = core::Waiter(world_.wait_policy(), group_.abort());
        continue;
      }
      if (blocked == nullptr) return world_.has_waited();
      core::Gate& gate = group_.board(blocked->rank).lanes[blocked->lane];
      world_.pause(waiter, blocked->rank, gate, target_of(*blocked), kShortNap, label_);
    }
  }

  bool waits_over(int lane_index, LaneCursor& cursor) {
    const LaneProgram& lane = program_.lanes[static_cast<std::size_t>(lane_index)];
    const auto waits = lane.waits_of(lane.instructions[cursor.instruction]);
    while (cursor.wait < waits.size()) {
      const Wait& w = waits[cursor.wait];
      if (!world_.reached(w.rank, w.lane, target_of(w))) return false;
      ++cursor.wait;
    }
    return true;
  }

  void execute(int lane_index, std::size_t index) {
    const LaneProgram& lane = program_.lanes[static_cast<std::size_t>(lane_index)];
    if (paced_) return paced_->run(lane_index, index, [&] { pass(lane, lane.instructions[index]); });
    pass(lane, lane.instructions[index]);
  }

  void pass(const LaneProgram& lane, const Instruction& instruction) {
    if (instruction.num_destinations == 0) return;
    const auto sources = lane.sources_of(instruction);
    for (std::size_t s = 0; s < sources.size(); ++s) sources_[s] = address(sources[s]);
    const auto destinations = lane.destinations_of(instruction);
    for (std::size_t d = 0; d < destinations.size(); ++d) destinations_[d] = address(destinations[d]);
    const bool average = instruction.completes && operation_.op == core::ReduceOp::avg;
    kernels::reduce({operation_.dtype, operation_.op, std::span<void* const>(destinations_).first(destinations.size()),
                     std::span<const void* const>(sources_).first(sources.size()), instruction.count,
                     average ? world_.num_ranks() : 0, bypass_cache_ && destinations.size() > 1});
  }

  // Every update of the counter costs its pollers a cache miss, so instructions that no rank waits for are not
  // signalled.
  void count_instruction(int lane, std::uint32_t done, bool awaited) {
    if (awaited) board_.lanes[lane].open(transports::progress(call_, done));
  }

  void wait(int peer, int lane, std::uint64_t target) {
    if (!world_.reached(peer, lane, target)) world_.wait(peer, group_.board(peer).lanes[lane], target, label_);
  }

  std::uint64_t target_of(const Wait& wait) const { return transports::progress(call_, wait.instructions); }
  std::byte* address(const plan::RankAddress& place) const {
    return group_.board(place.rank).calls[call_ % 2].base[static_cast<std::size_t>(place.buffer)] + place.offset_bytes;
  }

  const std::string label_;
  const collectives::Operation operation_;
  LocalWorld& world_;
  transports::LocalGroup& group_;
  RankBoard& board_;
  const std::shared_ptr<const Lowered> lowered_;
  const plan::RankProgram& program_;  // this rank's part of it
  const bool bypass_cache_;
  // True if lane 0 signals during the call. If not, it signals on entry, as other ranks read calls entered from its
  // counter.
  bool lane0_awaited_ = false;
  std::byte* scratch_[2] = {nullptr, nullptr};  // [call % 2]
  std::optional<PacedCall> paced_;              // with emulated links
  std::uint64_t call_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
  std::vector<LaneCursor> cursors_;
};

}  // namespace

std::unique_ptr<collectives::Collective> make_direct(const plan::Plan& plan, const collectives::Operation& operation,
                                                     LocalWorld& world, const DirectOptions& options) {
  auto lowered = world.make_once<Lowered>([&] {
    auto shared = std::make_shared<Lowered>(lower_for_direct(plan, operation, options));
    const auto element_bytes = static_cast<std::int64_t>(core::size_of(operation.dtype));
    if (world.group().links() != nullptr) shared->time.emplace(shared->program, element_bytes);
    return shared;
  });
  const auto message = collectives::message_bytes(operation.kind, world.num_ranks(), operation.count, operation.dtype);
  // In place, the stored data has just been read and is in the caches: bypassing them gains nothing.
  const bool bypass = !operation.in_place && message * world.num_ranks() > options.bypass_above_bytes;
  return std::make_unique<DirectCollective>(std::move(lowered), plan.algorithm, operation, world, bypass);
}

}  // namespace lockstep::executors
