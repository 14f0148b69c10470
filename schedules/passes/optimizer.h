// The update of the parameters at the end of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

enum class Barrier : std::uint8_t {
  none,  // a rank updates when its own gradients are reduced (Qi et al. 2023, section 4: validated afterwards)
  // An all-reduce of the gradients' norm over the group `world`, for clipping: no rank updates before all ranks have
  // all gradients.
  norm,
};

// Adds a STEP of the given time to each rank, in lane compute, after all of the rank's kernels and reductions.
void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier);

// Adds the previous step's update, which runs on each rank's host for the given time: a STEP in lane host from the
// beginning of this step. The STEP that add_optimizer() adds later waits for it (ZeRO-Offload's delayed parameter
// update: Ren et al. 2021, arXiv:2101.06840, section 5.2).
void update_beside(Step& step, std::span<const std::int64_t> ps_of_rank);

// Adds a STEP of the given time per stage after each microbatch's gradients, reductions included, and before the rank's
// next kernel: PipeDream without a flush (Narayanan et al. 2019, section 3.3). Each STEP has the microbatch whose
// gradients it applies. No rank waits for the global gradient norm.
void add_updates(Step& step, std::span<const std::int64_t> ps_of_stage);

struct BucketUpdate {
  std::int64_t ps = 0;
  std::int32_t part = -1;  // as GradientBucket::part
  bool at_end = false;     // its gradient is summed once more at the end of the rank's work (reduce_at_end)
};

// Adds a STEP per gradient bucket, with the bucket's index as its part: the optimizer step inside the backward. Without
// reductions the STEP follows the kernel that makes the bucket's last gradient, like PyTorch's
// apply_optimizer_in_backward; with reductions it follows the last reduction of the next bucket, so that the backward
// continues while the bucket is reduced. `updates`: per stage, its buckets in the order of reduce_gradients(), which
// has to be called before. No rank waits for the global gradient norm.
void add_bucket_updates(Step& step, std::span<const std::vector<BucketUpdate>> updates);

}  // namespace lockstep::schedules
