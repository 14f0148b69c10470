#include "bench/step/part.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "bench/program/run_records.h"
#include "bench/serve/orders.h"
#include "core/error.h"
#include "core/ranks.h"
#include "core/wait.h"
#include "kernels/gemm/gemm.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::step_bench {
namespace {

using program::FlagValue;

constexpr std::size_t kExchanges = 0;  // the channel, or the first of several, which share a thread and a stream

}  // namespace

std::vector<program::FlagOf<PartFlags>> part_flags(const char* rounds, const char* warmup_rounds) {
  return {
      {"--link", "", "emulated links: latency_us=L,gbps=B [as fast as memory]",
       [](PartFlags& f, const FlagValue& v) { f.link = v.parsed_by(transports::parse_link); }},
      {"-t,--threads", "1", "kernel threads per rank",
       [](PartFlags& f, const FlagValue& v) { f.threads = program::integer(v, 1, 1024); }},
      {"--rounds", rounds, "number of rounds; each way of running a layer is timed once per round",
       [](PartFlags& f, const FlagValue& v) { f.rounds = program::integer(v, 1, 100000); }},
      {"--warmup", warmup_rounds, "number of rounds before the timed ones",
       [](PartFlags& f, const FlagValue& v) { f.warmup_rounds = program::integer(v, 1, 100000); }},
      {"-T,--timeout", "60", "seconds after which a wait fails",
       [](PartFlags& f, const FlagValue& v) { f.timeout = std::chrono::seconds(v.integer(1, 86400)); }},
      program::json_flag<PartFlags>(),
  };
}

core::DType dtype_of(const FlagValue& value) {
  if (value.text == "f32") return core::DType::f32;
  if (value.text == "bf16") return core::DType::bf16;
  throw value.refused("not a dtype of layers here", "f32 bf16");
}

void read_part_place(const program::CommandLine& line, PartFlags& flags) {
  flags.place = program::read_place(line);
  if (flags.link && (flags.place.mpi || flags.place.device.cuda)) {
    throw core::usage_error(
        "--link emulates links between local ranks on the CPU; allowed: with --transport local and --device cpu");
  }
  if (flags.serve && flags.place.mpi) {
    throw core::usage_error("--serve works only with --transport local, not with mpi");
  }
  program::check_device(flags.place.device);
}

core::RunRecord part_run_record(const PartFlags& flags, int ranks, std::uint64_t seed) {
  core::RunRecord run = program::real_run_record(flags, ranks, flags.threads, seed, flags.link);
  program::add_place(flags.place.device, flags.mpi, ranks, run);
  return run;
}

std::string place_text(const PartFlags& flags, int ranks) {
  const backends::DeviceChoice& device = flags.place.device;
  if (flags.link) return program::emulated_text(*flags.link) + "; kernels and reductions run on this machine";
  if (device.cuda) return program::gpus_text(device, ranks, flags.mpi) + (device.nccl ? "; NCCL's" : "");
  if (flags.mpi == nullptr) return "through this machine's memory";
  const bool overlaps = flags.mpi->threads() == transports::MpiThreads::multiple;
  return "MPI messages of " + flags.mpi->library_version() +
         (overlaps ? "" : "; communication cannot overlap with kernels: async equals serial");
}

PartSite::PartSite(const PartFlags& flags, int num_ranks, backends::MeshRank& mesh_rank)
    : rank(mesh_rank),
      pool(flags.threads),
      cuda_(rank.queues == nullptr ? nullptr : trainer::make_cuda_context(rank.device, *rank.queues->compute, index())),
      where(cuda_ ? kernels::Context(*cuda_) : kernels::Context(pool)),
      memory(rank.device),
      runner(rank, kExchanges,
             core::WaitPolicy::beside_work(num_ranks * (flags.threads + 1), core::usable_cores(), flags.timeout)) {
  kernels::choose_gemms_by_rule(where);
}

void TimedPart::serve(Mode mode) {
  begin(mode);
  for (const Direction direction : directions()) run(mode, direction);
  end(mode);
}

namespace {

// The rounds of one rank's thread.
class RankRounds {
 public:
  RankRounds(const Rounds& rounds, const Parts& parts, backends::MeshRank& rank, const SentCounter& counter)
      : rounds_(rounds), parts_(parts), rank_(rank), counter_(counter), results_(parts.size()), own_(parts.size()) {}

  std::vector<PartResult> run() {
    for (std::int64_t round = 0; round < rounds_.warmup; ++round) run_all(false);
    for (std::size_t p = 0; p < parts_.size(); ++p) parts_[p]->begin_timed(own_[p].found);
    for (std::size_t p = 0; rank_.messages.rank() == 0 && p < parts_.size(); ++p) {
      energy_.emplace_back(rounds_.open_energy());
    }
    const auto begin = core::Clock::now();
    for (std::int64_t round = 0; round < rounds_.timed; ++round) {
      const bool has_time =
          rounds_.budget_s == 0 || core::us_between(begin, core::Clock::now()) < rounds_.budget_s * 1e6;
      // Rank 0 decides for all.
      if (transports::all_gather_value(rank_.messages, round == 0 || has_time ? 1 : 0).front() == 0) break;
      run_all(true);
    }
    for (std::size_t p = 0; p < parts_.size(); ++p) collect(p);
    return std::move(results_);
  }

 private:
  void run_all(bool is_timed) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      for (const Mode mode : rounds_.modes) run_once(p, mode, is_timed);
    }
  }

  void run_once(std::size_t p, Mode mode, bool is_timed) {
    TimedPart& part = *parts_[p];
    const bool draws = is_timed && mode == Mode::overlapped && !energy_.empty();  // the energy of these runs counts
    part.begin(mode);
    for (const Direction direction : part.directions()) {
      const SentCounter::Bytes before = counter_.so_far();
      if (draws) energy_[p].begin_step();
      const PassTime mine = timed(part, mode, direction);
      if (draws) energy_[p].end_step(direction == part.directions().back() ? 1 : 0);
      const SentCounter::Bytes after = counter_.so_far();
      const std::vector<PassTime> all = transports::all_gather_value(rank_.messages, mine);
      if (is_timed) results_[p].times.add(mode, direction, all);
      if (is_whole(mode)) {
        own_[p].sent_bytes[static_cast<std::size_t>(direction)] += static_cast<double>(after.sent - before.sent);
        own_[p].least_bytes += after.least - before.least;
        rank_.settle();
        part.check(mode, direction, own_[p].found);
      }
      if (is_timed) part.keep(mode);
    }
    part.end(mode);
    if (is_whole(mode)) ++results_[p].checked_passes;
  }

  PassTime timed(TimedPart& part, Mode mode, Direction direction) {
    rank_.settle();  // exchanges alone wait for no kernels, and so not for what begin() has queued
    rank_.messages.barrier();
    const auto start = core::Clock::now();
    PassTime mine{0, part.run(mode, direction)};
    mine.us = core::us_between(start, core::Clock::now());
    const std::optional<std::size_t> rest = part.remaining_share();
    if (!rest || mode == Mode::kernels) return mine;
    mine.spent[*rest] = 0;
    mine.spent[*rest] = mine.us - std::accumulate(mine.spent.begin(), mine.spent.end(), 0.0);
    return mine;
  }

  void collect(std::size_t p) {
    PartResult& result = results_[p];
    PartResult::OfRank& own = own_[p];
    own.memory_bytes = parts_[p]->memory_bytes();
    own.formula_bytes = parts_[p]->formula_bytes();
    for (double& bytes : own.formula_bytes) bytes *= static_cast<double>(result.checked_passes);
    result.ranks = transports::all_gather_value(rank_.messages, own);
    result.figures.resize(result.ranks.size());
    for (const double mine : parts_[p]->figures()) {
      const std::vector<double> all = transports::all_gather_value(rank_.messages, mine);
      for (std::size_t r = 0; r < all.size(); ++r) result.figures[r].push_back(all[r]);
    }
    if (energy_.empty()) return;
    result.energy = energy_[p].record(rounds_.tokens);
    result.energy_text = energy_[p].text(rounds_.tokens);
  }

  const Rounds& rounds_;
  const Parts& parts_;
  backends::MeshRank& rank_;
  const SentCounter& counter_;
  std::vector<PartResult> results_;          // [part]
  std::vector<PartResult::OfRank> own_;      // [part]
  std::vector<program::StepEnergy> energy_;  // [part] on rank 0
};

}  // namespace

std::vector<PartResult> measure_parts(const Rounds& rounds, const Parts& parts, backends::MeshRank& rank,
                                      const SentCounter& counter) {
  return RankRounds(rounds, parts, rank, counter).run();
}

void serve_parts(const std::string& program, std::span<const Mode> modes, const std::vector<std::string>& names,
                 const Parts& parts, backends::MeshRank& rank) {
  serve::serve_ranks(program, names, rank.messages, [&](std::size_t which, std::int64_t calls) {
    return serve::us_of_calls(calls, [&] { parts[which / modes.size()]->serve(modes[which % modes.size()]); });
  });
}

namespace {

// With queued work, new kernels wait for the device on their first run: no collective may be queued then.
void rehearse(const Parts& parts, backends::MeshRank& rank) {
  if (rank.queues == nullptr) return;
  for (const auto& part : parts) {
    part->begin(Mode::kernels);
    for (const Direction direction : part->directions()) part->run(Mode::kernels, direction);
    part->end(Mode::kernels);
  }
  rank.messages.barrier();
}

// Calls body(rank, counter, parts) on all ranks of this process.
template <class Body>
void on_ranks(const PartFlags& flags, const PartRow& row, const MakeParts& make, const Body& body) {
  std::vector<backends::Channel> channels = row.channels;
  if (channels.empty()) {
    channels.emplace_back(static_cast<std::size_t>(row.num_ranks));
    std::iota(channels.front().begin(), channels.front().end(), 0);
  }
  const backends::MeshOptions options{.num_ranks = row.num_ranks,
                                      .threads_per_rank = flags.threads + 1,
                                      .link = flags.link,
                                      .timeout = flags.timeout,
                                      .mpi = flags.mpi,
                                      .device = flags.place.device,
                                      .queue_of_channel = std::vector<int>(channels.size(), 0)};
  backends::run_mesh(options, channels, [&](backends::MeshRank& rank) {
    SentCounter counter(channels);
    backends::MeshRank counted = counter.counting(rank);
    PartSite site(flags, row.num_ranks, counted);
    const Parts parts = make(site);
    rehearse(parts, counted);
    body(counted, counter, parts);
  });
}

}  // namespace

double PartResult::worst() const {
  Findings all;
  for (const OfRank& rank : ranks) all.add_difference(rank.found.worst);
  return all.worst;
}

double PartResult::least_bytes() const {
  return sum([](const OfRank& rank) { return rank.least_bytes; }) / static_cast<double>(checked_passes);
}

// All ranks together send whole bytes.
double PartResult::formula_bytes() const {
  const double all = sum([](const OfRank& rank) { return rank.formula_bytes[0] + rank.formula_bytes[1]; });
  return std::round(all / static_cast<double>(checked_passes));
}

double PartResult::sent_bytes(Direction direction) const {
  const auto d = static_cast<std::size_t>(direction);
  return sum([&](const OfRank& rank) { return rank.sent_bytes[d]; }) / static_cast<double>(checked_passes);
}

double PartResult::most_sent_bytes(Direction direction) const {
  const auto d = static_cast<std::size_t>(direction);
  return most([&](const OfRank& rank) { return rank.sent_bytes[d]; }) / static_cast<double>(checked_passes);
}

double PartResult::most_formula_bytes(Direction direction) const {
  const auto d = static_cast<std::size_t>(direction);
  return most([&](const OfRank& rank) { return rank.formula_bytes[d]; }) / static_cast<double>(checked_passes);
}

bool PartResult::sent_as_formula() const {
  return step_bench::sent_as_formula(sent_bytes(), least_bytes(), formula_bytes());
}

void add_part(const PartResult& part, std::span<const char* const> shares, core::StepRecord& record) {
  record.times = part.times.records(shares);
  record.checked_passes = part.checked_passes;
  record.energy = part.energy;
}

std::string energy_text(const PartResult& part, bool is_last) {
  return part.energy || is_last ? part.energy_text : "";
}

std::vector<PartResult> run_parts(const PartFlags& flags, const PartRow& row, const MakeParts& make) {
  const Rounds rounds{
      .warmup = flags.warmup_rounds,
      .timed = flags.rounds,
      .modes = row.modes,
      .tokens = row.tokens,
      .open_energy = [&] { return program::open_energy(flags.place.device, flags.mpi, row.num_ranks); }};
  const int reporting_rank = flags.mpi == nullptr ? 0 : flags.mpi->placement().rank;
  std::vector<PartResult> results;
  on_ranks(flags, row, make, [&](backends::MeshRank& rank, const SentCounter& counter, const Parts& parts) {
    std::vector<PartResult> of_rank = measure_parts(rounds, parts, rank, counter);
    if (rank.messages.rank() == reporting_rank) results = std::move(of_rank);
  });
  return results;
}

void serve_row(const PartFlags& flags, const PartRow& row, std::span<const Mode> modes,
               const std::vector<std::string>& names, const MakeParts& make) {
  on_ranks(flags, row, make, [&](backends::MeshRank& rank, const SentCounter& /*counter*/, const Parts& parts) {
    serve_parts(flags.program, modes, names, parts, rank);
  });
}

}  // namespace lockstep::step_bench
