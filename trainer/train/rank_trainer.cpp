#include "trainer/train/rank_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "core/device.h"
#include "core/error.h"
#include "core/random.h"
#include "trainer/data/corpus.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::trainer {

std::int64_t drawn_word(std::span<const float> logits, double temperature, double uniform) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return largest - logits.begin();
  const auto weight = [&](float logit) { return std::exp((double{logit} - double{*largest}) / temperature); };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double left = uniform * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    left -= weight(logits[i]);
    if (left < 0) return static_cast<std::int64_t>(i);
  }
  return largest - logits.begin();  // reached only through rounding
}

StepGraph::StepGraph(TrainWorker& worker, RankModel& model)
    : worker_(worker), model_(model), stream_(model.lanes()->stream(schedules::Lane::compute)) {}

void StepGraph::run(float gradient_scale, const std::function<void()>& interpret,
                    const std::function<void()>& rehearse_rest) {
  if (graph_ == nullptr || gradient_scale_ != gradient_scale) {
    gradient_scale_ = gradient_scale;
    record(interpret);
    rehearse_rest();
    model_.mesh().messages.barrier();
  } else {
    model_.collectives().count_again(sent_bytes_);
  }
  worker_.graph_begins();
  graph_->launch(stream_);
  worker_.take_results();
}

// Capturing may allocate device memory, which may wait for running work. No rank launches before all have captured,
// because its collectives would wait for ranks that have not. Memory of the previous graph is available again only once
// the device is known to be done with it.
void StepGraph::record(const std::function<void()>& interpret) {
  graph_.reset();
  model_.mesh().settle();
  const StepCollectives::SentBytes before = model_.collectives().sent_bytes();
  worker_.capture(true);
  graph_ = core::capture(stream_, [&] {
    worker_.begin_step(Mode::train, gradient_scale_);
    interpret();
  });
  worker_.capture(false);
  sent_bytes_ = model_.collectives().sent_bytes();
  for (std::size_t lane = 0; lane < before.size(); ++lane) sent_bytes_[lane] -= before[lane];
}

using transports::now_ns;

namespace {

// Algorithm of the all-reduces between replicas.
std::string algorithm_of(const TrainOptions& options) {
  if (options.sync.way != SyncWay::server) return options.algorithm;
  return "server:servers=" + std::to_string(options.sync.servers);
}

}  // namespace

RankTrainer::RankTrainer(const TrainOptions& options, const TrainStep& made, const Corpus& corpus,
                         backends::MeshRank& mesh, const ChannelMap& channels)
    : options_(options),
      made_(made),
      corpus_(corpus),
      mesh_(mesh),
      steps_(options, made, mesh, channels),
      model_(steps_.model()),
      training_(made.step, model_),
      forward_(made.forward, model_),
      replica_(coordinates_of(options.layout, mesh.messages.rank()).dp),
      batches_(static_cast<std::size_t>(options.layout.microbatches)) {
  const auto tokens = static_cast<std::size_t>(options.layout.microbatch_size * options.model.sequence);
  for (RankBatch& batch : batches_) {
    batch.tokens.resize(tokens);
    batch.targets.resize(tokens);
  }
  if (options.layout.compute == core::DType::f16) loss_scale_ = first_loss_scale(options.loss_scale);
  if (options.sync.replicas_step_alone() && !options.sync.has_server_rank()) {
    const std::size_t channel = channels.of_peers(mesh.messages.rank());
    synchronizer_ = std::make_unique<Synchronizer>(
        options.sync, model_, Peers(mesh, channel, channels.channels()[channel], algorithm_of(options)));
  }
  if (options.graph) graph_ = std::make_unique<StepGraph>(training_, model_);
}

std::vector<MicrobatchTokens> RankTrainer::views() const {
  std::vector<MicrobatchTokens> views;
  for (const RankBatch& batch : batches_) views.push_back({batch.tokens, batch.targets});
  return views;
}

// Order of samples in the global batch: by microbatch, then by data-parallel rank.
void RankTrainer::draw(std::int64_t step) {
  for (std::size_t m = 0; m < batches_.size(); ++m) {
    const std::int64_t place = static_cast<std::int64_t>(m) * options_.layout.dp + replica_;
    draw_samples(corpus_.training(), options_.seed, step, place * options_.layout.microbatch_size,
                 options_.model.sequence, batches_[m].tokens, batches_[m].targets);
    check_words(batches_[m]);
  }
}

void RankTrainer::check_words(const RankBatch& batch) const {
  for (const std::vector<std::int32_t>* const ids : {&batch.tokens, &batch.targets}) {
    const auto [least, most] = std::minmax_element(ids->begin(), ids->end());
    if (*least >= 0 && *most < options_.model.vocabulary) continue;
    throw core::usage_error(corpus_.name() + " contains token " + std::to_string(*least < 0 ? *least : *most) +
                            ", but the model's vocabulary is " + std::to_string(options_.model.vocabulary) +
                            "; allowed: a --vocabulary larger than every token of the data");
  }
}

void RankTrainer::evaluate() {
  forward_.give(views(), {});
  forward_.begin_step(Mode::evaluate, 0);
  steps_.run(made_.forward, forward_);
}

void RankTrainer::rehearse() {
  if (!steps_.is_queued()) return;
  draw(1);
  steps_.rehearse([&] {
    UpdateRules rules;
    rules.rehearses = true;
    training_.give(views(), rules);
    training_.begin_step(Mode::train, 1);
    steps_.run(made_.step, training_);
    evaluate();
  });
}

double RankTrainer::sum_over_ranks(double mine) {
  double sum = 0;
  for (const double value : transports::all_gather_value(mesh_.messages, mine)) sum += value;
  return sum;
}

void RankTrainer::run_step(float gradient_scale, const WorkerWrap& wrap) {
  const std::unique_ptr<schedules::StageWorker> wrapped = wrap ? wrap(training_) : nullptr;
  schedules::StageWorker& worker = wrapped ? *wrapped : training_;
  const auto interpret = [&] { return steps_.run(made_.step, worker); };
  if (graph_) {
    graph_->run(gradient_scale, interpret, [&] {
      held_bytes_ = model_.memory().held_by_tasks();  // bytes of the recorded tasks
      model_.collectives().use(CollectiveUse::leave_out);
      evaluate();
      model_.collectives().use(CollectiveUse::run);
    });
    spans_ = training_.spans();
    return;
  }
  training_.begin_step(Mode::train, gradient_scale);
  spans_ = interpret();
}

namespace {

double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

}  // namespace

// Sleeps for the extra time that this replica's step of `seconds` is meant to take.
void RankTrainer::straggle(std::int64_t step, double seconds) const {
  if (!options_.straggler.given()) return;
  const double factor = options_.straggler.factor_of(replica_, options_.layout.dp, options_.seed, step);
  const double wanted = std::max(seconds, options_.straggler.step_ms * 1e-3) * factor;
  std::this_thread::sleep_for(std::chrono::duration<double>(wanted - seconds));
}

std::int64_t RankTrainer::sent_bytes() const {
  if (synchronizer_) return synchronizer_->sent_bytes();
  double sum = 0;
  for (const schedules::Lane lane : {schedules::Lane::reduce, schedules::Lane::replicas, schedules::Lane::gather}) {
    sum += model_.collectives().sent_bytes(lane);
  }
  return static_cast<std::int64_t>(sum);
}

double RankTrainer::local_gradients(std::int64_t step) {
  draw(step);
  const double tokens = static_cast<double>(options_.tokens_per_step()) / options_.layout.dp;
  UpdateRules rules{.optimizer = options_.optimizer, .step = step};
  rules.rehearses = true;
  const auto start_ns = now_ns();
  training_.give(views(), rules);
  run_step(static_cast<float>(1 / tokens), {});
  held_bytes_ = model_.memory().held_by_tasks();
  straggle(step, seconds_since(start_ns));
  return training_.loss_sum() / tokens;
}

RankTrainer::OwnStep RankTrainer::own_step(std::int64_t step, const WorkerWrap& wrap) {
  OwnStep own;
  own.report = {
      .step = step, .rate = static_cast<float>(learning_rate(options_.rate, step)), .loss_scale = loss_scale_.scale};
  draw(step);
  UpdateRules rules{
      .optimizer = options_.optimizer, .step = step, .most_norm = options_.most_norm, .loss_scale = loss_scale_.scale};
  rules.optimizer.rate = own.report.rate;
  auto tokens = static_cast<double>(options_.tokens_per_step());
  tokens /= static_cast<double>(model_.versions().updates_per_step());  // the loss of an update is its own mean
  if (options_.sync.averages()) tokens /= options_.layout.dp;           // the loss of a replica is its own mean
  rules.rehearses = synchronizer_ && options_.sync.sums_gradients();
  const std::int64_t copied_before = training_.copied_bytes();
  const auto start_ns = now_ns();
  training_.give(views(), rules);
  run_step(static_cast<float>(loss_scale_.scale / tokens), wrap);
  if (synchronizer_) {
    straggle(step, seconds_since(start_ns));
    const auto synchronizes_ns = now_ns();
    synchronizer_->after_step(rules, options_.steps);
    own.numbers.sync_seconds = seconds_since(synchronizes_ns);
  }
  own.numbers.seconds = seconds_since(start_ns);
  if (!graph_) held_bytes_ = model_.memory().held_by_tasks();
  own.report.norm = rules.rehearses ? synchronizer_->norm() : training_.end().norm();
  own.report.skipped = rules.rehearses ? synchronizer_->skipped() : training_.end().skipped();
  if (counts_losses(options_.layout, model_.place())) own.numbers.loss_sum = training_.loss_sum();
  own.numbers.sent_bytes = sent_bytes();
  own.numbers.copied_bytes = training_.copied_bytes() - copied_before;
  own.numbers.away_bytes = training_.away_bytes();
  own.numbers.peak_bytes = held_bytes().at_peak();
  own.numbers.most_bytes = parallel::total_of(model_.memory().at_peak());
  return own;
}

// Divides the time of several steps evenly among them if ranks only met at the end.
std::vector<StepReport> RankTrainer::told_by_all(const std::vector<OwnStep>& steps) {
  std::vector<Numbers> mine;
  for (const OwnStep& own : steps) mine.push_back(own.numbers);
  std::vector<Numbers> all(mine.size() * static_cast<std::size_t>(options_.layout.ranks()));
  mesh_.messages.all_gather(std::as_bytes(std::span<const Numbers>(mine)),
                            std::as_writable_bytes(std::span<Numbers>(all)));
  std::vector<StepReport> reports;
  for (const OwnStep& own : steps) reports.push_back(own.report);
  const auto count = static_cast<double>(steps.size());
  double slowest = 0;
  double sync_seconds = 0;
  for (auto rank = all.begin(); rank != all.end(); rank += static_cast<std::ptrdiff_t>(mine.size())) {
    double seconds = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const Numbers& of_step = rank[static_cast<std::ptrdiff_t>(i)];
      reports[i].loss += of_step.loss_sum / static_cast<double>(options_.tokens_per_step());
      reports[i].sent_bytes = std::max(reports[i].sent_bytes, of_step.sent_bytes);
      reports[i].most_bytes = std::max(reports[i].most_bytes, of_step.most_bytes);
      reports[i].copied_bytes = std::max(reports[i].copied_bytes, of_step.copied_bytes);
      reports[i].away_bytes = std::max(reports[i].away_bytes, of_step.away_bytes);
      if (parallel::total_of(of_step.peak_bytes) > parallel::total_of(reports[i].peak_bytes)) {
        reports[i].peak_bytes = of_step.peak_bytes;
      }
      seconds += of_step.seconds;
      sync_seconds += of_step.sync_seconds;
    }
    slowest = std::max(slowest, seconds);
  }
  for (StepReport& report : reports) {
    report.steps_reported = report.step == reports.back().step ? static_cast<std::int64_t>(steps.size()) : 0;
    report.seconds = slowest / count;
    report.sync_seconds = sync_seconds / options_.layout.ranks() / count;
  }
  return reports;
}

StepReport RankTrainer::train_step(std::int64_t step, const WorkerWrap& wrap) {
  StepReport report = told_by_all({own_step(step, wrap)}).front();
  report.expert_loads = expert_loads();
  if (!report.skipped) balance_experts(report.expert_loads);
  if (options_.layout.compute == core::DType::f16) {
    loss_scale_ = next_loss_scale(options_.loss_scale, loss_scale_, !report.skipped);
  }
  return report;
}

std::vector<StepReport> RankTrainer::train_round(std::int64_t first) {
  if (!options_.sync.averages()) return {train_step(first)};
  std::vector<OwnStep> steps;
  do {
    steps.push_back(own_step(first + static_cast<std::int64_t>(steps.size()), {}));
  } while (!options_.sync.agrees_after(steps.back().report.step, options_.steps));
  return told_by_all(steps);
}

// Each rank has some of the layers and some of the tokens.
std::vector<std::vector<std::int64_t>> RankTrainer::expert_loads() {
  const auto experts = static_cast<std::size_t>(options_.model.experts);
  const auto layers = static_cast<std::size_t>(options_.model.layers);
  if (experts == 0) return {};
  std::vector<std::int64_t> mine(layers * experts);
  for (const RankStage& stage : model_.stages()) {
    auto to = mine.begin() + static_cast<std::ptrdiff_t>(stage.plan->place.first_layer) * options_.model.experts;
    for (const std::vector<std::int64_t>& layer : stage.model->loads()) to = std::copy(layer.begin(), layer.end(), to);
  }
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(options_.layout.ranks()));
  mesh_.messages.all_gather(std::as_bytes(std::span<const std::int64_t>(mine)),
                            std::as_writable_bytes(std::span<std::int64_t>(all)));
  std::vector<std::vector<std::int64_t>> loads(layers, std::vector<std::int64_t>(experts));
  for (std::size_t i = 0; i < all.size(); ++i) loads[i % mine.size() / experts][i % experts] += all[i];
  return loads;
}

void RankTrainer::balance_experts(const std::vector<std::vector<std::int64_t>>& loads) {
  for (const RankStage& stage : model_.stages()) {
    const workload::StageSlice& place = stage.plan->place;
    for (std::int64_t layer = 0; !loads.empty() && layer < place.layers; ++layer) {
      stage.model->balance(layer, loads[static_cast<std::size_t>(place.first_layer + layer)]);
    }
  }
}

schedules::StepTimeline RankTrainer::gather_timeline() {
  return trainer::gather_timeline(mesh_, training_.start_ns(), spans_);
}

// Each tensor-parallel rank of the first data-parallel rank has the logits of some words and sends them to all.
std::vector<float> RankTrainer::logits_behind(std::span<const std::int32_t> tokens) {
  const auto length = static_cast<std::size_t>(options_.model.sequence);
  for (RankBatch& batch : batches_) {
    std::fill(batch.tokens.begin(), batch.tokens.end(), 0);
    std::fill(batch.targets.begin(), batch.targets.end(), 0);
    std::copy(tokens.begin(), tokens.end(), batch.tokens.begin());
  }
  forward_.give(views(), {});
  forward_.begin_step(Mode::generate, 0);
  LOCKSTEP_CHECK(!tokens.empty() && tokens.size() <= length, "a prompt is not empty and fits the positions");
  std::vector<float> mine(static_cast<std::size_t>(words_per_rank(options_.model, options_.layout)));
  const TokenPosition last = place_of(model_.shape(), static_cast<std::int64_t>(tokens.size()) - 1);
  const auto keep = [&](RankStage& stage, std::int32_t microbatch) {
    const std::vector<float> logits = stage.model->logits(microbatch + last.slice);
    if (last.context != model_.place().cp) return;
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(last.row) * static_cast<std::ptrdiff_t>(mine.size());
    std::copy(row, row + static_cast<std::ptrdiff_t>(mine.size()), mine.begin());
  };
  forward_.keep_results(keep);
  steps_.run(made_.forward, forward_);
  forward_.keep_results({});
  std::vector<float> all(mine.size() * static_cast<std::size_t>(options_.layout.ranks()));
  mesh_.messages.all_gather(std::as_bytes(std::span<const float>(mine)), std::as_writable_bytes(std::span<float>(all)));
  const std::int32_t head = made_.step.rank_of_stage.back();
  std::vector<float> logits;
  // On a grid these are the ranks that have the first rows.
  for (std::int32_t t = 0; t < column_ranks(options_.layout); ++t) {
    const auto rank = static_cast<std::ptrdiff_t>(rank_at(options_.layout, {.tp = t, .pp = head, .cp = last.context}));
    const auto words = static_cast<std::ptrdiff_t>(mine.size());
    logits.insert(logits.end(), all.begin() + rank * words, all.begin() + (rank + 1) * words);
  }
  return logits;
}

std::vector<std::int32_t> RankTrainer::generate(const std::vector<std::int32_t>& prompt, std::int64_t count,
                                                std::int64_t words, double temperature) {
  core::Random random(options_.seed);
  std::vector<std::int32_t> text = prompt;
  const auto next_logits = [&] {
    const auto seen = std::min(text.size(), static_cast<std::size_t>(options_.model.sequence));
    return logits_behind(std::span<const std::int32_t>(text).last(seen));
  };
  if (steps_.is_queued()) {  // as in rehearse(): logits that are kept need more memory than a step
    model_.collectives().use(CollectiveUse::leave_out);
    next_logits();
    model_.collectives().use(CollectiveUse::run);
    sum_over_ranks(0);  // serves as a barrier
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<float> logits = next_logits();
    const auto known = std::span(logits).first(static_cast<std::size_t>(words));
    text.push_back(static_cast<std::int32_t>(drawn_word(known, temperature, random.uniform())));
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  return text;
}

void RankTrainer::settle_update() {
  if (model_.layout().delayed_update) training_.settle_update();
}

void RankTrainer::gather_weights() {
  if (zero_of(model_.layout()) == 1 || zero_of(model_.layout()) == 2) training_.gather_weights();
}

double RankTrainer::validate() {
  const std::int64_t a_pass = options_.layout.global_batch();
  const std::int64_t text = static_cast<std::int64_t>(corpus_.validation().size());
  const std::int64_t wanted = std::min(options_.validation_sequences, max_windows(text, options_.model.sequence));
  const std::int64_t passes = (wanted + a_pass - 1) / a_pass;
  const bool counts = counts_losses(options_.layout, model_.place());
  double sum = 0;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::size_t m = 0; m < batches_.size(); ++m) {
      const std::int64_t place = static_cast<std::int64_t>(m) * options_.layout.dp + replica_;
      take_windows(corpus_.validation(), pass * a_pass + place * options_.layout.microbatch_size, passes * a_pass,
                   options_.model.sequence, batches_[m].tokens, batches_[m].targets);
      check_words(batches_[m]);
    }
    evaluate();
    if (counts) sum += forward_.loss_sum();
  }
  return sum_over_ranks(sum) / static_cast<double>(passes * options_.tokens_per_step());
}

}  // namespace lockstep::trainer
