#include "trainer/train/train.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/places.h"
#include "collectives/backends/plan_choice.h"
#include "collectives/collective.h"
#include "core/device_cpu.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "trainer/step/memory_need.h"
#include "trainer/train/rank_setup.h"
#include "trainer/train/resume.h"

namespace lockstep::trainer {
namespace {

bool is_due(std::int64_t step, std::int64_t every, std::int64_t last) {
  return step == last || (every > 0 && step % every == 0);
}

void run_steps(const TrainOptions& options, RankTrainer& trainer, TrainResult& result, const TrainObserver& observer) {
  const bool tells = trainer.model().rank() == 0;
  if (!options.init_from.empty()) init_run(trainer, options, options.init_from);
  const std::int64_t done = options.resume.empty() ? 0 : resume_run(trainer, options, options.resume);
  for (std::int64_t step = done + 1; step <= options.steps; ++step) {
    const StepReport report = trainer.train_step(step);
    schedules::StepTimeline timeline;
    if (is_due(step, options.timeline_every, options.steps)) timeline = trainer.gather_timeline();
    if (tells) result.steps.push_back(report);
    if (tells) observer.step(report, timeline);
    if (!options.checkpoint_folder.empty() && is_due(step, options.checkpoint_every, options.steps)) {
      save_run(trainer, options, step);
    }
    if (!is_due(step, options.validate_every, options.steps)) continue;
    const double loss = trainer.validate();
    if (!tells) continue;
    result.validation_loss = loss;
    observer.validation(step, loss);
  }
  if (options.sample_tokens > 0) {
    const Tokenizer& tokenizer = *options.tokenizer;
    const std::vector<std::int32_t> written = trainer.generate(tokenizer.encode(options.prompt), options.sample_tokens,
                                                               tokenizer.size(), options.temperature);
    if (tells) result.sample = tokenizer.decode(written);
  }
  if (!options.export_file.empty()) export_run(trainer, options, std::max(done, options.steps), options.export_file);
}

// Refuses algorithms that do not exist, or not for this number of ranks, before anything runs.
void check_algorithm(const TrainOptions& options) {
  if (options.algorithm == "auto") return;
  // Among three ranks and more its sums differ from rank to rank in their last bits, and replicas would drift apart.
  if (options.algorithm.rfind("one_shot", 0) == 0) {
    throw core::usage_error("--algo is one_shot, whose ranks sum in orders of their own; allowed: an algorithm that " +
                            std::string("gives all ranks the same bits, such as ring or two_shot"));
  }
  const collectives::Operation smallest{.kind = collectives::Kind::all_reduce, .count = 1};
  if (options.layout.ranks() == 1) backends::plan_for(smallest, 2, options.algorithm);
  for (const std::int32_t ranks : {data_ranks_of(options.layout), options.layout.tp}) {
    if (ranks > 1) backends::plan_for(smallest, ranks, options.algorithm);
  }
}

// Ranks take GPUs in turn, or share the chosen one.
std::vector<GpuRoom> gpu_rooms(const TrainOptions& options) {
  std::vector<GpuRoom> rooms;
  const std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  const int ranks = options.layout.ranks();
  for (const core::CudaDeviceInfo& gpu : gpus) {
    GpuRoom room{.name = "cuda:" + std::to_string(gpu.index) + ", " + gpu.name + ",", .ranks = {}};
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const int in_turn = backends::gpu_place(rank, ranks, static_cast<int>(gpus.size())).device;
      if (gpu.index == (options.device.index < 0 ? in_turn : options.device.index)) room.ranks.push_back(rank);
    }
    if (room.ranks.empty()) continue;
    room.free_bytes = static_cast<std::int64_t>(core::cuda_free_bytes(gpu.index));
    rooms.push_back(room);
  }
  return rooms;
}

// Messages between stages go by the host.
void check_graph(const TrainOptions& options) {
  if (!options.graph) return;
  if (!options.device.cuda) throw core::usage_error("--graph together with --device cpu; allowed: --device cuda");
  if (options.layout.pp > 1) {
    throw core::usage_error("--graph together with --pp " + std::to_string(options.layout.pp) +
                            ": stages exchange messages by the host; allowed: --pp 1");
  }
}

// Refuses options that need CPU threads or emulated links, which CUDA does not have.
void check_device(const TrainOptions& options) {
  check_graph(options);
  if (!options.device.cuda) return;
  const auto refuse = [](const std::string& with, const std::string& allowed) {
    throw core::usage_error("--device cuda together with " + with + "; allowed: " + allowed);
  };
  if (options.mpi != nullptr) refuse("--transport mpi", "--transport local");
  if (options.link) refuse("--link", "no emulated links");
  if (options.compression != parallel::Compression::none) refuse("--compression", "--compression none");
  if (const auto why = core::why_no_cuda()) throw core::Error(core::Failure::not_built, "--device cuda: " + *why);
}

}  // namespace

TrainOptions checked(TrainOptions options) {
  check_layout(options.model, options.layout);
  const bool cuts = options.sample_tokens > 0 || !options.tokenizer->is_bytes();
  if (cuts && options.tokenizer->size() > options.model.vocabulary) {
    throw core::usage_error("--tokenizer " + options.tokenizer->name() + " has " +
                            std::to_string(options.tokenizer->size()) + " words, and the model's vocabulary is " +
                            std::to_string(options.model.vocabulary) + "; allowed: a --vocabulary of at least as many");
  }
  const bool compresses = options.compression != parallel::Compression::none;
  const bool all_reduces = zero_of(options.layout) == 0 || replicas_of(options.layout) > 1;
  if (compresses && (!all_reduces || options.layout.gradient != core::DType::f32)) {
    throw core::usage_error("--compression is " + std::string(name_of(options.compression)) +
                            " together with --zero or a narrow --grad-dtype; allowed: with all-reduces of f32 " +
                            "gradients, --grad-dtype f32 and --zero 0, or --shard-ranks less than --dp");
  }
  check_algorithm(options);
  check_device(options);
  return options;
}

void check_room(const TrainOptions& options, const TrainStep& made) {
  if (options.device.cuda) return check_gpu_memory(made, options.model, options.layout, gpu_rooms(options));
  if (options.mpi != nullptr) return;
  check_memory(made, options.model, options.layout, static_cast<std::int64_t>(core::available_host_bytes()));
}

void run_ranks(const TrainOptions& options, const TrainStep& made, std::span<const schedules::Step* const> steps,
               const std::function<void(backends::MeshRank&, const ChannelMap&)>& body) {
  check_room(options, made);
  const ChannelMap channels(steps);
  backends::MeshOptions mesh = mesh_of(options);
  mesh.queue_of_channel = channels.queues();
  backends::run_mesh(mesh, channels.channels(), [&](backends::MeshRank& rank) { body(rank, channels); });
}

void run_trainers(const TrainOptions& options, const Corpus& corpus,
                  const std::function<void(const TrainStep& made, RankTrainer& trainer)>& body) {
  const TrainStep made = make_train_step(options.model, options.layout);
  const std::array<const schedules::Step*, 2> steps{&made.step, &made.forward};
  run_ranks(options, made, steps, [&](backends::MeshRank& rank, const ChannelMap& channels) {
    RankTrainer trainer(options, made, corpus, rank, channels);
    trainer.rehearse();
    body(made, trainer);
  });
}

TrainResult train(TrainOptions options, const Corpus& corpus, const TrainObserver& observer) {
  options = checked(std::move(options));
  if (options.sample_tokens > 0 && options.tokenizer->is_bytes() && !corpus.is_bytes()) {
    throw core::usage_error("--sample together with tokens in " + corpus.name() +
                            ", which nothing here turns into text; allowed: with the --tokenizer that made them");
  }
  TrainResult result;
  run_trainers(options, corpus, [&](const TrainStep& made, RankTrainer& trainer) {
    if (trainer.model().rank() == 0) observer.begin(made);
    run_steps(options, trainer, result, observer);
  });
  return result;
}

}  // namespace lockstep::trainer
