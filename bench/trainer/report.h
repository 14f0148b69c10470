// Output of mini_train: text and records.
#pragma once

#include <string>
#include <vector>

#include "bench/trainer/flags.h"
#include "core/record.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {

// The text that mini_train prints.

std::string models_text();
// "dp 2, tp 1, pp 1, ZeRO 3".
std::string layout_text(const workload::Layout& layout);
std::string heading_text(const TrainFlags& flags, const std::string& data, double peak_flops);
// Describes the GPUs, and MPI's thread level with its consequences; empty without either. Also used by other programs
// that run training steps.
std::string place_text(const trainer::TrainOptions& options);
// One line per step. `exposed`: share of the step in which the average rank's kernels wait for communication; below 0:
// unknown.
std::string step_text(const TrainFlags& flags, const trainer::StepReport& report, double peak_flops, double exposed);
// Warns that the peak is too low if some step reached more than 100 % of it; otherwise empty.
std::string mfu_warning(const TrainFlags& flags, double most_mfu, double peak_flops);
// Breakdown of a step's time, averaged over the ranks.
std::string breakdown_text(const std::vector<schedules::Breakdown>& ranks);
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

core::ModelRecord model_record(const trainer::TrainOptions& options);
core::LayoutRecord layout_record(const workload::Layout& layout);  // text: everything beyond one rank each

// Returns "measured", or "emulated" if links are.
std::string basis_of(const trainer::TrainOptions& options);
core::RunRecord run_record(const TrainFlags& flags);

// Collects a run's events as they happen and can make a record of them at any time. Steps of a long run are thinned out
// to at most 2000.
class TrainingLog {
 public:
  TrainingLog(const TrainFlags& flags, double peak_flops) : flags_(flags), peak_flops_(peak_flops) {}

  void add_step(const trainer::StepReport& report, const schedules::StepTimeline& timeline);
  void add_validation(std::int64_t step, double loss) { validations_.push_back({step, loss}); }

  bool has_timed_step() const { return !timed_.empty(); }
  // The last timed steps; the parts and timeline of a record are those of the step with the median time.
  struct Timed {
    trainer::StepReport report;
    schedules::StepTimeline timeline;
  };
  const Timed& typical() const;
  // Callable once there is a step with times; validations are left out.
  core::TrainingRecord record(const core::RunRecord& run, const schedules::Step& step, const std::string& data) const;
  void add_validations(core::TrainingRecord& record, double unigram_nats, double bigram_nats) const;

 private:
  const TrainFlags& flags_;
  const double peak_flops_;
  std::vector<core::TrainingStepRecord> steps_;
  std::int64_t every_ = 1;  // steps between two that are kept
  std::vector<core::ValidationPoint> validations_;
  std::vector<Timed> timed_;  // the last few
};

}  // namespace lockstep::mini_train
