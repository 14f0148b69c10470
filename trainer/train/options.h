// The options of a training run.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/transports/paced_link.h"
#include "parallel/parameters/store.h"
#include "trainer/optimization/learning_rate.h"
#include "trainer/optimization/loss_scale.h"
#include "trainer/sync/sync_options.h"
#include "trainer/tokens/tokenizer.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::trainer {

// The layout that a run starts from where none is given as a text: f32, messages that leave beside kernels,
// recomputation of no more than the backward needs.
inline workload::Layout usual_layout() {
  return {.microbatch_size = 8, .early_stop = true, .compute = core::DType::f32, .overlap_p2p = true};
}

struct TrainOptions {
  workload::Model model;
  workload::Layout layout = usual_layout();  // compute f16: with dynamic loss scaling
  std::uint64_t seed = 1;

  std::int64_t steps = 20;
  LearningRate rate;
  float most_norm = 1;  // gradients are clipped to it; 0: never
  parallel::AdamWOptions adamw;
  LossScaleOptions loss_scale;
  SyncOptions sync;     // how data-parallel ranks agree
  Straggler straggler;  // one of them is slow

  std::vector<std::string> data;  // files; none: the synthetic text
  std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<const Tokenizer>(Tokenizer::bytes());
  std::int64_t synthetic_bytes = 1 << 20;
  std::int64_t validate_every = 0;         // steps; 0: only at the end
  std::int64_t validation_sequences = 64;  // about: rounded up to whole passes

  std::string checkpoint_folder;      // empty: none are written
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end only
  std::int32_t checkpoints_kept = 2;
  std::string init_from;    // a file with Hugging Face's tensors; empty: random weights
  std::string export_file;  // such a file, written at the end
  std::string prompt = "\n";
  std::int64_t sample_tokens = 0;  // to be written by the trained model
  double temperature = 0.8;        // of sampling; 0: always the likeliest token
  std::string resume;              // a checkpoint, or a folder of them: the run goes on from its step

  std::int64_t device_memory = 0;  // bytes that a rank's tensors may take; 0: what the device has
  std::string offload_folder;      // of layout.offload "file"; empty: the system's for temporary files

  std::int64_t timeline_every = 0;  // steps; when tasks ran is told for these and the last; 0: for the last

  std::string algorithm = "auto";  // of collectives
  // On the CPU: the implementation of products of matrices ("amx", "packed", "onednn") of all ranks, on which the last
  // bits depend; empty: the first in this order that is here. kPerShape: the fastest is measured when a shape is met
  // first, so that the last bits differ from run to run.
  std::string gemm;
  static constexpr const char* kPerShape = "per-shape";
  // The training step is recorded once as a graph of the device, and launched. CUDA only, without pipeline stages.
  bool graph = false;
  int threads = 1;                           // of kernels, a rank
  std::optional<transports::LinkSpec> link;  // emulated
  std::chrono::milliseconds timeout{60'000};
  transports::MpiWorld* mpi = nullptr;
  backends::DeviceChoice device;
  backends::WrapDevice wrap_device;  // for tests (backends::MeshOptions)

  // With the server's, where it has one of its own behind all others.
  std::int32_t ranks() const { return layout.ranks() + (sync.has_server_rank() ? 1 : 0); }
  std::int64_t tokens_a_step() const { return layout.global_batch() * model.sequence; }
};

}  // namespace lockstep::trainer
