// The engine of benchmarks that time a part of a training step on its ranks: a layer, attention, a mixture of experts,
// a whole step. A benchmark supplies what one rank runs (TimedPart); the engine sets the ranks up, runs the part in all
// of its modes in every round, checks and counts what it did, and collects the results of all ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/program/columns.h"
#include "bench/program/place.h"
#include "bench/program/program.h"
#include "bench/step/pass.h"
#include "bench/step/sent_counter.h"
#include "bench/step/times.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/paced_link.h"
#include "core/record.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"

namespace lockstep::step_bench {

// Flags that all of these benchmarks have.
struct PartFlags : program::Invocation {
  std::optional<transports::LinkSpec> link;
  int threads = 1;
  int rounds = 9;
  int warmup_rounds = 2;
  std::chrono::milliseconds timeout{60'000};
  program::PlaceFlags place;
  transports::MpiWorld* mpi = nullptr;  // --transport mpi, once it is initialised
  bool all_ranks = true;                // true: all ranks of mpirun; false: the number that a flag gives
  bool serve = false;                   // be a worker for one part (bench/serve/orders.h) instead of measuring
};

// --link, --threads, --rounds, --warmup, --timeout and --json, with these numbers of rounds as defaults.
std::vector<program::FlagOf<PartFlags>> part_flags(const char* rounds, const char* warmup_rounds);
// A value of --dtype: f32 or bf16.
core::DType dtype_of(const program::FlagValue& value);
// Reads --device and --transport. Throws a usage Error if they conflict with the other flags, or a device is not here.
void read_part_place(const program::CommandLine& line, PartFlags& flags);

// Reads a benchmark's command line: its flags of `layers` in a group of that name, and with those of its `run` the ones
// above. Without `places` its ranks are local threads, and --device and --transport are left out.
struct PartLine {
  const char* layers;
  const char* rounds;
  const char* warmup_rounds;
  bool places = true;
  bool serves = false;  // has --serve
};
template <class Layers, class Run, class Flags>
void parse_part(const PartLine& of, program::CommandLine& line, int argc, const char* const* argv, const Layers& layers,
                const Run& run, Flags& flags) {
  constexpr const char* kRun = "Ranks and times";
  declare_all(line, layers, of.layers);
  declare_all(line, run, kRun);
  const auto common = part_flags(of.rounds, of.warmup_rounds);
  declare_all(line, common, kRun);
  if (of.places) declare_place(line, kRun);
  if (of.serves) {
    line.add_switch("--serve", flags.serve,
                    "worker mode for ci/gate.py: run the layers requested on standard input (bench/serve/orders.h)",
                    kRun);
  }
  line.parse(argc, argv);
  read_all(line, layers, flags);
  read_all(line, run, flags);
  read_all(line, common, flags);
  if (of.places) read_part_place(line, flags);
}
// For parts of at most `ranks` ranks.
core::RunRecord part_run_record(const PartFlags& flags, int ranks, std::uint64_t seed);
// "through this machine's memory", "2 GPUs from cuda:0 on; ...".
std::string place_text(const PartFlags& flags, int ranks);

// The resources of one rank for its part: the threads or the stream of its kernels, memory, and collectives whose bytes
// are counted. The rank's own thread makes and uses it.
class PartSite {
 public:
  // Exchanges of all channels share a thread, or the stream of the first channel.
  PartSite(const PartFlags& flags, int num_ranks, backends::MeshRank& rank);

  int index() const { return rank.messages.rank(); }

  backends::MeshRank& rank;
  kernels::ThreadPool pool;

 private:
  std::shared_ptr<kernels::CudaContext> cuda_;  // if work is queued

 public:
  const kernels::Context where;
  parallel::Memory memory;
  const parallel::Workspace workspace{memory, where};
  PassRunner runner;  // destroyed first
};

// Results of a rank's checks.
struct Findings {
  std::int64_t wrong = 0;   // elements
  std::int64_t unlike = 0;  // elements whose bits differ from the first pass
  double worst = 0;         // largest difference; NaN if there is one

  void add_difference(double difference) {
    if (worst == worst && !(difference <= worst)) worst = difference;  // a NaN stays
  }
};

// A part of a step on one rank: a forward and a backward, or a single pass (Direction::forward), which a rank runs in
// several modes. All ranks construct theirs together.
class TimedPart {
 public:
  TimedPart() = default;
  virtual ~TimedPart() = default;
  TimedPart(const TimedPart&) = delete;
  TimedPart& operator=(const TimedPart&) = delete;

  virtual std::span<const Direction> directions() const { return kDirections; }
  // Before the first pass of a mode and after the last, both untimed.
  virtual void begin(Mode /*mode*/) {}
  virtual void end(Mode /*mode*/) {}
  // Timed. Returns where the time went.
  virtual Spent run(Mode mode, Direction direction) = 0;
  // A call that a worker of the gate times.
  virtual void serve(Mode mode);
  // After the untimed rounds.
  virtual void begin_timed(Findings& /*findings*/) {}
  // After each timed pass and its check.
  virtual void keep(Mode /*mode*/) {}
  // After each pass of kernels and exchanges; a check of both directions may wait for the backward.
  virtual void check(Mode /*mode*/, Direction /*direction*/, Findings& /*findings*/) {}
  // The share to which all time counts that is in no other share, if there is one: waits for exchanges among it.
  virtual std::optional<std::size_t> remaining_share() const { return std::nullopt; }

  virtual std::int64_t memory_bytes() const { return 0; }       // after all passes
  virtual std::array<double, 2> formula_bytes() { return {}; }  // that this rank sends in a pass, by direction
  virtual std::vector<double> figures() { return {}; }          // others for the results; equally many on each rank
};

// A part as passes of tasks.
class PassPart : public TimedPart {
 public:
  explicit PassPart(PassRunner& runner) : runner_(runner) {}
  virtual const Pass& pass(Mode mode, Direction direction) const = 0;
  Spent run(Mode mode, Direction direction) final { return runner_.run(pass(mode, direction), mode); }
  std::optional<std::size_t> remaining_share() const override { return static_cast<std::size_t>(TaskKind::exchange); }

 private:
  PassRunner& runner_;
};

// Results of a part, the same on all ranks except for the energy, which is rank 0's.
struct PartResult {
  struct OfRank {
    std::array<double, 2> sent_bytes = {};     // by direction, in all checked passes: counted in the plans that ran
    double least_bytes = 0;                    // likewise: bytes that algorithms of minimal traffic would have sent
    std::array<double, 2> formula_bytes = {};  // likewise: bytes of such algorithms for the part's exchanges
    std::int64_t memory_bytes = 0;
    Findings found = {};  // over all checked passes
  };

  PassTimes times = {};
  std::vector<OfRank> ranks = {};
  std::vector<std::vector<double>> figures = {};  // [rank]
  std::int64_t checked_passes = 0;                // forwards with their backwards
  // Energy of a forward and a backward with overlapped exchanges. The text is one line, also without a counter.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};

  // The total or the maximum over ranks of value(rank).
  template <class Value>
  auto sum(const Value& value) const {
    decltype(value(ranks.front())) sum{};
    for (const OfRank& rank : ranks) sum += value(rank);
    return sum;
  }
  template <class Value>
  auto most(const Value& value) const {
    decltype(value(ranks.front())) most{};
    for (const OfRank& rank : ranks) most = std::max(most, value(rank));
    return most;
  }

  std::int64_t wrong() const {
    return sum([](const OfRank& rank) { return rank.found.wrong; });
  }
  std::int64_t unlike() const {
    return sum([](const OfRank& rank) { return rank.found.unlike; });
  }
  double worst() const;  // NaN if a rank has one
  std::int64_t memory_bytes() const {
    return most([](const OfRank& rank) { return rank.memory_bytes; });
  }
  // By all ranks in a forward and a backward.
  double sent_bytes() const { return sent_bytes(Direction::forward) + sent_bytes(Direction::backward); }
  double least_bytes() const;
  double formula_bytes() const;
  // In one direction: by all ranks, and by the rank that sends most.
  double sent_bytes(Direction direction) const;
  double most_sent_bytes(Direction direction) const;
  double most_formula_bytes(Direction direction) const;
  bool sent_as_formula() const;  // all ranks together
  bool is_wrong() const { return wrong() != 0 || !sent_as_formula(); }
};

// Adds what the engine measured: times, checked passes, energy. `shares`: names of the shares of a rank's time.
void add_part(const PartResult& part, std::span<const char* const> shares, core::StepRecord& record);
// One line below a table's row; if nothing was measured, below its last row only.
std::string energy_text(const PartResult& part, bool is_last);

// Columns of a pass in each mode: medians in ms. A Row has part(), its result.
template <class Row>
std::vector<program::Column<Row>> mode_columns(Direction direction) {
  std::vector<program::Column<Row>> columns;
  for (const auto& [name, mode] : {std::pair{"kernels", Mode::kernels},
                                   {"comm", Mode::exchanges},
                                   {"serial", Mode::serial},
                                   {"async", Mode::overlapped}}) {
    columns.push_back({{name, "(ms)", 9, name_of(direction)}, program::kUsAsMs, [mode = mode, direction](auto& row) {
                         return row.part().times.median_us(mode, direction);
                       }});
  }
  return columns;
}

// The rounds of a measurement: in each, every part runs once in every mode.
struct Rounds {
  std::int64_t warmup = 2;  // untimed
  std::int64_t timed = 9;
  double budget_s = 0;  // after which no further round starts; 0: no limit
  std::vector<Mode> modes{Mode::serial, Mode::overlapped, Mode::kernels, Mode::exchanges};
  std::int64_t tokens = 0;  // in one run on all ranks, for the energy of overlapped runs
  std::function<core::EnergyMeter()> open_energy;
};

using Parts = std::vector<std::unique_ptr<TimedPart>>;

// Runs the parts of one rank and collects the results of all ranks, one for each part. All ranks call it together.
std::vector<PartResult> measure_parts(const Rounds& rounds, const Parts& parts, backends::MeshRank& rank,
                                      const SentCounter& counter);
// Serves the parts instead, as a worker: each in these modes. `names` are in that order.
void serve_parts(const std::string& program, std::span<const Mode> modes, const std::vector<std::string>& names,
                 const Parts& parts, backends::MeshRank& rank);

// Parts that are not a whole step, on ranks of their own.

// The parts of one row, on one rank: measured together.
using MakeParts = std::function<Parts(PartSite&)>;

struct PartRow {
  int num_ranks = 1;
  std::vector<backends::Channel> channels = {};  // empty: one of all ranks
  std::int64_t tokens = 0;                       // in a forward and backward on all ranks
  std::vector<Mode> modes = Rounds().modes;
};

// Under mpirun all ranks call it, and all have the results.
std::vector<PartResult> run_parts(const PartFlags& flags, const PartRow& row, const MakeParts& make);
void serve_row(const PartFlags& flags, const PartRow& row, std::span<const Mode> modes,
               const std::vector<std::string>& names, const MakeParts& make);

}  // namespace lockstep::step_bench
