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
#include "trainer/step/step_rules.h"
#include "trainer/sync/sync_options.h"
#include "trainer/tokens/tokenizer.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::trainer {

// The layout of a run whose flags give no layout text: f32, communication overlapped with kernels, and only the
// recomputation that the backward needs.
inline workload::Layout usual_layout() {
  return {.microbatch_size = 8, .early_stop = true, .compute = core::DType::f32, .overlap_p2p = true};
}

struct TrainOptions {
  workload::Model model;
  workload::Layout layout = usual_layout();  // with compute f16: dynamic loss scaling
  std::uint64_t seed = 1;

  std::int64_t steps = 20;
  LearningRate rate;
  float most_norm = 1;  // gradients are clipped to this norm; 0: never
  kernels::OptimizerNumbers optimizer = kernels::rule_of(kernels::OptimizerKind::adamw).usual;  // for layout.optimizer
  LossScaleOptions loss_scale;
  SyncOptions sync;     // how data-parallel ranks agree
  Straggler straggler;  // slows one replica down

  std::vector<std::string> data;  // files; empty: the synthetic text
  std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<const Tokenizer>(Tokenizer::bytes());
  std::int64_t synthetic_bytes = 1 << 20;
  std::int64_t validate_every = 0;         // steps; 0: at the end only
  std::int64_t validation_sequences = 64;  // a minimum: rounded up to whole passes

  std::string checkpoint_folder;      // empty: none are written
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end only
  std::int32_t checkpoints_kept = 2;
  std::string init_from;    // file with Hugging Face's tensors; empty: random weights
  std::string export_file;  // such a file, written at the end
  std::string prompt = "\n";
  std::int64_t sample_tokens = 0;  // number of tokens that the trained model generates at the end
  double temperature = 0.8;        // for sampling; 0: always the most likely token
  std::string resume;              // a checkpoint, or a folder of checkpoints: the run continues from its step

  std::int64_t device_memory = 0;  // limit for a rank's tensors in bytes; 0: the device's memory
  std::string offload_folder;      // for layout.offload "file"; empty: the system's folder for temporary files

  std::int64_t timeline_every = 0;  // steps between reported timelines (the last step always has one); 0: the last only

  std::string algorithm = "auto";  // of collectives
  // CPU only: implementation of matrix products ("packed", "onednn") on all ranks, which determines the last
  // bits. Empty: the first of these that this machine has. kPerShape: the fastest is measured when a shape first
  // occurs, so that the last bits differ between runs.
  std::string gemm;
  static constexpr const char* kPerShape = "per-shape";
  // On CUDA: the kernels that compute attention (kernels/attention/attention.h); empty: the default.
  std::string attention;
  // Record the training step once as a CUDA graph and launch that in every step. CUDA only, without pipeline stages.
  bool graph = false;
  int threads = 1;                           // kernel threads per rank
  std::optional<transports::LinkSpec> link;  // emulated links
  std::chrono::milliseconds timeout{60'000};
  transports::MpiWorld* mpi = nullptr;
  backends::DeviceChoice device;
  backends::WrapDevice wrap_device;  // for tests (backends::MeshOptions)

  // Includes the server's own rank, if there is one, after all others.
  std::int32_t ranks() const { return layout.ranks() + (sync.has_server_rank() ? 1 : 0); }
  std::int64_t tokens_per_step() const { return layout.global_batch() * model.sequence; }
};

}  // namespace lockstep::trainer
