// Checkpoints of a training run: what each rank owns of the master weights and both moments, what it has not sent yet
// of compressed gradients, and where the run is.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/train/rank_trainer.h"

namespace lockstep::trainer {

// All ranks call these together (trainer/checkpoint/save_checkpoint.h and checkpoint.h have the rules).
void save_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step);
// Whatever layout wrote it. Returns the steps that were done. Throws a usage Error if it is of another model.
std::int64_t resume_run(RankTrainer& trainer, const TrainOptions& options, const std::string& path);

// A line where the run cannot go on with what compressed gradients still owe in the checkpoint, or with none: where
// another layout or another compression wrote it. Else empty.
std::string note_on_resume(const TrainOptions& options, const std::string& path);

// TrainOptions::gemm of the run that wrote it, if that computed in this dtype: with it the run goes on with the same
// bits. Empty if it does not say.
std::string gemm_of_checkpoint(const std::string& path, core::DType compute);

// Weights from a file with Hugging Face's names (trainer/checkpoint/hugging_face_file.h); moments and steps begin at 0.
void init_run(RankTrainer& trainer, const TrainOptions& options, const std::string& file);
// Writes such a file, by way of a checkpoint that is removed again if the run keeps none.
void export_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step, const std::string& file);

}  // namespace lockstep::trainer
