// scaling: its flags, the order in which tasks are timed, and a step composed of such times.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/program/columns.h"
#include "bench/program/place.h"
#include "bench/program/program.h"
#include "collectives/backends/mesh.h"
#include "core/record.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "schedules/interpreter/interpreter.h"
#include "schedules/step/step.h"
#include "simulator/engine/contended.h"
#include "trainer/data/corpus.h"
#include "trainer/train/options.h"
#include "workload/layout.h"

namespace lockstep::scaling {

// The order in which the tasks of a step are timed, in slots: the tasks of a slot run concurrently, and nothing else
// does.
//
// Every order of slots made here is valid for the step: a task's slot comes after the slots of all its dependences.
// Pieces are therefore timed in their place in the step, on the tensors of training.

struct RankTask {
  std::int32_t rank = 0;
  std::uint32_t task = 0;  // in RankStep::tasks
  friend bool operator==(const RankTask&, const RankTask&) = default;
};

// Kernels of different ranks and one collective, or one end of a message.
struct Slot {
  std::vector<RankTask> kernels;
  std::vector<RankTask> collective;  // one task per member
  std::vector<RankTask> other;  // a send, a receive, or a task that is not a kernel of the compute lane: at most one
  std::size_t size() const { return kernels.size() + collective.size() + other.size(); }
};

// Limits on the tasks that may share a slot.
struct Concurrency {
  std::int32_t kernels = 1;  // maximum number of ranks that compute at the same time
  // Lanes whose collectives overlap with kernels of their members: these have threads of their own.
  std::array<bool, schedules::kNumLanes> overlapping = {};
};

std::vector<Slot> slots_of(const schedules::Step& step, const Concurrency& concurrency);

// A StageWorker that starts a rank's tasks in slots: all tasks of a slot at the same moment, and none before
// the previous slot has ended on all ranks of this process.

// State shared by the ranks: numbers of tasks that have begun and ended since it was made.
struct SlotProgress {
  alignas(128) std::atomic<std::uint64_t> begun{0};
  alignas(128) std::atomic<std::uint64_t> ended{0};
};

// A rank's part of an order of slots.
struct RankSlots {
  struct Entry {
    std::uint64_t before = 0;  // tasks in earlier slots
    std::uint64_t with = 0;    // tasks in earlier slots and in its own
  };
  std::vector<Entry> of_task;
  std::uint64_t all = 0;  // tasks of a step, on all ranks
};
RankSlots rank_slots_of(const std::vector<Slot>& slots, const schedules::Step& step, std::int32_t rank);

class SlotWorker final : public schedules::StageWorker {
 public:
  // For one step, after `steps_before` others with the same `progress`. The arguments must outlive this. If work is
  // queued, a task has ended once the device is done with it.
  SlotWorker(schedules::StageWorker& worker, SlotProgress& progress, const RankSlots& mine, std::uint64_t steps_before,
             backends::MeshRank& mesh, std::chrono::milliseconds timeout)
      : worker_(worker),
        progress_(progress),
        mine_(mine),
        base_(steps_before * mine.all),
        mesh_(mesh),
        timeout_(timeout) {}

  bool begin(std::uint32_t task) override;
  bool ended(std::uint32_t task) override;
  void idle(int thread) override;
  void finish() override { worker_.finish(); }
  schedules::TaskSpan span_of(std::uint32_t task) const override { return worker_.span_of(task); }

 private:
  schedules::StageWorker& worker_;
  SlotProgress& progress_;
  const RankSlots& mine_;
  const std::uint64_t base_;
  backends::MeshRank& mesh_;
  const std::chrono::milliseconds timeout_;
};

// The time that each distinct piece of a step takes alone, and the step composed of such pieces.

// Tasks with the same key do the same work: microbatches and replicas do not count. Op, lane, stage, part, what; for
// tasks without a stage their rank or their group.
using PieceKey = std::tuple<schedules::Op, schedules::Lane, std::int32_t, std::int32_t, std::uint8_t, std::int32_t>;
PieceKey key_of(const schedules::Task& task, std::int32_t rank);

// Times of the pieces that ran in a slot.
struct SlotSpans {
  std::vector<std::pair<RankTask, schedules::TaskSpan>> kernels;
  std::vector<RankTask> collective;
  schedules::TaskSpan collective_span;  // from its last member's arrival to its end
  std::vector<std::pair<RankTask, schedules::TaskSpan>> other;
};
std::vector<SlotSpans> spans_of(const std::vector<Slot>& slots, const schedules::StepTimeline& timeline);

// Picoseconds of each distinct piece: medians, from steps in which every slot was one task or one collective.
class Prices {
 public:
  void add(const schedules::Step& step, const std::vector<SlotSpans>& slots);
  std::int64_t of(const schedules::Task& task, std::int32_t rank) const;
  std::size_t size() const { return samples_.size(); }

 private:
  std::map<PieceKey, std::vector<double>> samples_;
};

// The same step with amounts in picoseconds: the times of kernels and collectives, and for a send its time together
// with its receive, which itself takes none.
schedules::Step priced(schedules::Step step, const Prices& prices);

// Slowdowns: time of a piece while others run over its time alone. Measured in pairs, applied in virtual time.

// A median over samples weighted by their length.
class Factor {
 public:
  // Adds a piece that takes `alone_ps` alone and took `took_ps`, of which other pieces ran during `shared_ps`. Samples
  // with little overlap are uninformative and dropped.
  void add(std::int64_t alone_ps, std::int64_t took_ps, std::int64_t shared_ps);
  double value() const { return value_; }  // 1 without samples
  std::size_t samples() const { return samples_.size(); }

 private:
  std::vector<std::pair<double, double>> samples_;  // factor, weight; sorted
  double value_ = 1;
};

// Kernels that share a slowdown: forward, backward (and its halves), recomputation, the optimizer.
schedules::Op family_of(schedules::Op op);

struct Slowdowns {
  // Factor of a kernel by the number of ranks that compute, its own included; by family.
  std::map<schedules::Op, std::map<std::int32_t, Factor>> kernel;
  // Additional factor of a kernel while a collective of its rank runs.
  std::map<schedules::Op, Factor> kernel_with_collective;
  // Factor of a collective while all of its members compute.
  std::array<Factor, schedules::kNumLanes> collective;

  // Interpolates linearly between measured numbers of ranks, from 1 for one rank.
  double of_kernel(schedules::Op op, std::int32_t computing, bool with_collective) const;
  // `share` of the members compute.
  double of_collective(schedules::Lane lane, double share) const;
};

// Takes samples from slots of several kernels, and of a collective with kernels.
void add_samples(Slowdowns& slowdowns, const schedules::Step& step, const std::vector<SlotSpans>& slots,
                 const Prices& prices);

// In the form that play_contended() takes.
simulator::Slowdown slowdown_of(const schedules::Step& step, const Slowdowns& slowdowns,
                                const simulator::LanesBeside& overlapping);

// A layout of more data-parallel ranks than this machine has, simulated from the pieces of the same layout with two.
//
// Kernels do the same work on the same number of sequences per rank, whatever the number of replicas; the optimizer of
// shards does its share. Collectives over replicas grow like the bytes that a rank of a ring sends, (n - 1) / n of the
// payload: latencies that grow with n are ignored. Each rank is assumed to have cores of its own.

// `measured`: the step of `two`, which equals `many` except for dp, with prices of its pieces. `step`: of `many`,
// or of `two`, whose replicas then represent the replicas of `many`, as all do the same.
schedules::Step priced_beyond(schedules::Step step, const workload::Layout& many, const schedules::Step& measured,
                              const workload::Layout& two, const Prices& prices);

// Bytes of a payload that each of n ranks sends, relative to each of m ranks.
double ring_growth(std::int64_t n, std::int64_t m);

// Times a layout's step: as it trains, one piece at a time, and chosen pieces concurrently.

struct Effort {
  int rounds = 5;        // maximum; each round has one step of each kind
  double seconds = 1e9;  // no further round begins after that, but the first always runs
};

struct LayoutTimes {
  schedules::Step step;
  simulator::LanesBeside overlapping = {};
  std::vector<double> samples_ms;            // steps as they train, on the slowest rank
  schedules::StepTimeline measured;          // the step with the median time; communication while its bytes move
  std::optional<core::EnergyRecord> energy;  // energy of steps as they train
  std::string energy_text;                   // one line, also if nothing was measured
  double around_ms = 0;                      // time of this step outside of its tasks: tokens, zeroed gradients
  Prices prices;
  simulator::Simulation isolated;
  simulator::Simulation contended;
  Slowdowns slowdowns;
};

// `options` must have been checked; their number of steps is ignored. Steps of the different kinds alternate, after a
// warm-up.
LayoutTimes time_layout(const trainer::TrainOptions& options, const trainer::Corpus& corpus, const Effort& effort);

// The parts of a step, mean over ranks; they sum to the step. The last is "around", the time outside of its tasks.
core::NamedNumbers parts_of(const schedules::Step& step, const schedules::StepTimeline& timeline, double around_ms);

struct StepSample {
  double ms = 0;
  core::NamedNumbers parts_ms = {};
};

// The median one of this many steps as they train, after a warm-up.
StepSample time_step(const trainer::TrainOptions& options, const trainer::Corpus& corpus, int steps);

// How much of the ideal throughput a layout reaches, and what takes the rest: from rounds in each of which one rank and
// the layout train.

struct Ideal {
  double work = 1;            // tokens of the layout's step relative to one rank's
  double speedup = 1;         // ranks that have a core or a GPU of their own
  bool shares_cores = false;  // there are more ranks than that
  bool can_exceed = false;    // a rank's kernels differ from one rank's, and may be faster for their work
  bool simulated = false;     // one sample each
  double others = 0;          // share of the cores that other programs used
};

// With the layout's verdict, and what would decide it. Losses are shares of the layout's step; with the value they add
// up to 1.
using Efficiency = core::EfficiencyRecord;
using Loss = core::LossRecord;
inline bool is_decided(const Loss& loss) {
  return loss.interval.low > 0 || loss.interval.high < 0;
}

// 95 % interval of the median: the range of fewer than 10 samples, else its bootstrap interval.
core::Interval interval_of(std::span<const double> samples);

// `one` and `many`: the steps of one rank and of the layout in each round.
Efficiency efficiency_of(std::span<const StepSample> one, std::span<const StepSample> many, const Ideal& ideal);

// The command line of scaling.

enum class Mode : std::uint8_t { weak, strong };
inline const char* name_of(Mode mode) {
  return mode == Mode::weak ? "weak" : "strong";
}

struct ScalingFlags : program::Invocation {
  std::vector<Mode> modes{Mode::weak};
  std::vector<std::string> layouts;      // "dp=2,zero=1"; with `ranks` each grows to these
  std::vector<int> ranks;                // numbers of ranks of each curve; empty: no curve
  std::int32_t simulate_to = 0;          // ranks up to which curves are simulated; 0: they are not
  std::string machine;                   // described machine of simulated layouts; empty: this one's pieces
  std::vector<std::string> simulated;    // layouts that are only simulated
  int rounds = 10;                       // in each of which all layouts train
  std::vector<std::string> train_words;  // flags of mini_train that all layouts share
  program::PlaceFlags place;
  std::int64_t batch = 8;  // sequences per step: of one rank (weak), of all (strong)
  Effort effort;
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ScalingFlags parse_scaling_flags(int argc, const char* const* argv);

// Some layouts of each kind for this machine's cores.
std::vector<std::string> default_layouts();

// The layout with this many ranks, by its number of replicas; one rank is always without parallelism. Throws a usage
// Error.
std::string grown_layout(const ScalingFlags& flags, const std::string& layout, int ranks);

// One layout's options: mini_train's flags, the layout as workload::parse_layout() reads it (in --dtype, unless it has
// one), and a batch such that the sequences of a step grow with the ranks or stay constant. Throws a usage Error that
// names the layout and the problem.
trainer::TrainOptions options_of(const ScalingFlags& flags, const std::string& layout, Mode mode);

// The layout from which a simulated one is made: two replicas with the same work per rank.
trainer::TrainOptions two_replicas_of(trainer::TrainOptions many);

// Results of a layout, as a row of the table and as a record.

// Conversion of a whole step to its record, and back.
core::StepTimeRecord step_record(const char* mode, const std::vector<double>& samples_ms,
                                 const core::NamedNumbers& parts_ms);
StepSample sample_of(const core::StepTimeRecord& step);

struct Result {
  Mode mode = Mode::weak;
  std::string name;  // "dp=2,zero=1"
  trainer::TrainOptions options;
  bool oversubscribed = false;
  double ideal_speedup = 1;
  std::optional<LayoutTimes> times = {};  // times of its pieces
  std::vector<StepSample> rounds = {};    // empty: simulated
  std::optional<Efficiency> efficiency = {};
  // Predicted and measured steps. Parts are the mean over ranks and sum to the step; "around" is 0 in predictions.
  std::vector<core::StepTimeRecord> steps = {};

  bool simulated() const { return rounds.empty(); }
  const core::StepTimeRecord& step(std::string_view of_mode) const {
    return *std::find_if(steps.begin(), steps.end(), [&](const auto& one) { return one.mode == of_mode; });
  }
  std::vector<double> rounds_ms() const {
    std::vector<double> all_ms;
    for (const StepSample& sample : rounds) all_ms.push_back(sample.ms);
    return all_ms;
  }
  double step_ms() const { return simulated() ? sample_of(steps.back()).ms : core::median(rounds_ms()); }
  double tokens_per_s() const { return static_cast<double>(options.tokens_per_step()) / step_ms() * 1e3; }
};

std::string heading_text(const ScalingFlags& flags, const trainer::TrainOptions& options, const std::string& data,
                         int most_ranks, int cores);
// `measured`: the measured layouts, with which simulated ones are compared.
std::vector<program::Column<Result>> columns(const std::vector<Result>& measured);
// The step compared with the sum of its pieces, and the slowdowns of pieces that run concurrently.
std::string pieces_text(const Result& result);

// `machine`: on which it was simulated; empty: from pieces.
core::StepRecord scaling_record(const core::RunRecord& run, const Result& result, const std::string& machine);

}  // namespace lockstep::scaling
