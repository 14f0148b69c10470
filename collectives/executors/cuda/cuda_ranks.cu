#include "collectives/executors/cuda/cuda_ranks.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "collectives/executors/cuda/device_program.h"
#include "collectives/executors/cuda/interpret.cuh"
#include "collectives/executors/cuda/passes.cuh"
#include "collectives/executors/executors.h"
#include "core/device.h"
#include "core/error.h"
#include "kernels/base/cuda_launch.cuh"

namespace lockstep::executors {

using core::DeviceBlock;
using core::ReduceOp;
using cuda::BoardView;
using kernels::CudaContext;

namespace {

constexpr int kMostThreads = 256;  // with 128 registers each, two blocks use all registers of a multiprocessor

__device__ inline cuda::Block this_block(const cuda::Call& call, cuda::BlockState& state) {
  return {.args = call,
          .state = state,
          .lane = static_cast<int>(blockIdx.x) / call.blocks,
          .index = static_cast<int>(blockIdx.x) % call.blocks,
          .instruction = 0,
          .image = call.image,
          .boards = call.boards};
}

template <class T, ReduceOp kOp>
__global__ void __launch_bounds__(kMostThreads, kBlocksPerMultiprocessor)
    pass_kernel(const __grid_constant__ cuda::Call call) {
  __shared__ cuda::BlockState state;
  cuda::Block block = this_block(call, state);
  cuda::interpret(block, [&](const cuda::DeviceInstruction& instruction) {
    cuda::pass_slice<T, kOp>(block, instruction);
    return true;
  });
}

template <class T, ReduceOp kOp>
__global__ void __launch_bounds__(kMostThreads, kBlocksPerMultiprocessor)
    packet_kernel(const __grid_constant__ cuda::Call call) {
  __shared__ cuda::BlockState state;
  cuda::Block block = this_block(call, state);
  cuda::interpret(block, [&](const cuda::DeviceInstruction& instruction) {
    return cuda::packet_slice<T, kOp>(block, instruction);
  });
}

using InterpreterKernel = void (*)(cuda::Call);

using Bits = std::uint8_t;  // type of data that is moved and not combined

// How a kernel runs instructions.
enum class Transfer { passes, packets };

template <class T, ReduceOp kOp>
InterpreterKernel kernel_of(Transfer way) {
  return way == Transfer::passes ? pass_kernel<T, kOp> : packet_kernel<T, kOp>;
}

// Collectives that only move bits have no dtype.
InterpreterKernel kernel_for(const collectives::Operation& operation, Transfer way) {
  if (!collectives::has_op(operation.kind)) return kernel_of<Bits, ReduceOp::sum>(way);
  InterpreterKernel kernel = nullptr;
  kernels::with_combined_type(operation.dtype, [&](auto zero) {
    kernels::with_op(operation.op, [&](auto op) { kernel = kernel_of<decltype(zero), decltype(op)::value>(way); });
  });
  return kernel;
}

// A kernel's first launch may wait for the device, on which a peer's kernel may wait for this very kernel. Two reasons:
// it is loaded then (CUDA Programming Guide, Lazy Loading, "Concurrent Execution"), which reading its attributes does
// now; and it may need larger stacks than any before (cuda.h, cuCtxSetLimit, CU_LIMIT_STACK_SIZE).
void load_now(const CudaContext& context, InterpreterKernel kernel) {
  cudaFuncAttributes attributes{};
  core::check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)), "cudaFuncGetAttributes",
                   context.place());
  std::size_t stack_bytes = 0;
  core::check_cuda(cudaDeviceGetLimit(&stack_bytes, cudaLimitStackSize), "cudaDeviceGetLimit", context.place());
  if (attributes.localSizeBytes <= stack_bytes) return;
  core::check_cuda(cudaDeviceSetLimit(cudaLimitStackSize, attributes.localSizeBytes), "cudaDeviceSetLimit",
                   context.place());
}

template <class T>
void upload(core::Device& device, std::byte* to, const std::vector<T>& values) {
  if (!values.empty()) device.copy_to_device(to, values.data(), values.size() * sizeof(T));
}

}  // namespace

// Memory that all ranks can access, one piece for even calls and one for odd ones, as peers may still be in the
// previous call.
struct AlternatingMemory {
  std::vector<DeviceBlock> blocks;  // [call % 2]
  std::size_t size_bytes = 0;
};

struct CudaRanks::State {
  transports::World& world;
  core::Device& device;
  core::Stream& stream;
  CudaContext context;
  ReachPeers reach;
  CudaOptions options;
  DeviceBlock board;
  DeviceBlock table;  // BoardView [rank]
  std::vector<BoardView> boards = {};
  AlternatingMemory scratch = {};
  AlternatingMemory packets = {};
  // Kept to the end: peers may have it open, and freeing it may wait for the device.
  std::vector<DeviceBlock> outgrown = {};
  // Memory of destroyed collectives, kept until the next prepare(), when no rank's kernels run.
  std::vector<DeviceBlock> unused = {};

  State(transports::World& its_world, core::Device& its_device, core::Stream& its_stream, ReachPeers its_reach,
        const CudaOptions& its_options)
      : world(its_world),
        device(its_device),
        stream(its_stream),
        context(its_device, its_stream, its_world.rank()),
        reach(std::move(its_reach)),
        options(its_options),
        board(DeviceBlock::for_peers(its_device, cuda::board_bytes(its_world.num_ranks()))),
        table(its_device, sizeof(BoardView) * static_cast<std::size_t>(its_world.num_ranks())) {}

  // `which`: the fields of the boards' views that hold the memory's addresses.
  void grow(AlternatingMemory& halves, std::size_t size_bytes, std::byte* (BoardView::*which)[2]);
};

void CudaRanks::State::grow(AlternatingMemory& halves, std::size_t size_bytes, std::byte* (BoardView::*which)[2]) {
  if (size_bytes <= halves.size_bytes) return;
  std::move(halves.blocks.begin(), halves.blocks.end(), std::back_inserter(outgrown));
  halves = {.blocks = {}, .size_bytes = std::max(size_bytes, 2 * halves.size_bytes)};
  for (std::size_t half : {0, 1}) {
    DeviceBlock& mine = halves.blocks.emplace_back(DeviceBlock::for_peers(device, halves.size_bytes));
    upload(device, mine.data(), std::vector<std::byte>(halves.size_bytes));
    const std::vector<std::byte*> all = reach(mine.data());
    for (std::size_t rank = 0; rank < all.size(); ++rank) (boards[rank].*which)[half] = all[rank];
  }
  upload(device, table.data(), boards);
}

namespace {

// The program that a rank runs.
struct Prepared {
  cuda::DeviceProgram program;
  Transfer way;
  int lanes;
  int blocks;  // per lane
  int threads;
};

class CudaCollective final : public collectives::Collective {
 public:
  CudaCollective(CudaRanks::State& ranks, const Prepared& prepared, const collectives::Operation& operation)
      : ranks_(ranks),
        kernel_(kernel_for(operation, prepared.way)),
        average_over_(collectives::has_op(operation.kind) && operation.op == ReduceOp::avg ? ranks.world.num_ranks()
                                                                                           : 0),
        blocks_(prepared.blocks),
        lanes_(prepared.lanes),
        threads_(prepared.threads) {
    LOCKSTEP_CHECK(kernel_ != nullptr, "no kernel of that dtype and operation");
    LOCKSTEP_CHECK(prepared.program.most_places <= cuda::kMostPlaces,
                   "more places in a pass than a block has room for");
    const cuda::ProgramImage image = cuda::image_of(prepared.program);
    image_ = DeviceBlock(ranks.device, image.bytes.size());
    upload(ranks.device, image_.data(), image.bytes);
    at_ = image.at;
    load_now(ranks.context, kernel_);
  }
  ~CudaCollective() override { ranks_.unused.push_back(std::move(image_)); }
  CudaCollective(const CudaCollective&) = delete;
  CudaCollective& operator=(const CudaCollective&) = delete;

  void run(const void* input, void* output) override {
    // The program never writes to the input (the checker has proved it), except where it is also the output.
    auto* in = const_cast<std::byte*>(static_cast<const std::byte*>(input));
    const cuda::Call call{.image = image_.data(),
                          .at = at_,
                          .boards = reinterpret_cast<const BoardView*>(ranks_.table.data()),
                          .board = ranks_.boards[static_cast<std::size_t>(ranks_.world.rank())],
                          .mine = {{in, static_cast<std::byte*>(output)}},
                          .timeout_ns = static_cast<std::uint64_t>(ranks_.options.timeout.count()),
                          .average_over = average_over_,
                          .rank = ranks_.world.rank(),
                          .num_ranks = ranks_.world.num_ranks(),
                          .blocks = blocks_,
                          .reach = ranks_.options.one_device ? kernels::Reach::device : kernels::Reach::system};
    const kernels::LaunchShape shape{.blocks = std::int64_t{lanes_} * blocks_, .threads = threads_};
    kernels::launch(ranks_.context, "collective", shape, kernel_, call);
  }

 private:
  CudaRanks::State& ranks_;
  const InterpreterKernel kernel_;
  const std::int64_t average_over_;
  const int blocks_;
  const int lanes_;
  const int threads_;
  DeviceBlock image_;
  cuda::ImageLayout at_{};
};

std::int64_t longest_pass_bytes(const plan::Program& program, std::size_t elem_bytes) {
  std::int64_t longest = 0;
  for (const plan::RankProgram& rank : program.ranks) {
    for (const plan::LaneProgram& lane : rank.lanes) {
      for (const plan::Instruction& i : lane.instructions) longest = std::max(longest, i.count);
    }
  }
  return longest * static_cast<std::int64_t>(elem_bytes);
}

// Blocks per lane: enough to give each thread kBytesPerThread of the longest pass, limited by the number that can run
// at once. The same on every rank, as ranks wait for all blocks of a lane.
int blocks_of_a_lane(const plan::Program& program, std::size_t elem_bytes, const CudaOptions& options,
                     std::int64_t bytes_per_thread) {
  if (program.num_lanes > options.most_blocks) {
    throw core::usage_error("the plan has " + std::to_string(program.num_lanes) +
                            " lanes, a thread block each; thread blocks per rank that can run at once: " +
                            std::to_string(options.most_blocks));
  }
  const std::int64_t wanted = longest_pass_bytes(program, elem_bytes) / (bytes_per_thread * options.threads);
  const int most = std::min(options.most_blocks, cuda::kMostSlots) / program.num_lanes;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, most));
}

}  // namespace

CudaRanks::CudaRanks(transports::World& world, core::Device& device, core::Stream& stream, ReachPeers reach,
                     const CudaOptions& options) {
  const int num_ranks = world.num_ranks();
  LOCKSTEP_CHECK(options.threads % kernels::kWarpLanes == 0 && options.threads <= kMostThreads,
                 "threads of a block are whole warps");
  state_ = std::make_unique<State>(world, device, stream, std::move(reach), options);
  // GPUs may have different other loads
  for (const int its : transports::all_gather_value(world, options.most_blocks)) {
    state_->options.most_blocks = std::min(state_->options.most_blocks, its);
  }
  upload(device, state_->board.data(), std::vector<std::byte>(cuda::board_bytes(num_ranks)));
  for (std::byte* board : state_->reach(state_->board.data())) {
    state_->boards.push_back(cuda::board_at(board, num_ranks));
  }
  upload(device, state_->table.data(), state_->boards);
  world.barrier();  // no rank frees or allocates memory any more when the first kernel runs
}

CudaRanks::~CudaRanks() = default;

void CudaRanks::disband() {
  state_->stream.synchronize();
  state_->world.barrier();
  state_->reach = nullptr;
  state_->world.barrier();
}

namespace {

// Counts in bytes, if the operation only moves bits: passes then need no dtype.
void count_in_bytes(cuda::DeviceProgram& program, const collectives::Operation& operation) {
  if (collectives::has_op(operation.kind)) return;
  const auto elem_bytes = static_cast<std::int64_t>(core::size_of(operation.dtype));
  for (cuda::DeviceInstruction& instruction : program.instructions) instruction.count *= elem_bytes;
}

// True if some pass waits for data that others produce during the call. If none does, no reader can follow a writer
// closely, and passes in pieces would only make all blocks wait for each other more often.
bool somebody_follows(const plan::Program& program) {
  const auto follows = [](const plan::LaneProgram& lane, const plan::Instruction& instruction) {
    const auto waits = lane.waits_of(instruction);
    return instruction.num_destinations > 0 &&
           std::any_of(waits.begin(), waits.end(), [](const plan::Wait& w) { return w.instructions > 0; });
  };
  for (const plan::RankProgram& rank : program.ranks) {
    for (const plan::LaneProgram& lane : rank.lanes) {
      for (const plan::Instruction& instruction : lane.instructions) {
        if (follows(lane, instruction)) return true;
      }
    }
  }
  return false;
}

plan::Program lowered(const plan::Plan& plan, const collectives::Operation& operation, const CudaOptions& options) {
  constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
  DirectOptions lowering{.stage_below_bytes = options.in_place_reads ? options.stage_below_bytes : kAll,
                         .segment_bytes = kAll};
  plan::Program whole = lower_for_direct(plan, operation, lowering);
  if (!somebody_follows(whole)) return whole;
  lowering.segment_bytes = options.segment_bytes;
  return lower_for_direct(plan, operation, lowering);
}

// Threads of a block with this many units: at most one per unit, as every barrier waits for all of them, plus some for
// other work.
int threads_for(std::int64_t units, const CudaOptions& options) {
  constexpr std::int64_t kFewest = 128;
  const std::int64_t warps = (units + kernels::kWarpLanes - 1) / kernels::kWarpLanes;
  return static_cast<int>(std::min<std::int64_t>(std::max(kFewest, warps * kernels::kWarpLanes), options.threads));
}

constexpr std::int64_t kBytesPerThread = 64;  // in the longest pass, if there are enough blocks

Prepared with_passes(CudaRanks::State& ranks, const plan::Plan& plan, const collectives::Operation& operation) {
  const CudaOptions& options = ranks.options;
  const plan::Program program = lowered(plan, operation, options);
  ranks.grow(ranks.scratch, static_cast<std::size_t>(program.scratch_bytes), &BoardView::scratch);
  const std::size_t elem_bytes = core::size_of(operation.dtype);
  const int blocks = blocks_of_a_lane(program, elem_bytes, options, kBytesPerThread);
  return {.program = cuda::make_device_program(program, operation, ranks.world.rank(), blocks),
          .way = Transfer::passes,
          .lanes = program.num_lanes,
          .blocks = blocks,
          .threads = options.threads};
}

std::optional<Prepared> with_packets(CudaRanks::State& ranks, const plan::Plan& plan,
                                     const collectives::Operation& operation) {
  constexpr auto kWhole = std::numeric_limits<std::int64_t>::max();
  const plan::Program program =
      lower_for_direct(plan, operation, {.stage_below_bytes = kWhole, .segment_bytes = kWhole});
  const std::size_t elem_bytes = core::size_of(operation.dtype);
  const int blocks = blocks_of_a_lane(program, elem_bytes, ranks.options, cuda::kUnitBytes);
  auto packets = cuda::make_packet_program(program, operation, ranks.world.rank(), blocks);
  if (!packets) return std::nullopt;
  ranks.grow(ranks.scratch, static_cast<std::size_t>(program.scratch_bytes), &BoardView::scratch);
  ranks.grow(ranks.packets, static_cast<std::size_t>(packets->packet_bytes), &BoardView::packets);
  return Prepared{.program = std::move(packets->program),
                  .way = Transfer::packets,
                  .lanes = program.num_lanes,
                  .blocks = blocks,
                  .threads = threads_for(longest_pass_bytes(program, elem_bytes) / cuda::kUnitBytes, ranks.options)};
}

Prepared in_one_way(CudaRanks::State& ranks, const plan::Plan& plan, const collectives::Operation& operation) {
  const CudaOptions& options = ranks.options;
  const std::int64_t message =
      collectives::message_bytes(operation.kind, ranks.world.num_ranks(), operation.count, operation.dtype);
  if (message < options.packets_below_bytes) {
    if (auto prepared = with_packets(ranks, plan, operation)) return std::move(*prepared);
  }
  if (options.packets_only) {
    throw core::usage_error("--protocol packets: '" + plan.algorithm + "' cannot use packets; allowed: auto, simple");
  }
  return with_passes(ranks, plan, operation);
}

}  // namespace

std::unique_ptr<collectives::Collective> CudaRanks::prepare(const plan::Plan& plan,
                                                            const collectives::Operation& operation) {
  State& ranks = *state_;
  // Calls that load kernels, free or allocate memory may wait for the whole device: no kernel of the group may run that
  // waits for one that is not launched yet.
  ranks.stream.synchronize();
  ranks.world.barrier();
  ranks.unused.clear();
  Prepared prepared = in_one_way(ranks, plan, operation);
  count_in_bytes(prepared.program, operation);
  auto collective = std::make_unique<CudaCollective>(ranks, prepared, operation);
  ranks.world.barrier();
  return collective;
}

namespace {

std::string timeout_text(int rank, const cuda::Trouble& trouble, const transports::World& world, double seconds) {
  const auto number = [&](int rank) { return std::to_string(world.number_of(rank)); };
  const std::string waited_for = trouble.waits_for_instructions == 0
                                     ? " to enter the collective"
                                     : " to have done " + std::to_string(trouble.waits_for_instructions) +
                                           " instructions of lane " + std::to_string(trouble.waits_for_lane);
  return "rank " + number(rank) + ": instruction " + std::to_string(trouble.instruction) + " of lane " +
         std::to_string(trouble.lane) + " waited " + std::to_string(seconds) + " s for rank " +
         number(trouble.waits_for_rank) + waited_for;
}

}  // namespace

void CudaRanks::check() const {
  cuda::BoardHead head{};
  state_->device.copy_to_host(&head, state_->board.data(), sizeof head);
  if (head.abort == 0) return;
  const double seconds = std::chrono::duration<double>(state_->options.timeout).count();
  const int rank = static_cast<int>(head.abort) - 1;
  cuda::Trouble trouble{};
  const BoardView& board = state_->boards.at(static_cast<std::size_t>(state_->world.rank()));
  state_->device.copy_to_host(&trouble, board.troubles + rank, sizeof trouble);
  throw core::Error(core::Failure::timeout, timeout_text(rank, trouble, state_->world, seconds));
}

}  // namespace lockstep::executors
