#include "trainer/train/train.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/backends/backend.h"
#include "collectives/backends/places.h"
#include "collectives/collective.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "core/module_loading.h"
#include "kernels/attention/attention.h"
#include "trainer/checkpoint/hugging_face.h"
#include "trainer/step/train_step.h"
#include "trainer/train/async_run.h"
#include "trainer/train/rank_steps.h"
#include "workload/build_step.h"

namespace lockstep::trainer {
namespace {

// True if something due every `every` steps falls into the steps from first to step, which averaging replicas run
// independently.
bool is_due(std::int64_t first, std::int64_t step, std::int64_t every, std::int64_t last) {
  return step == last || (every > 0 && step / every > (first - 1) / every);
}

void run_steps(const TrainOptions& options, RankTrainer& trainer, TrainResult& result, const TrainObserver& observer) {
  const bool is_first = trainer.model().rank() == 0;
  if (!options.init_from.empty()) init_run(trainer, options, options.init_from);
  const std::int64_t done = options.resume.empty() ? 0 : resume_run(trainer, options, options.resume);
  if (is_first) {
    const std::string note =
        options.resume.empty() ? note_on_weights(options) : note_on_resume(options, options.resume);
    if (!note.empty()) observer.note(note);
  }
  for (std::int64_t step = done + 1; step <= options.steps; ++step) {
    const std::vector<StepReport> round = trainer.train_round(step);
    const std::int64_t first = std::exchange(step, round.back().step);
    const auto due = [&](std::int64_t every) { return is_due(first, step, every, options.steps); };
    schedules::StepTimeline timeline;
    if (due(options.timeline_every)) timeline = trainer.gather_timeline();
    for (const StepReport& report : round) {
      if (is_first) result.steps.push_back(report);
      if (is_first) observer.step(report, report.step == step ? timeline : schedules::StepTimeline{});
    }
    const bool saves = !options.checkpoint_folder.empty() && due(options.checkpoint_every);
    if (saves || due(options.validate_every)) trainer.settle_update();
    if (saves) save_run(trainer, options, step);
    if (!due(options.validate_every)) continue;
    const double loss = trainer.validate();
    if (!is_first) continue;
    result.validation_loss = loss;
    observer.validation(step, loss);
  }
  if (options.sample_tokens > 0) {
    const Tokenizer& tokenizer = *options.tokenizer;
    const std::vector<std::int32_t> written = trainer.generate(tokenizer.encode(options.prompt), options.sample_tokens,
                                                               tokenizer.size(), options.temperature);
    if (is_first) result.sample = tokenizer.decode(written);
  }
  if (!options.export_file.empty()) export_run(trainer, options, std::max(done, options.steps), options.export_file);
}

[[noreturn]] void refuse(const std::string& flag, const std::string& with, const std::string& allowed) {
  throw core::usage_error(flag + " together with " + with + "; allowed: " + allowed);
}

// Refuses unknown algorithms, and ones that do not take this number of ranks, before anything runs.
void check_algorithm(const TrainOptions& options) {
  if (options.algorithm == "auto") return;
  // With three or more ranks its sums differ between ranks in their last bits, and replicas would drift apart.
  if (options.algorithm.rfind("one_shot", 0) == 0) {
    throw core::usage_error(
        "--algo one_shot sums in a different order on each rank; allowed: an algorithm that gives all ranks the same "
        "bits, such as ring or two_shot");
  }
  const collectives::Operation smallest{.kind = collectives::Kind::all_reduce, .count = 1};
  if (options.layout.ranks() == 1) backends::plan_for(smallest, 2, options.algorithm);
  for (const std::int32_t ranks : {data_ranks_of(options.layout), options.layout.tp}) {
    if (ranks > 1) backends::plan_for(smallest, ranks, options.algorithm);
  }
}

// Ranks that are threads are assigned to GPUs round-robin, or share the chosen GPU.
std::vector<GpuRoom> gpu_rooms(const TrainOptions& options) {
  std::vector<GpuRoom> rooms;
  const std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  const int ranks = options.layout.ranks();
  for (const core::CudaDeviceInfo& gpu : gpus) {
    GpuRoom room{.name = "cuda:" + std::to_string(gpu.index) + ", " + gpu.name + ",", .ranks = {}};
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const int in_turn = backends::assigned_gpu(rank, ranks, static_cast<int>(gpus.size())).device;
      if (gpu.index == (options.device.index < 0 ? in_turn : options.device.index)) room.ranks.push_back(rank);
    }
    if (room.ranks.empty()) continue;
    room.free_bytes = static_cast<std::int64_t>(core::cuda_free_bytes(gpu.index));
    rooms.push_back(room);
  }
  return rooms;
}

// Runs before the layout's own check, whose messages name layout fields instead of flags.
void check_compression(const TrainOptions& options) {
  const workload::Layout& layout = options.layout;
  if (!layout.compression.given()) return;
  const bool all_reduces = zero_of(layout) == 0 || replicas_of(layout) > 1;
  if (layout.gradient == core::DType::f32 && (all_reduces || sends_codes(layout.compression.way))) return;
  refuse(
      "--compression is " + text_of(layout.compression), "--zero or a 16-bit --grad-dtype",
      "with --grad-dtype f32, and --zero 0 or --shard-ranks less than --dp; int8, int4, fp8 and sign with any --zero");
}

void check_tiles(const TrainOptions& options) {
  if (options.layout.mlp_tiles == 1 || (options.init_from.empty() && options.export_file.empty())) return;
  refuse("mlp_tiles is " + std::to_string(options.layout.mlp_tiles),
         "--init-from or --export, whose files have whole matrices", "mlp_tiles=1");
}

// Messages between stages go through the host, which a graph cannot do.
void check_graph(const TrainOptions& options) {
  if (!options.graph) return;
  if (!options.device.cuda) throw core::usage_error("--graph needs --device cuda, not cpu");
  if (options.layout.offload.any()) {
    refuse("--graph", "--offload " + text_of(options.layout.offload) + ": copies run in a stream of their own",
           "--offload none");
  }
  if (options.layout.pp > 1) {
    refuse("--graph", fmt::format("--pp {}: stages exchange messages through the host", options.layout.pp), "--pp 1");
  }
}

// Limits of schedules that train on old weights.
void check_versions(const TrainOptions& options) {
  const schedules::Versions versions = versions_of(options.layout);
  if (versions == schedules::Versions::one) return;
  const std::string flag = "--schedule " + options.layout.schedule + ", which trains on old weights,";
  if (options.graph) refuse(flag, "--graph", "no --graph");
  if (options.sync.replicas_step_alone()) refuse(flag, "--sync " + text_of(options.sync), "--sync allreduce");
  const bool saves = !options.checkpoint_folder.empty() || !options.resume.empty();
  if (versions == schedules::Versions::double_buffered && saves) {
    refuse(flag, "--checkpoint or --resume", "neither, because a checkpoint has only the newest weights");
  }
  if (versions == schedules::Versions::in_flight && options.most_norm > 0) {
    refuse(flag, fmt::format("--clip {:g}", options.most_norm), "--clip 0, because no stage waits for the global norm");
  }
}

// With this, a bucket is updated before all other gradients are complete.
void check_update(const TrainOptions& options) {
  if (options.layout.update == workload::Update::step_end) return;
  if (options.most_norm > 0) {
    refuse(
        "--update per_bucket",
        fmt::format("--clip {:g}, which needs the norm of all gradients before any weight changes", options.most_norm),
        "--clip 0, or --update step_end");
  }
  if (options.sync.replicas_step_alone()) {
    refuse("--update per_bucket", "--sync " + text_of(options.sync) + ", which needs the gradients of whole steps",
           "--sync allreduce");
  }
}

// Whether the model and every GPU that ranks may take have the kernels of attention that are asked for.
void check_attention(const TrainOptions& options) {
  if (options.attention.empty()) return;
  if (!options.device.cuda) refuse("--attention", "--device cpu", "--device cuda");
  const std::int64_t columns = options.model.head_size;
  if (options.attention == "wgmma" && !kernels::wgmma_takes(options.layout.compute, columns)) {
    throw core::usage_error(fmt::format(
        "--attention wgmma: heads have {} columns of {}; allowed: 64 or 128 columns with --dtype bf16 or f16, or "
        "--attention mma",
        columns, core::short_name_of(options.layout.compute)));
  }
  for (const core::CudaDeviceInfo& gpu : core::cuda_devices()) {
    if (options.device.index >= 0 && gpu.index != options.device.index) continue;
    if (const auto why = kernels::attention_refusal(options.attention, gpu.compute_capability)) {
      throw core::usage_error("--" + *why);
    }
  }
}

// Experts without a capacity get as many rows as the router sends them, which the host has to know. A rank that takes
// memory for rows of others waits for its device, and thereby perhaps for a rank that waits for this one.
void check_dropless(const TrainOptions& options) {
  if (options.model.experts == 0 || options.model.capacity_factor > 0) return;
  const std::string with = fmt::format("--experts {} without a capacity", options.model.experts);
  if (options.layout.ep > 1) {
    refuse("--device cuda", fmt::format("{} and --ep {}", with, options.layout.ep),
           "capacity_factor=1.25 in --model, or --ep 1");
  }
  if (options.graph) refuse("--device cuda", with + " and --graph", "capacity_factor=1.25 in --model, or no --graph");
}

// Before anything of CUDA is called: processes of mpirun do not know here how many of them share a GPU.
void choose_module_loading(const TrainOptions& options) {
  if (!options.device.cuda || options.mpi != nullptr) return;
  const int gpus = options.device.index < 0 ? core::gpus_before_cuda().value_or(1) : 1;
  core::choose_module_loading(options.layout.ranks(), gpus);
}

// Refuses options that need CPU threads or emulated links, which runs on CUDA do not have.
void check_device(const TrainOptions& options) {
  choose_module_loading(options);
  check_graph(options);
  check_attention(options);
  if (!options.device.cuda) return;
  const std::string flag = "--device cuda";
  if (options.mpi != nullptr && !options.device.nccl) refuse(flag, "--transport mpi", "--transport local or nccl");
  if (options.link) refuse(flag, "--link", "no emulated links");
  if (options.layout.compression.given()) refuse(flag, "--compression", "--compression none");
  if (options.layout.weight_compression != workload::CompressionWay::none) {
    refuse(flag, "--weight-compression", "--weight-compression none");
  }
  check_dropless(options);
  if (options.wrap_device) return;  // a test's device, which works like a GPU
  if (const auto why = core::why_no_cuda()) throw core::Error(core::Failure::not_built, "--device cuda: " + *why);
}

// Limits of replicas that step independently.
void check_replicas(const TrainOptions& options) {
  const workload::Layout& layout = options.layout;
  const std::string flag = "--sync " + text_of(options.sync);
  if (layout.dp < 2) refuse(flag, "--dp 1", "--dp 2 or more");
  if (layout.zero > 0) refuse(flag, "--zero " + std::to_string(layout.zero), "--zero 0");
  if (layout.cp > 1) refuse(flag, "--cp " + std::to_string(layout.cp), "--cp 1");
  if (pipes_of(layout) > 1) refuse(flag, "--schedule " + layout.schedule, "a schedule of one pipe, such as 1f1b");
  if (options.model.experts > 0) refuse(flag, "--experts " + std::to_string(options.model.experts), "--experts 0");
  if (layout.offload.any()) refuse(flag, "--offload", "--offload none");
  if (layout.compute == core::DType::f16) refuse(flag, "--dtype f16", "--dtype f32 or bf16");
  if (options.device.cuda) refuse(flag, "--device cuda", "--device cpu");
  if (options.layout.compression.given()) refuse(flag, "--compression", "--compression none");
  if (!options.checkpoint_folder.empty() || !options.resume.empty() || !options.export_file.empty()) {
    refuse(flag, "--checkpoint, --resume or --export", "none of these, because each replica has its own state");
  }
}

void check_server_rank(const TrainOptions& options) {
  if (!options.sync.has_server_rank()) return;
  const std::string flag = "--sync " + text_of(options.sync);
  if (options.layout.tp > 1) refuse(flag, "--tp " + std::to_string(options.layout.tp), "--tp 1");
  if (options.layout.pp > 1) refuse(flag, "--pp " + std::to_string(options.layout.pp), "--pp 1");
  if (options.sample_tokens > 0) refuse(flag, "--sample", "no --sample");
  if (!options.init_from.empty()) refuse(flag, "--init-from", "no --init-from");
  if (options.validate_every > 0) refuse(flag, "--validate-every", "validation only at the end");
}

void check_sync(const TrainOptions& options) {
  if (!options.sync.replicas_step_alone()) {
    if (!options.straggler.given()) return;
    throw core::usage_error(
        "--straggler requires --sync with replicas that step independently, such as --sync server:servers=" +
        std::to_string(options.layout.dp));
  }
  check_replicas(options);
  check_server_rank(options);
  if (options.sync.servers > options.layout.dp) {
    refuse("--sync " + text_of(options.sync), fmt::format("--dp {}", options.layout.dp), "servers=1 to --dp");
  }
  if (options.straggler.replica >= options.layout.dp) {
    throw core::usage_error("--straggler " + text_of(options.straggler) + ": allowed: replica=0 to " +
                            std::to_string(options.layout.dp - 1) + ", or any");
  }
}

}  // namespace

TrainOptions checked(TrainOptions options) {
  check_compression(options);
  check_tiles(options);
  if (!options.export_file.empty() || !options.init_from.empty()) {
    HuggingFaceNames{options.model};  // refuses models that such files cannot hold
  }
  note_on_weights(options);  // refuses files that do not fit
  check_layout(options.model, options.layout);
  options.layout = balanced(options.model, options.layout, workload::declared_price);
  const bool cuts = options.sample_tokens > 0 || !options.tokenizer->is_bytes();
  if (cuts && options.tokenizer->size() > options.model.vocabulary) {
    throw core::usage_error("--tokenizer " + options.tokenizer->name() + " has " +
                            std::to_string(options.tokenizer->size()) + " words, but the model's vocabulary is " +
                            std::to_string(options.model.vocabulary) + "; allowed: a --vocabulary of at least as many");
  }
  if (options.sample_tokens > 0 && options.tokenizer->encode(options.prompt).empty()) {
    throw core::usage_error("--sample with an empty --prompt; allowed: a prompt of at least one token");
  }
  const workload::OffloadPlaces on_host{.optimizer = options.layout.offload.optimizer};
  if (options.device.cuda && (options.layout.offload != on_host || on_host.any_in(workload::Offload::file))) {
    throw core::usage_error(
        "offload is " + text_of(options.layout.offload) +
        " together with --device cuda; allowed: host, which is the optimizer's place, or --device cpu");
  }
  if (options.device.cuda && evicts_activations(options.layout)) {
    throw core::usage_error("--device cuda with schedule " + options.layout.schedule +
                            ", which moves activations in host memory; allowed: --device cpu");
  }
  if (options.device.cuda && options.layout.cp > 1 && options.layout.cp_way == workload::ContextWay::colossal) {
    throw core::usage_error(
        "--device cuda with cp_way=colossal, whose mask the host writes; allowed: --device cpu, or another cp_way");
  }
  if (options.device.cuda && options.layout.has_grid()) {
    throw core::usage_error("--device cuda with tp_grid=" + text_of(options.layout.grid) +
                            ", whose norms run on the CPU only; allowed: --device cpu, or tp_grid=none");
  }
  check_algorithm(options);
  check_device(options);
  check_versions(options);
  check_update(options);
  check_sync(options);
  check_resume(options);
  return options;
}

namespace {

// With DiLoCo: the weights of the last agreement and the outer momentum.
std::int64_t outer_bytes(const TrainOptions& options, const TrainStep& made, std::int32_t rank) {
  if (options.sync.way != SyncWay::diloco) return 0;
  std::int64_t elems = 0;
  for (const std::int32_t s : stages_of(made, coordinates_of(made.layout, rank).pp)) {
    for (const workload::Parameter& parameter : made.stages[static_cast<std::size_t>(s)].parameters) {
      elems += elems_of_rank(parameter, made.layout);
    }
  }
  return 2 * elems * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

parallel::BytesByKind most_needed(const TrainOptions& options, const TrainStep& made) {
  if (!options.sync.replicas_step_alone()) return most_needed(made, options.model, options.layout);
  const TrainStep replica = make_train_step(options.model, made.layout);
  parallel::BytesByKind most = {};
  for (std::int32_t rank = 0; rank < made.layout.ranks(); ++rank) {
    parallel::BytesByKind need = memory_need(replica, options.model, made.layout, rank).at_peak();
    need[static_cast<std::size_t>(parallel::MemoryKind::optimizer)] += outer_bytes(options, replica, rank);
    if (parallel::total_of(need) > parallel::total_of(most)) most = need;
  }
  return most;
}

namespace {

void check_budget(const TrainOptions& options, const TrainStep& made) {
  const std::int64_t needed = parallel::total_of(most_needed(options, made));
  if (needed <= options.device_memory) return;
  throw core::usage_error(options.model.name + " needs " + std::to_string(needed) +
                          " bytes on a rank, but --device-memory is " + std::to_string(options.device_memory) +
                          "; allowed: more memory, a smaller microbatch, recomputation, more ranks with --zero, or "
                          "--offload");
}

}  // namespace

void check_room(const TrainOptions& options, const TrainStep& made) {
  if (options.device_memory > 0) check_budget(options, made);
  if (options.sync.replicas_step_alone() && options.mpi == nullptr) {
    return check_memory(make_train_step(options.model, made.layout), options.model, made.layout,
                        static_cast<std::int64_t>(core::available_host_bytes()) / options.layout.dp);
  }
  if (options.mpi != nullptr && options.device.cuda) return;  // a process may see other GPUs than its neighbours
  if (options.device.cuda) return check_gpu_memory(made, options.model, options.layout, gpu_rooms(options));
  if (options.mpi != nullptr) return;
  check_memory(made, options.model, options.layout, static_cast<std::int64_t>(core::available_host_bytes()));
}

void run_ranks(const TrainOptions& options, const TrainStep& made, std::span<const schedules::Step* const> steps,
               const std::function<void(backends::MeshRank&, const ChannelMap&)>& body) {
  check_room(options, made);
  const ChannelMap channels(steps, peers_of(options));
  backends::MeshOptions mesh = mesh_of(options);
  mesh.queue_of_channel = channels.queues();
  mesh.channel_names = channels.names();
  backends::run_mesh(mesh, channels.channels(), [&](backends::MeshRank& rank) { body(rank, channels); });
}

void run_trainers(const TrainOptions& options, const Corpus& corpus,
                  const std::function<void(const TrainStep& made, RankTrainer& trainer)>& body) {
  const TrainStep made = step_of(options);
  const std::array<const schedules::Step*, 2> steps{&made.step, &made.forward};
  run_ranks(options, made, steps, [&](backends::MeshRank& rank, const ChannelMap& channels) {
    RankTrainer trainer(options, made, corpus, rank, channels);
    trainer.rehearse();
    body(made, trainer);
  });
}

TrainResult train(const TrainOptions& options, const Corpus& corpus, const TrainObserver& observer) {
  if (options.sample_tokens > 0 && options.tokenizer->is_bytes() && !corpus.is_bytes()) {
    throw core::usage_error("--sample cannot turn the tokens of " + corpus.name() +
                            " into text; allowed: with the --tokenizer that made them");
  }
  if (options.sync.has_server_rank()) return train_async(options, corpus, observer);
  TrainResult result;
  run_trainers(options, corpus, [&](const TrainStep& made, RankTrainer& trainer) {
    if (trainer.model().rank() == 0) observer.begin(made);
    run_steps(options, trainer, result, observer);
  });
  return result;
}

}  // namespace lockstep::trainer
