// The update of the parameters at the end of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

enum class Barrier : std::uint8_t {
  none,  // a rank updates when its own gradients are reduced (Qi et al. 2023, section 4: checked afterwards)
  // An all-reduce of the gradients' norm over the group `world`, for clipping: no rank updates before all have all
  // gradients.
  norm,
};

// A STEP of so many picoseconds for each rank, in lane compute, after all that the rank computes and reduces.
void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier);

// The update of the step before, which takes so many picoseconds on each rank's host: a STEP in lane host from the
// step's beginning on, which the STEP that add_optimizer() puts in later waits for (ZeRO-Offload's delayed parameter
// update: Ren et al. 2021, arXiv:2101.06840, section 5.2).
void update_beside(Step& step, std::span<const std::int64_t> ps_of_rank);

// A STEP of so many picoseconds for each stage behind every microbatch's gradients of it, reductions included, and
// before the rank's next kernel: PipeDream without a flush (Narayanan et al. 2019, section 3.3). Its tasks have the
// microbatch whose gradients they take. No rank waits for the norm of all.
void add_updates(Step& step, std::span<const std::int64_t> ps_of_stage);

struct BucketUpdate {
  std::int64_t ps = 0;
  std::int32_t part = -1;  // as GradientBucket::part
  bool at_end = false;     // its gradient is summed once more when the rank has done all else (reduce_at_end)
};

// A STEP for each gradient bucket, whose part is the bucket's index: the optimizer step in the backward. Without
// reductions it stands right behind the kernel that gives the bucket's last gradient, as PyTorch's
// apply_optimizer_in_backward has it; with them, behind the last reduction of the bucket after it, so that the backward
// goes on while the bucket is reduced. `updates`: for each stage, its buckets in the order of reduce_gradients(), which
// is used before. No rank waits for the norm of all.
void add_bucket_updates(Step& step, std::span<const std::vector<BucketUpdate>> updates);

}  // namespace lockstep::schedules
