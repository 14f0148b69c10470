// One rank of a benchmark that times training steps: flags, state, and the timed step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/mini_train/flags.h"
#include "bench/program/place.h"
#include "bench/program/program.h"
#include "bench/step/part.h"
#include "collectives/backends/mesh.h"
#include "trainer/data/corpus.h"
#include "trainer/step/train_step.h"
#include "trainer/train/options.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/train.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::parallel_bench {

// Flags of the benchmarks that time training steps: the model, its ranks, and how long to measure.

inline constexpr int kMostReplicas = 64;

// A flag with a list of values for a field of the layout: each row that has a use for the flag is run with each value.
struct SweptFlag : mini_train::LayoutFlag {
  bool (*applies)(const workload::Layout& row) = [](const workload::Layout&) { return true; };
};
struct Sweep {
  const SweptFlag* flag;
  std::vector<program::FlagValue> values;
};

struct StepFlags : program::Invocation {
  std::string model = "micro";    // --model; other flags override its fields
  trainer::TrainOptions options;  // all options but those that are swept
  mini_train::SequenceFlags sequences;
  std::vector<Sweep> sweeps;  // in the order of nesting; the first is of data-parallel ranks
  bool all_ranks = true;      // true: all ranks of mpirun; false: the number given by --dp
  program::PlaceFlags place;
  std::int64_t rounds = 10;        // maximum number of timed runs of each way
  std::int64_t warmup_rounds = 3;  // untimed runs before them, in which kernels choose their implementation
  double budget_s = 30;            // per row; 0: no limit
  bool serve = false;              // be a worker for one row (bench/serve/orders.h) instead of measuring
};

void declare_step_flags(program::CommandLine& line, StepFlags& flags);
void read_step_flags(const program::CommandLine& line, StepFlags& flags);
void begin_step_flags(int argc, const char* const* argv, StepFlags& flags);
// Adds the lists of these flags, given or by default.
void read_sweeps(const program::CommandLine& line, std::span<const SweptFlag> table, StepFlags& flags);
// Reads a benchmark's command line: the flags above, and under `group` fields of the layout, swept fields, and flags of
// its own. `about`: what it does, after its name.
template <class Flags, class OfLayout, class Swept, class Own>
Flags parse_step_line(int argc, const char* const* argv, const char* about, const char* group,
                      const OfLayout& of_layout, const Swept& swept, const Own& own) {
  Flags flags;
  begin_step_flags(argc, argv, flags.step);
  program::CommandLine line(flags.step.program + about);
  declare_step_flags(line, flags.step);
  declare_all(line, of_layout, group);
  declare_all(line, swept, group);
  declare_all(line, own, group);
  line.parse(argc, argv);
  read_step_flags(line, flags.step);
  read_all(line, of_layout, flags.step.options.layout);
  read_sweeps(line, swept, flags.step);
  read_all(line, own, flags);
  return flags;
}
// The layouts of all rows.
std::vector<workload::Layout> swept_layouts(const StepFlags& flags);
// A row of these benchmarks, without checks of its own.
trainer::TrainOptions with_layout(const StepFlags& flags, const workload::Layout& layout);

// Sets the ranks up in the world that --transport names; nullptr: without MPI.
void place_in(transports::MpiWorld* mpi, StepFlags& flags);
// The main program: run(flags, print) there. Returns the exit status.
template <class Flags>
int run_placed(const char* program, int argc, char** argv, Flags (*parse)(int, const char* const*),
               int (*run)(const Flags&, const program::Print&)) {
  return program::exit_status_of(program, [&] {
    Flags flags = parse(argc, argv);
    return program::run_in_place(flags.step.place, argc, argv, flags.step.options.timeout,
                                 [&](transports::MpiWorld* mpi) {
                                   place_in(mpi, flags.step);
                                   return run(flags, program::print_of(mpi));
                                 });
  });
}

// A rank that runs the Steps of one model repeatedly on the same tokens, with the trainer's worker and its interpreter.

class StepRank {
 public:
  // Called on the rank's own thread. The arguments must outlive this.
  StepRank(const trainer::TrainOptions& options, const trainer::TrainStep& train_step, const trainer::Corpus& corpus,
           backends::MeshRank& mesh, const trainer::ChannelMap& channels);

  // All ranks call it together before a step is run (RankSteps::rehearse).
  void rehearse(trainer::TrainWorker& worker, const schedules::Step& step);

  // Loads the tokens of data-parallel rank `replica`; at the start they are this rank's own.
  void load(std::int32_t replica);

  // Zeroes the gradients. `number`: of the optimizer step, from 1.
  void begin(trainer::TrainWorker& worker, std::int64_t number, bool rehearses = false);
  // Runs a step that has begun: all ranks together, unless it has no collectives.
  std::vector<schedules::TaskSpan> run(trainer::TrainWorker& worker, const schedules::Step& step) {
    return steps_.run(step, worker);
  }
  // After begin(): waits for what it has queued, and for the other ranks.
  void meet() {
    mesh_.settle();
    mesh_.messages.barrier();
  }

  trainer::RankModel& model() { return steps_.model(); }
  backends::MeshRank& mesh() { return mesh_; }
  std::int32_t rank() const { return steps_.model().rank(); }

 private:
  const trainer::TrainOptions& options_;
  const trainer::Corpus& corpus_;
  backends::MeshRank& mesh_;
  trainer::RankSteps steps_;
  struct Batch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
  };
  std::vector<Batch> batches_;  // one microbatch each
};

// A row of these benchmarks: a model's steps on their ranks.
struct StepRow {
  const StepFlags& flags;
  const trainer::TrainOptions& options;
  const trainer::TrainStep& made;
  std::span<const schedules::Step* const> steps;
};

// The step of one rank.
class StepPart : public step_bench::TimedPart {
 public:
  StepPart(const StepRow& row, const trainer::Corpus& corpus, backends::MeshRank& mesh,
           const trainer::ChannelMap& channels)
      : rank_(row.options, row.made, corpus, mesh, channels) {}

  std::span<const step_bench::Direction> directions() const final {
    return std::span(step_bench::kDirections).first(1);
  }
  void serve(step_bench::Mode mode) final {
    prepare(mode);
    rank_.meet();
    run(mode, step_bench::Direction::forward);
  }

 protected:
  virtual void prepare(step_bench::Mode mode) = 0;  // begins the step
  bool is_first() const { return rank_.rank() == 0; }

  StepRank rank_;
};
using MakeStepPart =
    std::function<std::unique_ptr<StepPart>(backends::MeshRank& mesh, const trainer::ChannelMap& channels)>;
// Measures the step in these modes, in this order. Empty in processes without rank 0.
std::optional<step_bench::PartResult> measure_step(const StepRow& row, std::span<const step_bench::Mode> modes,
                                                   const MakeStepPart& make);
// Serves it instead. `names` are in the order of the modes.
void serve_step(const StepRow& row, std::span<const step_bench::Mode> modes, const std::vector<std::string>& names,
                const MakeStepPart& make);

// With --serve, serves the only row to the gate and returns true. Rows that have too little memory are refused before
// anything is printed.
bool serves(const StepFlags& flags, const std::vector<trainer::TrainOptions>& rows,
            void (*serve)(const StepFlags& flags, const trainer::TrainOptions& row));

// The state of a rank's model that a step changes: taken out for comparison, and put back to start again. Parameters
// are whole (ZeRO stage 0), there is one stage, and nothing is queued on the rank's device.

// Elements of each bucket as reduced, padding included.
std::vector<std::int64_t> elems_of_buckets(trainer::RankModel& model);
std::vector<float> gradients_of(trainer::RankModel& model);  // 16-bit gradients are widened

// Master weights in memory order, which is the same on all ranks.
std::vector<float> masters_of(trainer::RankModel& model);

// Resets to the state before the first step: weights are `masters`, moments are zero, and no error feedback is pending.
void start_again(trainer::RankModel& model, const std::vector<float>& masters);

}  // namespace lockstep::parallel_bench
