// Output of mini_train: text, records, and the simulated and measured times of a step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/mini_train/flags.h"
#include "core/record.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/predict.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {

// The text that mini_train prints.

std::string models_text();
// "dp 2, tp 1, pp 1, ZeRO 3".
std::string layout_text(const workload::Layout& layout);
// A step's name as a case of a worker (bench/serve/orders.h): "step/nano/bf16/dp 2, tp 1, pp 1/threads:1".
std::string step_name(const trainer::TrainOptions& options);
std::string heading_text(const TrainFlags& flags, const std::string& data, double peak_flops);
// Describes the GPUs, MPI's thread level with its consequences, and threads that share cores; empty without any. Also
// used by other programs that run training steps.
std::string place_text(const trainer::TrainOptions& options);
// One line per step. `exposed`: share of the step in which the average rank's kernels wait for communication; below 0:
// unknown.
std::string step_text(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops, double exposed);
// Warns that the peak is too low if some step reached more than 100 % of it; otherwise empty.
std::string mfu_warning(const TrainFlags& flags, double most_mfu, double peak_flops);
// Breakdown of the time of some steps: medians of each part's share and, of several steps, half of its 95 % interval.
// Without parts that no step has.
std::string breakdown_text(std::span<const std::vector<schedules::Breakdown>> steps);
// memory_text: memory by kind of the rank that needs most, predicted and counted. expert_text: how the routers spread
// the tokens of a step, one line per layer; empty without experts.
std::string expert_text(const trainer::StepReport& report);
std::string memory_text(const parallel::BytesByKind& predicted, const trainer::StepReport& report);
// One line about bytes moved by offloaded activations; empty if there are none.
std::string copies_text(const workload::Layout& layout, const trainer::StepReport& report);
// Escapes bytes other than printable ASCII and line ends as \\xNN.
std::string sample_text(const std::string& prompt, const std::string& sample);
std::string ending_text(const trainer::TrainResult& result, bool of_bytes, double unigram_nats, double bigram_nats);

// Exposed communication of a step as a share, 0 to 1, of the average rank.
double exposed_share(const std::vector<schedules::Breakdown>& ranks);
double tokens_per_s(const TrainFlags& flags, const trainer::StepReport& report);
double mfu_of(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops);

// A training run as a record (docs/record_format.md).

core::NamedNumbers memory_bytes(const parallel::BytesByKind& bytes);
core::NamedNumbers with_total(core::NamedNumbers named, std::int64_t total);
core::ModelRecord model_record(const trainer::TrainOptions& options);
core::LayoutRecord layout_record(const workload::Layout& layout);  // text: everything beyond one rank each

// Returns "measured", or "emulated" if links are.
std::string basis_of(const trainer::TrainOptions& options);
core::RunRecord run_record(const TrainFlags& flags);
// The record of a program that runs such steps on at most `ranks` ranks; emulated if links join them.
core::RunRecord run_record(const program::Invocation& flags, const trainer::TrainOptions& options, int ranks);

// Collects a run's events as they happen and can make a record at any time. Steps of a long run are thinned out
// to at most 2000.
class TrainingLog {
 public:
  TrainingLog(const TrainFlags& flags, double peak_flops) : flags_(flags), peak_flops_(peak_flops) {}

  void add_step(const trainer::StepReport& report, const schedules::StepTimeline& timeline);
  void add_validation(std::int64_t step, double loss) { validations_.push_back({step, loss}); }

  bool has_timed_step() const { return !timed_.empty(); }
  // The last timed steps; a record has the parts and timeline of the step with the median time.
  struct Timed {
    trainer::StepReport report;
    schedules::StepTimeline timeline;
  };
  const Timed& typical() const;
  const std::vector<Timed>& timed() const { return timed_; }
  // Callable once there is a step with times; validations are not included.
  core::TrainingRecord record(const core::RunRecord& run, const schedules::Step& step, const std::string& data) const;
  void add_validations(core::TrainingRecord& record, double unigram_nats, double bigram_nats) const;

 private:
  const TrainFlags& flags_;
  const double peak_flops_;
  std::vector<core::TrainingStepRecord> steps_;
  std::int64_t every_ = 1;  // keeps every N-th step
  std::vector<core::ValidationPoint> validations_;
  std::vector<Timed> timed_;  // the last few
};

// mini_train --predict: the simulated time of a step on a machine, printed before the run and with the measured time.

class PredictedStep {
 public:
  // Throws a usage Error if the machine of `flags.predict` does not exist or was measured with other threads per rank.
  explicit PredictedStep(const TrainFlags& flags);

  // Text before the run: the step's time, and how many of its kernels have measured times.
  std::string text() const;

  // The prediction compared with a step that ran, and the causes of the largest gap. `timeline` has communication while
  // its bytes move (when_bytes_move()).
  core::PredictedRecord record(const schedules::Step& step, const schedules::StepTimeline& timeline,
                               double step_ms) const;

 private:
  const TrainFlags& flags_;
  simulator::Machine machine_;
  int kernels_ = 0;           // distinct kernel shapes of the step
  int measured_kernels_ = 0;  // those with measured times
  simulator::Prediction made_;
};

// One line per part, and the causes of the largest gap.
std::string text_of(const core::PredictedRecord& predicted);

}  // namespace lockstep::mini_train
