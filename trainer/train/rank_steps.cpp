#include "trainer/train/rank_steps.h"

#include <filesystem>
#include <string>

#include "kernels/attention/attention_choice.h"
#include "kernels/gemm/gemm.h"
#include "trainer/train/rank_setup.h"

namespace lockstep::trainer {
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
