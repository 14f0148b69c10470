#include "trainer/train/rank_steps.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "collectives/transports/mpi_transport.h"
#include "core/ranks.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::trainer {

using schedules::Lane;

GptShape shape_of(const TrainOptions& options, std::int32_t rank) {
  const workload::Coordinates at = coordinates_of(options.layout, rank % options.layout.ranks());
  return {.model = options.model,
          .layout = options.layout,
          .tensor = {options.layout.tp, at.tp, options.layout.grid},
          .context = at.cp,
          .expert_rank = at.ep};
}

schedules::InterpreterOptions interpreter_of(const TrainOptions& options, bool threaded) {
  schedules::InterpreterOptions interpreter;
  interpreter.deadline = options.timeout;
  interpreter.in_issue_order = !threaded;
  interpreter.others_sleep = true;
  if (!threaded) return interpreter;
  std::uint8_t threads = 0;
  const auto give_thread = [&](Lane lane) { interpreter.thread_of[static_cast<std::size_t>(lane)] = ++threads; };
  if (data_ranks_of(options.layout) > 1 && !options.sync.replicas_step_alone()) {
    give_thread(Lane::reduce);
    give_thread(Lane::gather);
    if (replicas_of(options.layout) > 1) give_thread(Lane::replicas);
  }
  const workload::OffloadPlaces& offload = options.layout.offload;
  if (offload.activations != workload::Offload::none || offload.gradients != workload::Offload::none) {
    give_thread(Lane::copy);
  }
  if (offload.parameters != workload::Offload::none) give_thread(Lane::load);
  if (options.layout.delayed_update) give_thread(Lane::host);
  return interpreter;
}

bool is_threaded(const TrainOptions& options) {
  if (options.device.cuda) return false;
  return options.mpi == nullptr || options.mpi->threads() == transports::MpiThreads::multiple;
}

schedules::BlockingLanes blocking_lanes(const TrainOptions& options) {
  const auto thread_of = interpreter_of(options, is_threaded(options)).thread_of;
  schedules::BlockingLanes blocking = {};
  if (options.device.cuda) return blocking;
  for (const Lane lane :
       {Lane::tensor, Lane::gather, Lane::reduce, Lane::replicas, Lane::copy, Lane::load, Lane::host}) {
    const auto l = static_cast<std::size_t>(lane);
    blocking[l] = thread_of[l] == 0;
  }
  return blocking;
}

backends::MeshOptions mesh_of(const TrainOptions& options) {
  const auto lanes = interpreter_of(options, is_threaded(options)).thread_of;
  return {.num_ranks = options.ranks(),
          .threads_per_rank = options.threads + *std::max_element(lanes.begin(), lanes.end()),
          .link = options.link,
          .timeout = options.timeout,
          .mpi = options.mpi,
          .device = options.device,
          .wrap_device = options.wrap_device};
}

TrainStep step_of(const TrainOptions& options) {
  if (options.sync.replicas_step_alone()) return make_replicated_step(options.model, options.layout);
  return make_train_step(options.model, options.layout);
}

std::vector<backends::Channel> peers_of(const TrainOptions& options) {
  std::vector<backends::Channel> peers;
  if (!options.sync.replicas_step_alone() || options.sync.has_server_rank()) return peers;
  for (std::int32_t rank = 0; rank < options.layout.ranks(); ++rank) {
    workload::Coordinates at = coordinates_of(options.layout, rank);
    if (at.dp != 0) continue;
    backends::Channel& ranks = peers.emplace_back();
    for (; at.dp < options.layout.dp; ++at.dp) ranks.push_back(rank_at(options.layout, at));
  }
  return peers;
}

int first_core_of(const TrainOptions& options, std::int32_t rank) {
  const bool fits = options.ranks() * options.threads <= core::usable_cores();
  return fits && options.mpi == nullptr ? rank * options.threads : -1;
}

schedules::StepTimeline gather_timeline(backends::MeshRank& mesh, std::int64_t start_ns,
                                        std::span<const schedules::TaskSpan> spans) {
  constexpr std::int64_t kOneHostNs = 60'000'000'000;  // clocks that differ by more belong to different hosts
  const auto starts = transports::all_gather_value(mesh.messages, start_ns);
  const std::int64_t first = *std::min_element(starts.begin(), starts.end());
  const auto counts = transports::all_gather_value(mesh.messages, spans.size());
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<schedules::TaskSpan> mine(spans.begin(), spans.end());
  mine.resize(most);
  std::vector<schedules::TaskSpan> all(most * counts.size());
  mesh.messages.all_gather(std::as_bytes(std::span<const schedules::TaskSpan>(mine)),
                           std::as_writable_bytes(std::span<schedules::TaskSpan>(all)));
  schedules::StepTimeline timeline;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const std::int64_t late_ns = starts[r] - first;
    const std::int64_t shift_ps = late_ns < kOneHostNs ? late_ns * 1000 : 0;
    auto& of_rank = timeline.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(r * most),
                                          all.begin() + static_cast<std::ptrdiff_t>(r * most + counts[r]));
    for (schedules::TaskSpan& span : of_rank) {
      span.start_ps += shift_ps;
      span.end_ps += shift_ps;
    }
  }
  return timeline;
}

namespace {

std::unique_ptr<LaneQueues> make_lanes(backends::MeshRank& mesh, const ChannelMap& channels,
                                       const workload::Layout& layout) {
  if (mesh.queues == nullptr) return nullptr;
  const auto context_in = [&](core::Stream& stream) {
    return make_cuda_context(mesh.device, stream, mesh.messages.rank());
  };
  return std::make_unique<LaneQueues>(mesh, channels, layout.pp > 1, context_in);
}

std::string offload_folder_of(const TrainOptions& options) {
  return options.offload_folder.empty() ? std::filesystem::temp_directory_path().string() : options.offload_folder;
}

CollectiveOptions collectives_of(const TrainOptions& options) {
  return {.algorithm = options.algorithm,
          .compression = options.layout.compression,
          .compresses_scatters = replicas_of(options.layout) == 1,
          .near_ranks = options.layout.near_ranks,
          .weights = options.layout.weight_compression,
          .seed = options.seed};
}

}  // namespace

RankSteps::RankSteps(const TrainOptions& options, const TrainStep& made, backends::MeshRank& mesh,
                     const ChannelMap& channels)
    : mesh_(mesh),
      pool_(options.threads, first_core_of(options, mesh.messages.rank())),
      lanes_(make_lanes(mesh, channels, options.layout)),
      where_(lanes_ ? lanes_->where(schedules::Lane::compute) : kernels::Context(pool_)),
      model_(made, place_in_step(made, options.layout, mesh.messages.rank()), shape_of(options, mesh.messages.rank()),
             mesh.messages.rank(), mesh, channels, where_, collectives_of(options), options.seed, lanes_.get(),
             {options.device_memory, offload_folder_of(options), options.timeout}),
      interpreter_(interpreter_of(options, mesh.threaded)) {
  if (!options.attention.empty()) kernels::choose_attention(where_.cuda(), options.attention);
  if (options.gemm != TrainOptions::kPerShape) kernels::choose_gemms_by_rule(where_, options.gemm);
}

// Collectives are made after everything else has what it needs, because NCCL runs each once when it is made. The first
// run of each GEMM is timed, and making a collective waits for queued work: only in the last pass does the host run as
// far ahead of the device as in a real step, with memory that waits for the device unavailable.
void RankSteps::rehearse(const std::function<void()>& pass) {
  if (!is_queued()) return;
  for (const CollectiveUse use : {CollectiveUse::leave_out, CollectiveUse::make, CollectiveUse::leave_out}) {
    model_.collectives().use(use);
    pass();
    mesh_.messages.barrier();  // work after this may require that no rank allocates memory
  }
  model_.collectives().use(CollectiveUse::run);
}

}  // namespace lockstep::trainer
