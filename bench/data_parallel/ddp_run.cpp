#include "bench/data_parallel/ddp.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bench/data_parallel/checks.h"
#include "bench/data_parallel/step_rank.h"
#include "bench/mini_train/report.h"
#include "bench/step/part.h"
#include "core/statistics.h"
#include "schedules/step/breakdown.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::parallel_bench {

namespace {

std::vector<double> as_ms(std::vector<double> us) {
  for (double& sample : us) sample /= 1e3;
  return us;
}

}  // namespace

std::vector<double> DdpResult::samples_ms(step_bench::Mode mode) const {
  return as_ms(part.times.samples(mode, step_bench::Direction::forward));
}

std::vector<double> DdpResult::exposed_samples_ms() const {
  return as_ms(part.times.exposed(step_bench::Mode::overlapped, step_bench::Direction::forward));
}

core::Estimate DdpResult::exposed() const {
  const std::vector<double> samples = exposed_samples_ms();
  const core::Estimate found = core::estimate({&samples, 1}, [](auto medians) { return medians[0]; });
  return found.within(0, std::max(found.high, communication_ms()));
}

core::Estimate DdpResult::hidden() const {
  const std::vector samples{samples_ms(step_bench::Mode::exchanges), exposed_samples_ms(), backward_ms};
  return core::estimate(samples,
                        [](auto medians) { return (medians[0] - medians[1]) / std::min(medians[0], medians[2]); })
      .within(0, buckets == 1 ? 0 : 1);
}

std::string DdpResult::wrong() const {
  if (part.wrong() != 0) return fmt::format("{} elements of gradients or weights differ", part.wrong());
  if (part.sent_as_formula()) return "";
  return fmt::format("{:.0f} bytes sent per rank, but the formula has {:.0f}", sent_bytes(), formula_bytes());
}

namespace {

using schedules::Step;
using schedules::StepTimeline;
using step_bench::Direction;
using step_bench::Mode;
using trainer::TrainWorker;

// State that a row's ranks share within one process: set up before they start, or by rank 0 between two barriers.
struct Shared {
  const trainer::TrainOptions& options;
  const DdpSteps& steps;
  const trainer::Corpus& corpus;
  const Tamper& tamper;
  std::optional<SerialSum> serial = {};
  DdpResult result = {};                     // rank 0's
  std::vector<StepTimeline> timelines = {};  // the overlapped steps', by round
};

// The order of a round, whose last mode completes it.
constexpr std::array kModes{Mode::kernels, Mode::exchanges, Mode::overlapped, Mode::serial};
constexpr std::array kServed{Mode::overlapped, Mode::serial};

// A rank's step in each mode: kernels alone, collectives alone, buckets reduced during the backward, and after it.
class DdpPart final : public StepPart {
 public:
  DdpPart(Shared& shared, const StepRow& row, backends::MeshRank& mesh, const trainer::ChannelMap& channels)
      : StepPart(row, shared.corpus, mesh, channels), shared_(shared), start_(masters_of(rank_.model())) {
    for (const Mode mode : kModes) {
      of(mode).worker = std::make_unique<TrainWorker>(step_of(mode), rank_.model());
      rank_.rehearse(*of(mode).worker, step_of(mode));
    }
  }

  void begin(Mode mode) override {
    start_again(rank_.model(), start_);
    prepare(mode);
  }
  step_bench::Spent run(Mode mode, Direction /*direction*/) override {
    of(mode).spans = rank_.run(*of(mode).worker, step_of(mode));
    return {};
  }
  // Takes the results that all later runs must reproduce.
  void begin_timed(step_bench::Findings& findings) override {
    begin(Mode::serial);
    rank_.meet();
    run(Mode::serial, Direction::forward);
    shared_.tamper.reference(rank_.model());
    gradients_ = gradients_of(rank_.model());
    masters_ = masters_of(rank_.model());
    if (is_first() || shared_.options.mpi != nullptr) sum_all_shares();  // other processes cannot see rank 0's
    rank_.mesh().messages.barrier();
    const SerialSum::Found found = shared_.serial->compare(gradients_);
    findings.wrong += found.beyond;
    findings.add_difference(found.most_of_bound);
    if (is_first()) shared_.result.relative_error = found.relative_error;
  }

  void check(Mode mode, Direction /*direction*/, step_bench::Findings& findings) override {
    if (gradients_.empty()) return;  // an untimed round
    if (mode == Mode::overlapped) shared_.tamper.overlapped(rank_.model());
    findings.wrong += differing(gradients_of(rank_.model()), gradients_);
    findings.wrong += differing(masters_of(rank_.model()), masters_);
  }

  void keep(Mode mode) override {
    if (mode == kModes.back()) return add_round();
    of(mode).timeline = trainer::gather_timeline(rank_.mesh(), of(mode).worker->start_ns(), of(mode).spans);
  }

  std::array<double, 2> formula_bytes() override {
    double bytes = 0;
    for (const std::int64_t elems : elems_of_buckets(rank_.model())) bytes += wire_bytes_of(elems);
    return {bytes, 0};
  }

 private:
  void prepare(Mode mode) override { rank_.begin(*of(mode).worker, 1); }

  struct InMode {
    std::unique_ptr<TrainWorker> worker;
    std::vector<schedules::TaskSpan> spans;  // its last run's
    StepTimeline timeline;                   // likewise
  };
  InMode& of(Mode mode) { return in_mode_[static_cast<std::size_t>(mode)]; }
  const Step& step_of(Mode mode) const {
    const DdpSteps& steps = shared_.steps;
    if (step_bench::is_whole(mode)) return mode == Mode::overlapped ? steps.overlapped : steps.one_by_one;
    return mode == Mode::kernels ? steps.kernels : steps.collectives;
  }

  // Runs every rank's share of the batch in one process, share by share, without collectives.
  void sum_all_shares() {
    const GradientWire wire{shared_.options.layout.gradient, shared_.options.layout.compression};
    shared_.serial.emplace(elems_of_buckets(rank_.model()), wire);
    for (std::int32_t replica = 0; replica < shared_.options.layout.dp; ++replica) {
      start_again(rank_.model(), start_);
      rank_.load(replica);
      prepare(Mode::kernels);
      run(Mode::kernels, Direction::forward);
      shared_.serial->add(gradients_of(rank_.model()));
    }
    rank_.load(rank_.rank());
  }

  void add_round() {
    if (!is_first()) return;
    const StepTimeline& kernels = of(Mode::kernels).timeline;
    DdpResult& result = shared_.result;
    result.backward_ms.push_back(backward_ms(shared_.steps.kernels, kernels));
    result.predicted_ms.push_back(predicted_ms(shared_.steps, kernels, of(Mode::exchanges).timeline));
    const std::vector<double> ready = ready_ms(shared_.steps, kernels);
    result.in_planned_order = result.in_planned_order && std::is_sorted(ready.begin(), ready.end());
    shared_.timelines.push_back(of(Mode::overlapped).timeline);
  }

  // Bytes that a rank sends for a bucket.
  double wire_bytes_of(std::int64_t elems) const {
    const trainer::TrainOptions& options = shared_.options;
    if (options.layout.compression.given()) {
      return static_cast<double>(workload::wire_bytes(options.layout.compression, elems, options.layout.dp));
    }
    const auto elem_bytes = static_cast<std::int64_t>(core::size_of(options.layout.gradient));
    return schedules::wire_bytes(schedules::Comm::all_reduce, elems * elem_bytes, options.layout.dp);
  }

  Shared& shared_;
  std::array<InMode, step_bench::kNumModes> in_mode_;
  const std::vector<float> start_;
  std::vector<float> gradients_;  // the reference's
  std::vector<float> masters_;
};

void count(const Step& overlapped, DdpResult& result) {
  result.step = overlapped;
  for (const schedules::Task& task : result.step.of_rank.front().tasks) {
    if (task.lane != schedules::Lane::reduce) continue;
    ++result.buckets;
    result.gradient_bytes += task.amount;
  }
}

// Calls body(row, make) with a row's ranks and what makes the part of each.
template <class Body>
DdpResult with_row(const StepFlags& flags, const trainer::TrainOptions& options, const Tamper& tamper,
                   const Body& body) {
  const DdpSteps steps = ddp_steps(options);
  const std::array<const Step*, 2> all{&steps.overlapped, &steps.one_by_one};
  const auto corpus = mini_train::corpus_of(options);
  Shared shared{options, steps, corpus, tamper};
  count(steps.overlapped, shared.result);
  const StepRow row{flags, options, steps.made, all};
  const auto make = [&](backends::MeshRank& mesh, const trainer::ChannelMap& channels) {
    return std::make_unique<DdpPart>(shared, row, mesh, channels);
  };
  body(row, make, shared);
  return std::move(shared.result);
}

std::string name_of_row(const trainer::TrainOptions& row) {
  std::string name = mini_train::step_name(row) + "/buckets:" + cap_text(row.layout) + "MiB";
  if (row.layout.compression.given()) name += fmt::format("/{}", text_of(row.layout.compression));
  return row.link ? name + "/links:" + link_text(row.link) : name;
}

}  // namespace

DdpResult run_ddp(const StepFlags& flags, const trainer::TrainOptions& row, const Tamper& tamper) {
  return with_row(flags, row, tamper, [](const StepRow& ranks, const MakeStepPart& make, Shared& shared) {
    auto part = measure_step(ranks, kModes, make);
    if (!part) return;
    const std::size_t median = step_bench::median_round(part->times.samples(Mode::overlapped, Direction::forward));
    shared.result.timeline = std::move(shared.timelines[median]);
    shared.result.part = std::move(*part);
  });
}

void serve_ddp(const StepFlags& flags, const trainer::TrainOptions& row) {
  const std::string name = name_of_row(row);
  with_row(flags, row, {}, [&](const StepRow& ranks, const MakeStepPart& make, Shared& /*shared*/) {
    serve_step(ranks, kServed, std::vector{name + "/overlapped", name + "/one by one"}, make);
  });
}

}  // namespace lockstep::parallel_bench
