// mini_train: trains a model, or is a worker that serves its steps.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "bench/mini_train/flags.h"
#include "bench/mini_train/report.h"
#include "bench/program/place.h"
#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "bench/serve/orders.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cuda.h"
#include "core/output_file.h"
#include "core/ranks.h"
#include "core/wait.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/traces.h"
#include "trainer/data/corpus.h"
#include "trainer/step/train_step.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/rank_trainer.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {
namespace {

// A layout's training step as the only case of a worker (bench/serve/orders.h), instead of a training run. Each call is
// one step. Steps continue from call to call through the text and the learning-rate schedule.
void serve_steps(const TrainFlags& flags, const trainer::Corpus& corpus) {
  const trainer::TrainOptions& options = flags.options;
  const std::string name = step_name(options);
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep& /*made*/, trainer::RankTrainer& rank) {
    std::int64_t step = 0;
    serve::serve_ranks(flags.program, {name}, rank.model().mesh().messages, [&](std::size_t, std::int64_t calls) {
      return serve::us_of_calls(calls, [&] { rank.train_step(++step); });
    });
  });
}

// Tokens that the baselines count: the start of each half, so that a long text need not be read for them.
std::vector<std::int32_t> counted_tokens(const trainer::TokenText& text) {
  constexpr std::size_t kMost = std::size_t{1} << 24;
  std::vector<std::int32_t> tokens(std::min(text.size(), kMost));
  text.copy(0, tokens);
  return tokens;
}

// --tokenize: writes the tokens of the data to a file, from which runs train without encoding it again.
std::string write_tokens(const trainer::TrainOptions& options, const std::string& file) {
  if (options.data.empty()) throw core::usage_error("--tokenize needs --data with the text's files");
  const std::int64_t words = options.tokenizer->size();
  trainer::TokenFileWriter writer(file, words);
  const std::string from = trainer::Corpus::read_files(options.data, *options.tokenizer,
                                                       [&](std::span<const std::int32_t> some) { writer.write(some); });
  writer.commit();
  return fmt::format("{}: {} tokens of {} words, from {} by {}\n", file, writer.written(), words, from,
                     options.tokenizer->name());
}

// The record of a run that may be stopped at any time: it is rewritten once per second, without the fields that are
// known only at the end.
class GrowingRecord {
 public:
  explicit GrowingRecord(const TrainFlags& flags) : run_(run_record(flags)), writer_(flags.json_file) {
    writer_.write(run_);
  }

  const core::RunRecord& run() const { return run_; }
  bool is_due() const { return !is_begun_ || core::Clock::now() - written_at_ > std::chrono::seconds(1); }
  void write(const core::TrainingRecord& record) {
    is_begun_ ? writer_.rewrite(record) : writer_.write(record);
    is_begun_ = true;
    written_at_ = core::Clock::now();
  }
  void commit() { writer_.commit(); }

 private:
  core::RunRecord run_;
  core::RecordWriter writer_;
  bool is_begun_ = false;
  core::Clock::time_point written_at_;
};

// Reports progress; only rank 0 prints, the others are silent.
class RunReporter {
 public:
  RunReporter(const TrainFlags& flags, const program::Print& print, double peak_flops,
              std::optional<core::GemmRecord> gemm, const PredictedStep* predicted, core::EnergyMeter meter)
      : flags_(flags),
        print_(print),
        peak_flops_(peak_flops),
        gemm_(std::move(gemm)),
        predicted_(predicted),
        log_(flags, peak_flops),
        energy_(std::move(meter)) {}

  // From here on there is a record of `data`.
  void begin_record(const std::string& data) {
    data_ = data;
    record_.emplace(flags_);
  }

  trainer::TrainObserver observer() {
    trainer::TrainObserver observer;
    observer.begin = [this](const trainer::TrainStep& train_step) {
      step_ = train_step.step;
      predicted_bytes_ = trainer::most_needed(flags_.options, train_step);
    };
    observer.step = [this](const auto& report, const auto& timeline) { show(report, timeline); };
    observer.note = [](const std::string& note) { std::fprintf(stderr, "note: %s\n", note.c_str()); };
    observer.validation = [this](std::int64_t step, double loss) {
      log_.add_validation(step, loss);
      if (step < flags_.options.steps)
        print_("step " + std::to_string(step) + "  validation loss " + std::to_string(loss) + "\n");
      energy_.end_pause();
    };
    return observer;
  }

  void end_record(double unigram_nats, double bigram_nats) {
    core::TrainingRecord record = record_so_far();
    log_.add_validations(record, unigram_nats, bigram_nats);
    record.energy = energy_.record(flags_.options.tokens_per_step());
    record_->write(record);
    record_->commit();
  }

 private:
  core::TrainingRecord record_so_far() const {
    core::TrainingRecord record = log_.record(record_->run(), step_, data_);
    record.gemm = gemm_;
    const TrainingLog::Timed& timed = log_.typical();
    if (predicted_ != nullptr) record.predicted = predicted_->record(step_, timed.timeline, timed.report.seconds * 1e3);
    return record;
  }

  void show(const trainer::StepReport& report, const schedules::StepTimeline& ran) {
    if (report.steps_reported > 0) energy_.end_step(report.steps_reported);
    const schedules::StepTimeline timeline = ran.empty() ? ran : schedules::when_bytes_move(step_, ran);
    const bool last = report.step == flags_.options.steps;
    log_.add_step(report, timeline);
    most_mfu_ = std::max(most_mfu_, mfu_of(flags_, report, peak_flops_));
    if (record_ && log_.has_timed_step() && record_->is_due()) record_->write(record_so_far());
    std::vector<schedules::Breakdown> ranks;
    if (!timeline.empty()) ranks = schedules::breakdown_of(step_, timeline, trainer::blocking_lanes(flags_.options));
    if (last || report.step == 1 || report.step % flags_.report_every == 0) {
      const double exposed = exposed_share(ranks);
      print_(
          step_text(flags_, report, peak_flops_, ranks.empty() || (ranks.size() == 1 && exposed == 0) ? -1 : exposed));
    }
    if (report.step == flags_.trace_step && !flags_.trace_file.empty()) {
      program::write_file(flags_.trace_file, schedules::to_trace(step_, timeline, basis_of(flags_.options)));
    }
    if (!last) return;
    std::vector<std::vector<schedules::Breakdown>> steps;
    for (const TrainingLog::Timed& timed : log_.timed()) {
      steps.push_back(schedules::breakdown_of(step_, timed.timeline, trainer::blocking_lanes(flags_.options)));
    }
    print_(breakdown_text(steps));
    if (predicted_ != nullptr && log_.has_timed_step()) {
      const TrainingLog::Timed& timed = log_.typical();
      print_(text_of(predicted_->record(step_, timed.timeline, timed.report.seconds * 1e3)));
    }
    print_(expert_text(report));
    print_(memory_text(predicted_bytes_, report));
    print_(copies_text(flags_.options.layout, report));
    print_(mfu_warning(flags_, most_mfu_, peak_flops_));
    print_(energy_.text(flags_.options.tokens_per_step()));
  }

  const TrainFlags& flags_;
  const program::Print& print_;
  const double peak_flops_;
  const std::optional<core::GemmRecord> gemm_;
  const PredictedStep* const predicted_;  // may be nullptr
  TrainingLog log_;
  program::StepEnergy energy_;
  schedules::Step step_;
  parallel::BytesByKind predicted_bytes_ = {};  // bytes of the rank that needs most
  double most_mfu_ = 0;
  std::string data_;  // the corpus's name
  std::optional<GrowingRecord> record_;
};

// Peak of the GPUs that the ranks use, assuming that all equal the first. A rank of mpirun that prints nothing returns
// 0, so that the one that does measures alone.
double peak_of_gpus(const trainer::TrainOptions& options) {
  if (!program::writes_output(options.mpi)) return 0;
  const int gpus = program::num_gpus(options.device, options.mpi, options.layout.ranks());
  return gpus * measured_cuda_peak_flops(options.layout.compute, std::max(options.device.index, 0));
}

// Number of this process's kernel threads that have a core each.
int threads_here(const trainer::TrainOptions& options) {
  const int ranks = options.mpi == nullptr ? options.layout.ranks() : 1;
  return std::min(ranks * options.threads, core::usable_cores());
}

// Peak of all ranks' cores. Under mpirun all ranks call it and measure at once, each on the cores of its own threads,
// so that shared resources are shared as in the run. If ranks share cores, cores are counted, not ranks.
double peak_of(const TrainFlags& flags) {
  const trainer::TrainOptions& options = flags.options;
  if (flags.peak_gflops > 0) return flags.peak_gflops * 1e9;
  if (options.device.cuda) return peak_of_gpus(options);
  const int threads = threads_here(options);
  if (options.mpi == nullptr) return measured_peak_flops(options.layout.compute, threads);
  const auto ranks = options.mpi->make_transport();
  ranks->barrier();
  const auto peaks = transports::all_gather_value(*ranks, measured_peak_flops(options.layout.compute, threads));
  const transports::MpiPlacement& placement = options.mpi->placement();
  if (!placement.oversubscribed) return std::accumulate(peaks.begin(), peaks.end(), 0.0);
  return *std::max_element(peaks.begin(), peaks.end()) / threads * core::usable_cores() * placement.num_hosts;
}

int run_mini_train(TrainFlags flags, const program::Print& print, transports::MpiWorld* mpi) {
  if (flags.list) {
    print(models_text());
    return 0;
  }
  if (!flags.tokens_file.empty()) {
    print(write_tokens(flags.options, flags.tokens_file));
    return 0;
  }
  flags.options.mpi = mpi;
  flags.options = trainer::checked(flags.options);
  flags.options.timeline_every = flags.trace_step == flags.options.steps ? flags.report_every : 1;
  const bool writes = program::writes_output(mpi);
  if (writes) program::check_writable({flags.json_file, flags.trace_file, flags.options.export_file});
  std::optional<core::FolderLock> checkpoints;  // for as long as this run may write there
  if (writes && !flags.options.checkpoint_folder.empty()) {
    checkpoints.emplace("--checkpoints", flags.options.checkpoint_folder);
  }
  const trainer::Corpus corpus = corpus_of(flags.options);
  if (flags.serve) {
    if (flags.gemm != kProbeGemms)
      flags.options.gemm = flags.gemm;  // else the fixed order, which is the same in all workers
    serve_steps(flags, corpus);
    return 0;
  }
  std::optional<core::GemmRecord> gemm;
  if (!flags.options.device.cuda) {
    gemm = decide_gemm(flags.gemm, flags.options, threads_here(flags.options));
    flags.options.gemm = gemm->implementation;
  }
  std::optional<PredictedStep> predicted;
  if (!flags.predict.empty()) predicted.emplace(flags);
  program::Progress progress("steps", static_cast<std::size_t>(flags.options.steps));
  const program::Print print_here = writes ? progress.around(print) : [](const std::string&) {};
  const double peak_flops = peak_of(flags);
  print_here(heading_text(flags, corpus.name(), peak_flops));
  if (gemm) print_here(gemm_text(*gemm));
  if (predicted) print_here(predicted->text());
  RunReporter reporter(
      flags, print_here, peak_flops, gemm, predicted ? &*predicted : nullptr,
      writes ? program::open_energy(flags.options.device, mpi, flags.options.layout.ranks()) : core::EnergyMeter{});
  if (writes && !flags.json_file.empty()) reporter.begin_record(corpus.name());
  trainer::TrainObserver observer = reporter.observer();
  observer.step = [&, done = std::size_t{0}, show = observer.step](const auto& report, const auto& timeline) mutable {
    ++done;
    progress.done(done, done + static_cast<std::size_t>(flags.options.steps - report.step));
    show(report, timeline);
  };
  const trainer::TrainResult result = trainer::train(flags.options, corpus, observer);
  if (!writes) return 0;
  if (!result.sample.empty()) print_here(sample_text(flags.options.prompt, result.sample));
  const std::vector<std::int32_t> training = counted_tokens(corpus.training());
  const std::vector<std::int32_t> validation = counted_tokens(corpus.validation());
  const std::int64_t words = corpus.is_bytes() ? 256 : flags.options.model.vocabulary;
  const double unigram_nats = trainer::unigram_entropy_nats(training, validation, words);
  const double bigram_nats = trainer::bigram_entropy_nats(training, validation, words);
  print_here(ending_text(result, corpus.is_bytes(), unigram_nats, bigram_nats));
  if (!flags.json_file.empty()) reporter.end_record(unigram_nats, bigram_nats);
  return 0;
}

int run(int argc, char** argv) {
  const TrainFlags flags = parse_train_flags(argc, argv);
  return program::run_in_place(flags.place, argc, argv, flags.options.timeout, [&](transports::MpiWorld* mpi) {
    return run_mini_train(flags, program::to_stdout, mpi);
  });
}

}  // namespace
}  // namespace lockstep::mini_train

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("mini_train", [&] { return lockstep::mini_train::run(argc, argv); });
}
