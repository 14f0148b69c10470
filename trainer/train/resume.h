// Checkpoints of a training run: each rank's part of the master weights and both moments, the pending error feedback of
// compressed gradients, and the run's progress.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/train/rank_trainer.h"

namespace lockstep::trainer {

// All ranks call these together (trainer/checkpoint/checkpoint.h and checkpoint.h have the rules).
void save_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step);
// Reads a checkpoint of any layout and returns the number of steps done. Throws a usage Error if the model differs.
std::int64_t resume_run(RankTrainer& trainer, const TrainOptions& options, const std::string& path);

// A line for the user if the run cannot use the checkpoint's error feedback, or finds none: if another layout or
// another compression wrote it. Otherwise empty.
std::string note_on_resume(const TrainOptions& options, const std::string& path);

// Returns TrainOptions::gemm of the run that wrote the checkpoint if that run computed in this dtype: the run then
// continues with the same bits. Empty if it is not recorded.
std::string gemm_of_checkpoint(const std::string& path, core::DType compute);

// Reads weights from a file with Hugging Face's names (trainer/checkpoint/hugging_face.h); moments and the step
// start at 0.
void init_run(RankTrainer& trainer, const TrainOptions& options, const std::string& file);
// Writes such a file through a checkpoint, which is removed again if the run keeps none.
void export_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step, const std::string& file);

}  // namespace lockstep::trainer
