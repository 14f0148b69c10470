#include "bench/data_parallel/step_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "bench/serve/orders.h"
#include "bench/step/values.h"
#include "core/error.h"
#include "trainer/data/corpus.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::ParameterStore;
using program::FlagValue;
using Flag = program::FlagOf<StepFlags>;

constexpr const char* kModel = "Model";
constexpr const char* kRun = "Ranks and times";

const std::array kFlagsOfModel{
    Flag{"--model", "micro", "a size by name (mini_train --list)",
         [](StepFlags& f, const FlagValue& v) { f.model = v.text; }},
    Flag{"--seed", "1", "seed of the initial weights and of the order of the data",
         [](StepFlags& f, const FlagValue& v) { f.options.seed = static_cast<std::uint64_t>(v.integer(0, 1 << 30)); }},
};

const std::array kFlagsOfRun{
    Flag{"--algo", "auto", "algorithm of the collectives (docs/adding.md)",
         [](StepFlags& f, const FlagValue& v) { f.options.algorithm = v.text; }},
    Flag{"-t,--threads", "1", "kernel threads per rank",
         [](StepFlags& f, const FlagValue& v) { f.options.threads = program::integer(v, 1, 1024); }},
    Flag{"--steps", "10", "maximum number of steps to time for each way that is compared",
         [](StepFlags& f, const FlagValue& v) { f.rounds = v.integer(1, 1 << 20); }},
    Flag{"--warmup", "3", "steps before the timed ones",
         [](StepFlags& f, const FlagValue& v) { f.warmup_rounds = v.integer(1, 1 << 20); }},
    Flag{"--time-budget", "30", "seconds per row, after which no further step starts; 0: no limit",
         [](StepFlags& f, const FlagValue& v) { f.budget_s = v.number_from(0, 1e6); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait fails",
         [](StepFlags& f, const FlagValue& v) { f.options.timeout = std::chrono::seconds(v.integer(1, 86400)); }},
    program::json_flag<StepFlags>(),
};

const std::array kRanks{SweptFlag{{"--dp", "2", "data-parallel ranks, a list", "dp", kMostReplicas}}};

constexpr auto kFlagsOfSequences = mini_train::sequence_flags<StepFlags>("4", "1");

}  // namespace

void begin_step_flags(int argc, const char* const* argv, StepFlags& flags) {
  flags.set_command(argc, argv);
  flags.options.layout.microbatch_size = 4;
}

void declare_step_flags(program::CommandLine& line, StepFlags& flags) {
  declare_all(line, kFlagsOfModel, kModel);
  declare_all(line, mini_train::kSizeFlags, kModel);
  declare_all(line, mini_train::kTextFlags, kModel);
  declare_all(line, kRanks, kRun);
  declare_all(line, kFlagsOfSequences, kRun);
  declare_all(line, kFlagsOfRun, kRun);
  declare_place(line, kRun);
  line.add_switch("--serve", flags.serve,
                  "worker mode for ci/gate.py: run the steps requested on standard input (bench/serve/orders.h)", kRun);
}

void read_step_flags(const program::CommandLine& line, StepFlags& flags) {
  read_all(line, kFlagsOfModel, flags);
  read_all(line, mini_train::kSizeFlags, flags.model);
  read_all(line, mini_train::kTextFlags, flags.model);
  flags.options.model = mini_train::model_of({"--model", flags.model});
  read_all(line, kFlagsOfSequences, flags);
  read_all(line, kFlagsOfRun, flags);
  read_sweeps(line, kRanks, flags);
  flags.all_ranks = !line.value("--dp");
  flags.place = program::read_place(line);
  flags.options.device = flags.place.device;
  if (flags.serve && flags.place.mpi) {
    throw core::usage_error("--serve works only with --transport local, not with mpi");
  }
}

void read_sweeps(const program::CommandLine& line, std::span<const SweptFlag> table, StepFlags& flags) {
  for (const SweptFlag& flag : table) {
    const auto given = line.value(flag.names);
    flags.sweeps.push_back({&flag, given.value_or(FlagValue{flag.names, flag.default_text}).list()});
    workload::Layout unused;
    for (const FlagValue& value : flags.sweeps.back().values) flag.read(unused, value);
  }
}

std::vector<workload::Layout> swept_layouts(const StepFlags& flags) {
  std::vector<workload::Layout> rows{flags.options.layout};
  for (const Sweep& sweep : flags.sweeps) {
    std::vector<workload::Layout> more;
    for (const workload::Layout& row : rows) {
      if (!sweep.flag->applies(row)) {
        more.push_back(row);
        continue;
      }
      for (const FlagValue& value : sweep.values) sweep.flag->read(more.emplace_back(row), value);
    }
    rows = std::move(more);
  }
  return rows;
}

trainer::TrainOptions with_layout(const StepFlags& flags, const workload::Layout& layout) {
  trainer::TrainOptions options = flags.options;
  options.layout = layout;
  mini_train::set_sequences(flags.sequences, options.layout);
  return options;
}

void place_in(transports::MpiWorld* mpi, StepFlags& flags) {
  flags.options.mpi = mpi;
  if (mpi == nullptr || !flags.all_ranks) return;
  flags.sweeps.front().values = {{kRanks.front().names, std::to_string(mpi->placement().num_ranks)}};
}

StepRank::StepRank(const trainer::TrainOptions& options, const trainer::TrainStep& train_step,
                   const trainer::Corpus& corpus, backends::MeshRank& mesh, const trainer::ChannelMap& channels)
    : options_(options),
      corpus_(corpus),
      mesh_(mesh),
      steps_(options, train_step, mesh, channels),
      batches_(static_cast<std::size_t>(options.layout.microbatches)) {
  load(model().place().dp);
}

void StepRank::rehearse(trainer::TrainWorker& worker, const schedules::Step& step) {
  steps_.rehearse([&] {
    begin(worker, 1, true);
    steps_.run(step, worker);
  });
}

// Order of samples in the global batch: by microbatch, then by data-parallel rank.
void StepRank::load(std::int32_t replica) {
  const auto tokens = static_cast<std::size_t>(options_.layout.microbatch_size * options_.model.sequence);
  for (std::size_t m = 0; m < batches_.size(); ++m) {
    const std::int64_t place = static_cast<std::int64_t>(m) * options_.layout.dp + replica;
    batches_[m].tokens.resize(tokens);
    batches_[m].targets.resize(tokens);
    trainer::draw_samples(corpus_.training(), options_.seed, 1, place * options_.layout.microbatch_size,
                          options_.model.sequence, batches_[m].tokens, batches_[m].targets);
  }
}

void StepRank::begin(trainer::TrainWorker& worker, std::int64_t number, bool rehearses) {
  std::vector<trainer::MicrobatchTokens> microbatches;
  for (const Batch& batch : batches_) microbatches.push_back({batch.tokens, batch.targets});
  const trainer::UpdateRules rules{.optimizer = options_.optimizer, .step = number, .rehearses = rehearses};
  worker.give(microbatches, rules);
  worker.begin_step(trainer::Mode::train, 1.0F / static_cast<float>(options_.tokens_per_step()));
}

namespace {

// Calls body(rank, counter, parts) on all ranks of this process.
template <class Body>
void on_ranks(const StepRow& row, const MakeStepPart& make, const Body& body) {
  trainer::run_ranks(row.options, row.made, row.steps,
                     [&](backends::MeshRank& rank, const trainer::ChannelMap& channels) {
                       step_bench::SentCounter counter(channels.channels());
                       backends::MeshRank counted = counter.counting(rank);
                       step_bench::Parts parts;
                       parts.push_back(make(counted, channels));
                       body(counted, counter, parts);
                     });
}

}  // namespace

std::optional<step_bench::PartResult> measure_step(const StepRow& row, std::span<const step_bench::Mode> modes,
                                                   const MakeStepPart& make) {
  const trainer::TrainOptions& options = row.options;
  const step_bench::Rounds rounds{
      .warmup = row.flags.warmup_rounds,
      .timed = row.flags.rounds,
      .budget_s = row.flags.budget_s,
      .modes = {modes.begin(), modes.end()},
      .tokens = options.tokens_per_step(),
      .open_energy = [&] { return program::open_energy(options.device, options.mpi, options.layout.ranks()); }};
  std::optional<step_bench::PartResult> result;
  on_ranks(row, make, [&](backends::MeshRank& rank, const auto& counter, const auto& parts) {
    std::vector<step_bench::PartResult> of_rank = measure_parts(rounds, parts, rank, counter);
    if (rank.messages.rank() == 0) result = std::move(of_rank.front());
  });
  return result;
}

void serve_step(const StepRow& row, std::span<const step_bench::Mode> modes, const std::vector<std::string>& names,
                const MakeStepPart& make) {
  on_ranks(row, make, [&](backends::MeshRank& rank, const auto& /*counter*/, const auto& parts) {
    serve_parts(row.flags.program, modes, names, parts, rank);
  });
}

bool serves(const StepFlags& flags, const std::vector<trainer::TrainOptions>& rows,
            void (*serve)(const StepFlags& flags, const trainer::TrainOptions& row)) {
  if (flags.serve) serve::check_one(rows.size(), "row");
  for (const trainer::TrainOptions& row : rows) {
    trainer::check_room(row, trainer::make_train_step(row.model, row.layout));
  }
  if (flags.serve) serve(flags, rows.front());
  return flags.serve;
}

namespace {

ParameterStore& store_of(trainer::RankModel& model) {
  LOCKSTEP_CHECK(model.stages().size() == 1, "the model has one stage");
  return *model.stages().front().store;
}

}  // namespace

std::vector<std::int64_t> elems_of_buckets(trainer::RankModel& model) {
  const ParameterStore& store = store_of(model);
  std::vector<std::int64_t> elems;
  for (std::int32_t b = 0; b < store.num_buckets(); ++b) elems.push_back(store.padded_elems(b));
  return elems;
}

std::vector<float> gradients_of(trainer::RankModel& model) {
  ParameterStore& store = store_of(model);
  std::vector<float> all;
  for (std::int32_t b = 0; b < store.num_buckets(); ++b) {
    const kernels::InOut gradient = store.own_gradient(b);
    const std::vector<float> values =
        step_bench::host_values(model.memory().device(), {gradient.data, gradient.dtype, gradient.elems});
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> masters_of(trainer::RankModel& model) {
  std::vector<float> all;
  for (const ParameterStore::Run& run : store_of(model).runs(ParameterStore::State::master)) {
    all.insert(all.end(), run.data, run.data + run.count);
  }
  return all;
}

void start_again(trainer::RankModel& model, const std::vector<float>& masters) {
  ParameterStore& store = store_of(model);
  const float* from = masters.data();
  for (const ParameterStore::Run& run : store.runs(ParameterStore::State::master)) {
    std::copy_n(from, run.count, run.data);
    from += run.count;
  }
  store.store_back(ParameterStore::State::master);
  store.masters_changed();
  for (const auto moment : {ParameterStore::State::first_moment, ParameterStore::State::second_moment}) {
    for (const ParameterStore::Run& run : store.runs(moment)) std::fill_n(run.data, run.count, 0.0F);
    store.store_back(moment);
  }
  model.collectives().forget();
}

}  // namespace lockstep::parallel_bench
