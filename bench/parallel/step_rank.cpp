#include "bench/parallel/step_rank.h"

#include <algorithm>

#include "trainer/data/batches.h"

namespace lockstep::parallel_bench {

using transports::now_ns;

StepRank::StepRank(const trainer::TrainOptions& options, const trainer::TrainStep& made, const trainer::Corpus& corpus,
                   backends::MeshRank& mesh, const trainer::ChannelMap& channels)
    : options_(options),
      corpus_(corpus),
      mesh_(mesh),
      steps_(options, made, mesh, channels),
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
  const trainer::UpdateRules rules{.adamw = options_.adamw, .step = number, .rehearses = rehearses};
  worker.give(microbatches, rules);
  worker.begin_step(trainer::Mode::train, 1.0F / static_cast<float>(options_.tokens_a_step()));
}

StepRank::Timed StepRank::run_timed(trainer::TrainWorker& worker, const schedules::Step& step, std::int64_t number) {
  begin(worker, number);
  mesh_.settle();  // a step of collectives alone waits for no kernels, and so not for the zeros of its gradients
  mesh_.messages.barrier();
  const std::int64_t start_ns = now_ns();
  Timed timed;
  timed.spans = steps_.run(step, worker);
  const std::vector<double> all =
      transports::all_gather_value(mesh_.messages, static_cast<double>(now_ns() - start_ns) * 1e-6);
  timed.ms = *std::max_element(all.begin(), all.end());
  return timed;
}

void StepRank::run_alone(trainer::TrainWorker& worker, const schedules::Step& step) {
  begin(worker, 1);
  steps_.run(step, worker);
}

bool agreed(backends::MeshRank& mesh, bool mine) {
  return transports::all_gather_value(mesh.messages, mine ? 1 : 0).front() != 0;
}

}  // namespace lockstep::parallel_bench
