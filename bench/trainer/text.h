// The text that mini_train prints.
#pragma once

#include <string>

#include "bench/trainer/flags.h"
#include "schedules/step/breakdown.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {

std::string models_text();
// "dp 2, tp 1, pp 1, ZeRO 3".
std::string layout_text(const workload::Layout& layout);
std::string heading_text(const TrainFlags& flags, const std::string& data, double peak_flops);
// The GPUs; what MPI allows and what follows from it; empty without both. Also for other programs that run training
// steps.
std::string place_text(const trainer::TrainOptions& options);
// A line a step. `exposed`: share of the step in which the average rank's kernels wait for bytes that move; below 0:
// not known.
std::string step_text(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops, double exposed);
// Empty, or that the peak is too low, as some step reached more than 100 % of it.
std::string mfu_warning(const TrainFlags& flags, double most_mfu, double peak_flops);
// Where the time of a step went, averaged over the ranks.
std::string breakdown_text(const std::vector<schedules::Breakdown>& ranks);
// The memory of the rank that needs most, by kind, as predicted and as counted.
// How the routers have spread the tokens of a step, a line a layer; empty without experts.
std::string expert_text(const trainer::StepReport& report);
std::string memory_text(const parallel::BytesByKind& predicted, const trainer::StepReport& report);
// The line on bytes that offloaded activations moved; empty where none were.
std::string copies_text(const workload::Layout& layout, const trainer::StepReport& report);
// Bytes that are no printable ASCII as \\xNN, but for line ends.
std::string sample_text(const std::string& prompt, const std::string& sample);
std::string ending_text(const trainer::TrainResult& result, bool of_bytes, double unigram_nats, double bigram_nats);

// MFU of a step, 0 to 1, of the average rank.
double exposed_share(const std::vector<schedules::Breakdown>& ranks);
double tokens_per_s(const TrainFlags& flags, const trainer::StepReport& report);
double mfu_of(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops);

}  // namespace lockstep::mini_train
