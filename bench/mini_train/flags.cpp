#include "bench/mini_train/flags.h"

#include <algorithm>
#include <array>

#include "kernels/attention/attention.h"
#include "simulator/machine/machine.h"

namespace lockstep::mini_train {

using program::file_name;
using program::FlagValue;

workload::ContextWay context_way_of(const FlagValue& value) {
  return static_cast<workload::ContextWay>(value.index_of(workload::kContextWays));
}

workload::Model model_of(const FlagValue& value) {
  return value.parsed_by(workload::parse_model);
}

void LayoutFlag::read(workload::Layout& layout, const FlagValue& value) const {
  workload::set_field(layout, field, value);
  if (most > 0 && core::parse_number<std::int64_t>(value.text).value_or(0) > most)
    throw value.refused("out of range", "at most " + std::to_string(most));
}

void ModelFlag::read(std::string& model, const FlagValue& value) const {
  const std::int64_t number = value.integer(least, most);
  const std::int64_t positions = up_to_positions ? model_of({"--model", model}).positions : number;
  if (number > positions) {
    throw value.refused("out of range", "1 to " + std::to_string(positions) +
                                            " (the model's positions), or a --model with positions=" + value.text);
  }
  model += std::string(",") + field + "=" + value.text;
}

transports::LinkSpec link_of(const FlagValue& value) {
  return value.parsed_by(transports::parse_link);
}

void set_sequences(const SequenceFlags& given, workload::Layout& layout) {
  if (given.microbatch_size > 0) layout.microbatch_size = given.microbatch_size;
  if (given.microbatches > 0) layout.microbatches = given.microbatches;
  if (given.batch == 0) return;
  const program::FlagValue batch{"--batch", std::to_string(given.batch)};
  const std::string ranks = std::to_string(layout.dp) + " data-parallel rank" + (layout.dp == 1 ? "" : "s");
  if (given.microbatch_size == 0 && layout.dp * layout.microbatches > 1) {
    throw batch.refused("counts the sequences of an optimizer step, here " + std::to_string(layout.microbatches) +
                            " microbatches on each of " + ranks + ", and their size is not given",
                        "together with --microbatch-size; or, for " + batch.text +
                            " sequences per microbatch, --microbatch-size " + batch.text + " without --batch");
  }
  if (given.microbatch_size == 0) layout.microbatch_size = given.batch;
  const std::int64_t each = layout.dp * layout.microbatch_size;
  const std::int64_t number = given.microbatches > 0 ? given.microbatches : given.batch / each;
  if (number == 0 || number * each != given.batch) {
    throw batch.refused(
        "not " + (given.microbatches > 0 ? std::to_string(number) + " " : "") + "microbatches of " +
            std::to_string(layout.microbatch_size) + " sequences on " + ranks,
        (given.microbatches > 0 ? "" : "multiples of ") + std::to_string(each * std::max(given.microbatches, 1)));
  }
  layout.microbatches = static_cast<std::int32_t>(number);
}

namespace {

using Flag = program::FlagOf<TrainFlags>;

constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr int kMostRanks = 1024;

std::string gemm_of(const FlagValue& v) {
  std::vector<std::string_view> names{kProbeGemms, trainer::TrainOptions::kPerShape};
  names.insert(names.end(), std::begin(kernels::kGemmNames), std::end(kernels::kGemmNames));
  return v.one_of(names);
}

std::shared_ptr<const trainer::Tokenizer> tokenizer_of(const FlagValue& v) {
  return std::make_shared<const trainer::Tokenizer>(trainer::Tokenizer::of_file(file_name(v)));
}

constexpr const char* kModel = "Model and data";
constexpr const char* kLayout = "Layout";
constexpr const char* kOptimizer = "Optimizer";
constexpr const char* kTraining = "Training";
constexpr const char* kRun = "Ranks and output";

constexpr std::array kFlagsOfMixture{
    ModelFlag{"--experts", "",
              "experts of each layer's MLP; fields of --model set the mixture's other parameters (simulate --list)",
              "experts", 0, 1024},
    ModelFlag{"--top-k", "", "experts per token [2]", "experts_per_token", 1, 16},
};

const std::array kFlagsOfModel{
    Flag{"--model", "nano", "a name from --list, fields, or a name with overrides: nano,layers=2 (as simulate --model)",
         [](TrainFlags& f, const FlagValue& v) { f.model = v.text; }},
    Flag{"--layout", "",
         "the layout as one text, tp=2,pp=2,batch=16 (as simulate --layout; simulate --list explains it); fields that "
         "it omits keep their defaults (dtype=f32,microbatch=8,early_stop=yes,overlap_p2p=yes), and the flags below "
         "override single ones",
         [](TrainFlags& f, const FlagValue& v) {
           f.options.layout = workload::parse_layout_over(trainer::usual_layout(), v.text);
         }},
    Flag{"--data", "",
         "files, a list: text, or tokens as --tokenize and llm.c write them; token files are memory-mapped, not read "
         "at the start [a synthetic text]",
         [](TrainFlags& f, const FlagValue& v) { f.options.data = program::text_list(v); }},
    Flag{"--tokenizer", "",
         "tokenizer.json of Hugging Face's tokenizers, vocab.json with merges.txt in its folder, or a folder with "
         "these: byte pairs of GPT-2 or Llama 3 [tokens are bytes]",
         [](TrainFlags& f, const FlagValue& v) { f.options.tokenizer = tokenizer_of(v); }},
    Flag{"--tokenize", "", "write the tokens of --data to this file, instead of training",
         [](TrainFlags& f, const FlagValue& v) { f.tokens_file = file_name(v); }},
};

constexpr std::array kFlagsOfLayout{
    LayoutFlag{"--dtype", "",
               "dtype of weights and activations: f32, bf16 or f16 (with f32 master weights) [f32, or the layout's]",
               "dtype"},
    LayoutFlag{"--grad-dtype", "",
               "dtype in which gradients are kept and reduced: f32, or the same as --dtype [f32, or the layout's]",
               "grad_dtype"},
    LayoutFlag{
        "--fp8", "",
        "matrix products of layers in 8-bit floats, emulated on the CPU, with one scale per: none, tensor, row or "
        "block [none, or the layout's]",
        "fp8"},
    LayoutFlag{"--dp", "", "data-parallel ranks [1, or the layout's]", "dp", kMostRanks},
    LayoutFlag{"--tp", "", "tensor-parallel ranks [1, or the layout's]", "tp", kMostRanks},
    LayoutFlag{"--pp", "", "pipeline ranks [1, or the layout's]", "pp", kMostRanks},
    LayoutFlag{"--cp", "", "context-parallel ranks: each has a part of every sequence [1, or the layout's]", "cp",
               kMostRanks},
    LayoutFlag{"--ep", "", "expert-parallel ranks, among the data-parallel ranks [1, or the layout's]", "ep",
               kMostRanks},
    LayoutFlag{"--zero", "", "ZeRO stage over the data- and context-parallel ranks [0, or the layout's]", "zero"},
    LayoutFlag{
        "--shard-ranks", "",
        "neighbouring ranks that share one set of shards; other ranks hold replicas (HSDP); 0: all data-parallel ranks "
        "share one set [0, or the layout's]",
        "shard_ranks", kMostRanks},
    LayoutFlag{
        "--secondary-ranks", "",
        "with --zero 3: neighbouring ranks that share a secondary copy of the weights, from which backwards gather "
        "them (hpZ of ZeRO++); 0: no such copy [0, or the layout's]",
        "secondary_ranks", kMostRanks},
    LayoutFlag{"--near-ranks", "",
               "with --zero and --compression int8, int4, fp8 or sign: neighbouring ranks that sum gradients first, so "
               "that only sums go further (qgZ of ZeRO++); 0: one exchange among all [0, or the layout's]",
               "near_ranks", kMostRanks},
    LayoutFlag{
        "--offload", "",
        "where tensors are while no kernel uses them: optimizer, gradients, parameters or activations, ':', host or "
        "file, joined by '+', such as optimizer:file+parameters:host; host or file alone is for the optimizer's "
        "states; none: all on the device [none, or the layout's]",
        "offload"},
    LayoutFlag{
        "--offload-ahead", "",
        "with --offload parameters: shards of weights prefetched to the device before the current gather [1, or the "
        "layout's]",
        "offload_ahead", 1024},
    LayoutFlag{
        "--update", "",
        "when weights are updated: step_end (all at once, when the norm of all gradients is known) or per_bucket (each "
        "gradient bucket after its last reduction, between kernels of the backward; needs --clip 0) [step_end, or the "
        "layout's]",
        "update"},
    LayoutFlag{"--schedule", "", "schedule of the pipeline (simulate --list shows them) [1f1b, or the layout's]",
               "schedule"},
    LayoutFlag{"--chunks", "", "stages per rank, for schedules that take this number [1, or the layout's]", "chunks",
               1024},
    LayoutFlag{
        "--slices", "",
        "token slices of each microbatch, for schedules that take them (terapipe, seq1f1b, seq1f1b_i): a number, or "
        "the tokens of each: 2048:2x1024 [1, or the layout's]",
        "slices"},
    LayoutFlag{"--bucket-cap-mb", "",
               "MiB of gradients per bucket; the first bucket has 1 MiB; 0: one bucket for all [25, or the layout's]",
               "bucket_mb"},
    LayoutFlag{"--recompute", "",
               "activations that the backward recomputes: none, selective or full [none, or the layout's]",
               "recompute"},
    LayoutFlag{"--recompute-every", "",
               "with --recompute full: number of layers between two kept inputs, which the backward recomputes from "
               "the first [1, or the layout's]",
               "recompute_every", 1 << 20},
    LayoutFlag{"--compression", "none",
               "encoding of gradients between data-parallel ranks: none, bf16, int8, int4, fp8, sign, topk:density=D, "
               "threshold:at=T:density=D (messages have room for a share D of the elements), randomk:density=D or "
               "powersgd:rank=R; each takes a suffix :feedback=0 or 1",
               "compression"},
    LayoutFlag{"--weight-compression", "none",
               "encoding of weights in all-gathers with --zero 3 (qwZ): none, int8, int4 or fp8", "weight_compression"},
};

const std::array kFlagsOfExchanges{
    Flag{"--cp-way", "",
         "how context-parallel ranks share attention: ring, zigzag, allgather, ulysses, lightseq, or colossal, which "
         "keeps scores in memory [zigzag, or the layout's]",
         [](TrainFlags& f, const FlagValue& v) {
           workload::set_field(f.options.layout, "cp_way", v);
           f.options.layout.flash = f.options.layout.cp_way != workload::ContextWay::colossal;
         }},
    Flag{"--offload-folder", "", "folder of the files of --offload file [the system's for temporary files]",
         [](TrainFlags& f, const FlagValue& v) { f.options.offload_folder = file_name(v); }},
    Flag{"--device-memory", "0",
         "limit for a rank's tensors in bytes (512M, 2G): a run that needs more is refused; 0: the available memory",
         [](TrainFlags& f, const FlagValue& v) { f.options.device_memory = v.size_bytes(); }},
    Flag{"--overlap", "",
         "1: reduce gradients during the backward, and prefetch weights; 0: neither [1, or the layout's]",
         [](TrainFlags& f, const FlagValue& v) {
           f.options.layout.overlap_gradients = v.yes_or_no();
           f.options.layout.prefetch = f.options.layout.overlap_gradients;
         }},
    Flag{"--sync", "allreduce",
         "how data-parallel ranks agree: allreduce (of gradients, or sharded by --zero), server:servers=S or root "
         "(servers update), average:every=H, diloco:every=H:rate=R:momentum=M, async:staleness=K:jitter=J "
         "(docs/training.md)",
         [](TrainFlags& f, const FlagValue& v) { f.options.sync = v.parsed_by(trainer::parse_sync); }},
    Flag{"--algo", "auto", "algorithm of the collectives (docs/adding.md)",
         [](TrainFlags& f, const FlagValue& v) { f.options.algorithm = v.text; }},
};

using kernels::OptimizerRule;

// Reads a number of the optimizer, which only those rules have for which `has` is true.
void read_number(TrainFlags& f, const FlagValue& v, double kernels::OptimizerNumbers::*number, double most,
                 bool (*has)(const OptimizerRule&)) {
  std::string with;
  for (const OptimizerRule& rule : kernels::kOptimizers) {
    if (has(rule)) with.append(with.empty() ? "" : " or ").append(rule.name);
  }
  const OptimizerRule& rule = kernels::rule_of(f.options.layout.optimizer);
  if (!has(rule))
    throw v.refused("--optimizer " + std::string(rule.name) + " has no such number", "--optimizer " + with);
  f.options.optimizer.*number = v.number_from(0, most);
  if (most == 1 && static_cast<float>(f.options.optimizer.*number) >= 1)
    throw v.refused("out of range", "0 to below 1");
}

// Read in this order: --optimizer sets its usual numbers.
const std::array kFlagsOfOptimizer{
    Flag{"--optimizer", "",
         "rule of the update: sgd, momentum, rmsprop, adam or adamw, with 0, 1, 1, 2 and 2 states per parameter; "
         "formulas in docs/training.md [adamw, or the layout's]",
         [](TrainFlags& f, const FlagValue& v) {
           workload::set_field(f.options.layout, "optimizer", v);
           f.options.optimizer = kernels::rule_of(f.options.layout.optimizer).usual;
         }},
    Flag{"--momentum", "", "momentum: factor of the previous steps' sum [0.9]",
         [](TrainFlags& f, const FlagValue& v) {
           read_number(f, v, &kernels::OptimizerNumbers::beta1, 1,
                       [](const OptimizerRule& rule) { return rule.first_moment && !rule.corrects_bias; });
         }},
    Flag{"--alpha", "", "rmsprop: factor of the mean of squared gradients (PyTorch's alpha) [0.99]",
         [](TrainFlags& f, const FlagValue& v) {
           read_number(f, v, &kernels::OptimizerNumbers::beta2, 1,
                       [](const OptimizerRule& rule) { return rule.second_moment && !rule.corrects_bias; });
         }},
    Flag{"--beta1", "", "adam, adamw: factor of the mean of gradients [0.9]",
         [](TrainFlags& f, const FlagValue& v) {
           read_number(f, v, &kernels::OptimizerNumbers::beta1, 1,
                       [](const OptimizerRule& rule) { return rule.corrects_bias; });
         }},
    Flag{"--beta2", "", "adam, adamw: factor of the mean of squared gradients; GPT-3's, PyTorch has 0.999 [0.95]",
         [](TrainFlags& f, const FlagValue& v) {
           read_number(f, v, &kernels::OptimizerNumbers::beta2, 1,
                       [](const OptimizerRule& rule) { return rule.corrects_bias; });
         }},
    Flag{"--eps", "", "rmsprop, adam, adamw: added to the root of the mean of squared gradients [1e-8]",
         [](TrainFlags& f, const FlagValue& v) {
           read_number(f, v, &kernels::OptimizerNumbers::epsilon, 1e6,
                       [](const OptimizerRule& rule) { return rule.second_moment; });
         }},
    Flag{"--weight-decay", "",
         "weight decay, of matrices only: decoupled with adamw, otherwise added to gradients (L2) [0.1 with adamw, 0 "
         "with others]",
         [](TrainFlags& f, const FlagValue& v) {
           read_number(f, v, &kernels::OptimizerNumbers::decay, 1e6, [](const OptimizerRule&) { return true; });
         }},
};
constexpr auto kFlagsOfSequences = sequence_flags<TrainFlags>("", "");

const std::array kFlagsOfTraining{
    Flag{"--steps", "20", "optimizer steps",
         [](TrainFlags& f, const FlagValue& v) { f.options.steps = v.integer(1, kMany); }},
    Flag{"--lr", "1e-3", "peak learning rate; 0: weights do not change",
         [](TrainFlags& f, const FlagValue& v) { f.options.rate.peak = v.number_from(0, 1e6); }},
    Flag{"--min-lr", "", "learning rate at the end of the cosine [a tenth of --lr]",
         [](TrainFlags& f, const FlagValue& v) { f.options.rate.floor = v.number_from(0, 1e6); }},
    Flag{"--warmup", "", "steps until the learning rate reaches its peak [a tenth of --steps]",
         [](TrainFlags& f, const FlagValue& v) { f.options.rate.warmup = v.integer(0, kMany); }},
    Flag{"--clip", "1", "norm to which larger gradients are clipped; 0: no clipping",
         [](TrainFlags& f, const FlagValue& v) { f.options.most_norm = static_cast<float>(v.number_from(0, 1e9)); }},
    Flag{"--seed", "1", "seed of the initial weights and of the order of the data",
         [](TrainFlags& f, const FlagValue& v) { f.options.seed = static_cast<std::uint64_t>(v.integer(0, kMany)); }},
    Flag{"--validate-every", "0", "validate every N steps; 0: at the end only",
         [](TrainFlags& f, const FlagValue& v) { f.options.validate_every = v.integer(0, kMany); }},
    Flag{"--checkpoints", "", "folder for checkpoints [none are written]",
         [](TrainFlags& f, const FlagValue& v) { f.options.checkpoint_folder = file_name(v); }},
    Flag{"--checkpoint-every", "0", "write a checkpoint every N steps; 0: at the end only",
         [](TrainFlags& f, const FlagValue& v) { f.options.checkpoint_every = v.integer(0, kMany); }},
    Flag{"--keep", "2", "number of newest checkpoints to keep",
         [](TrainFlags& f, const FlagValue& v) { f.options.checkpoints_kept = program::integer(v, 1, 1 << 20); }},
    Flag{"--resume", "", "a checkpoint, or a folder of checkpoints: training continues from there, in any layout",
         [](TrainFlags& f, const FlagValue& v) { f.options.resume = file_name(v); }},
    Flag{"--init-from", "",
         "weights of Hugging Face's GPT-2, Llama or Mistral, instead of random ones: a safetensors file, the "
         "index.json of several, or a folder with either",
         [](TrainFlags& f, const FlagValue& v) { f.options.init_from = file_name(v); }},
    Flag{"--export", "", "write a safetensors file with the same tensors at the end",
         [](TrainFlags& f, const FlagValue& v) { f.options.export_file = file_name(v); }},
    Flag{"--sample", "0", "tokens that the trained model generates at the end",
         [](TrainFlags& f, const FlagValue& v) { f.options.sample_tokens = v.integer(0, 1 << 20); }},
    Flag{"--prompt", "", "text before the sample [a newline]",
         [](TrainFlags& f, const FlagValue& v) { f.options.prompt = v.text; }},
    Flag{"--temperature", "0.8", "temperature of the sample; 0: always the most likely token",
         [](TrainFlags& f, const FlagValue& v) { f.options.temperature = v.number_from(0, 1e6); }},
    Flag{"--validation-sequences", "64", "sequences of each validation, rounded up to whole passes",
         [](TrainFlags& f, const FlagValue& v) { f.options.validation_sequences = v.integer(1, kMany); }},
};

const std::array kFlagsOfRun{
    Flag{"-t,--threads", "1", "kernel threads per rank",
         [](TrainFlags& f, const FlagValue& v) { f.options.threads = program::integer(v, 1, 1024); }},
    Flag{"--gemm", kProbeGemms,
         "implementation of matrix products on the CPU: packed or onednn; probe: the faster of these in a short probe "
         "at the start, or the one that wrote the checkpoint of --resume; per-shape: the fastest for each shape, whose "
         "last bits differ from run to run",
         [](TrainFlags& f, const FlagValue& v) { f.gemm = gemm_of(v); }},
    Flag{"--attention", kernels::kAttentionChoices.front(), kernels::kAttentionHelp,
         [](TrainFlags& f, const FlagValue& v) { f.options.attention = v.one_of(kernels::kAttentionChoices); }},
    Flag{"--link", "", "emulated links between local ranks: latency_us=L,gbps=B",
         [](TrainFlags& f, const FlagValue& v) { f.options.link = link_of(v); }},
    Flag{"--straggler", "",
         "with --sync: a slow replica, whose steps are slowed by this factor: replica=R,factor=F; replica=any: another "
         "replica in each step; step_ms=T: stretch every replica's step to that time first",
         [](TrainFlags& f, const FlagValue& v) { f.options.straggler = v.parsed_by(trainer::parse_straggler); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait fails",
         [](TrainFlags& f, const FlagValue& v) { f.options.timeout = std::chrono::seconds(v.integer(1, 86400)); }},
    Flag{"--peak-gflops", "", "peak of all cores together, for MFU [measured at the start with matrix products]",
         [](TrainFlags& f, const FlagValue& v) { f.peak_gflops = v.number(0, 1e12); }},
    Flag{"--predict", "",
         "a machine (docs/machine_format.md), such as the description of this one by simulate --calibrate: print the "
         "predicted step time before the run, and compare it with the measured one",
         [](TrainFlags& f, const FlagValue& v) { f.predict = v.checked_by(simulator::load_machine); }},
    Flag{"--report-every", "1", "report every N steps",
         [](TrainFlags& f, const FlagValue& v) { f.report_every = v.integer(1, kMany); }},
    program::json_flag<TrainFlags>(),
    Flag{"--trace", "", "file for a trace of one step; open it in ui.perfetto.dev",
         [](TrainFlags& f, const FlagValue& v) { f.trace_file = file_name(v); }},
    Flag{"--trace-step", "", "the step that is traced [the last]",
         [](TrainFlags& f, const FlagValue& v) { f.trace_step = v.integer(1, kMany); }},
};

void fill_in(const program::CommandLine& line, TrainFlags& flags) {
  trainer::TrainOptions& options = flags.options;
  options.model = model_of({"--model", flags.model});
  options.rate.steps = options.steps;
  if (!line.value("--min-lr")) options.rate.floor = options.rate.peak / 10;
  if (!line.value("--warmup")) options.rate.warmup = options.steps / 10;
  if (options.rate.floor > options.rate.peak) {
    throw core::usage_error("--min-lr is larger than --lr; allowed: at most --lr");
  }
  if (flags.trace_step > options.steps) {
    throw core::usage_error("--trace-step " + std::to_string(flags.trace_step) +
                            " is not a step of this run; allowed: 1 to " + std::to_string(options.steps) +
                            " (--steps)");
  }
  if (flags.place.mpi && options.link) {
    throw core::usage_error("--link emulates links between local ranks; allowed: with --transport local");
  }
  if (options.sync.replicas_step_alone() && (flags.serve || !flags.predict.empty())) {
    throw core::usage_error("--sync " + text_of(options.sync) +
                            " together with --predict or --serve; allowed: neither");
  }
  if (options.device.cuda && flags.gemm != kProbeGemms) {
    throw core::usage_error("--gemm chooses CPU implementations; allowed: with --device cpu");
  }
  if (flags.trace_step == 0) flags.trace_step = options.steps;
}

}  // namespace

trainer::Corpus corpus_of(const trainer::TrainOptions& options) {
  if (options.data.empty())
    return trainer::Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  return trainer::Corpus::of_files(options.data, options.model.sequence, *options.tokenizer);
}

TrainFlags parse_train_flags(int argc, const char* const* argv) {
  TrainFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program + ": trains a GPT on a text, in any layout, and shows where the time goes.");
  declare_all(line, kFlagsOfModel, kModel);
  declare_all(line, kSizeFlags, kModel);
  declare_all(line, kFlagsOfMixture, kModel);
  declare_all(line, kTextFlags, kModel);
  declare_all(line, kFlagsOfLayout, kLayout);
  declare_all(line, kFlagsOfExchanges, kLayout);
  declare_all(line, kFlagsOfOptimizer, kOptimizer);
  declare_all(line, kFlagsOfSequences, kTraining);
  declare_all(line, kFlagsOfTraining, kTraining);
  declare_all(line, kFlagsOfRun, kRun);
  declare_place(line, kRun);
  line.add_switch("--sequence-parallel", flags.options.layout.sequence_parallel,
                  "each tensor-parallel rank has a share of the rows between layers", kLayout);
  line.add_switch("--delayed-update", flags.options.layout.delayed_update,
                  "each update runs on the host during the next step, whose gradients are then taken at older weights: "
                  "needs --offload with optimizer and gradients, and --dtype bf16 or f16 (ZeRO-Offload)",
                  kLayout);
  line.add_switch("--graph", flags.options.graph,
                  "with --device cuda: record the step as a CUDA graph, and launch the graph in every step", kRun);
  line.add_switch("--serve", flags.serve,
                  "worker mode for ci/gate.py: run the steps requested on standard input (bench/serve/orders.h)", kRun);
  line.add_switch("--list", flags.list, "list the named models and exit", kRun);
  line.parse(argc, argv);
  read_all(line, kFlagsOfModel, flags);
  read_all(line, kSizeFlags, flags.model);
  read_all(line, kFlagsOfMixture, flags.model);
  read_all(line, kTextFlags, flags.model);
  read_all(line, kFlagsOfLayout, flags.options.layout);
  read_all(line, kFlagsOfExchanges, flags);
  flags.options.optimizer = kernels::rule_of(flags.options.layout.optimizer).usual;
  read_all(line, kFlagsOfOptimizer, flags);
  read_all(line, kFlagsOfTraining, flags);
  read_all(line, kFlagsOfSequences, flags);
  set_sequences(flags.sequences, flags.options.layout);
  read_all(line, kFlagsOfRun, flags);
  flags.place = program::read_place(line);
  flags.options.device = flags.place.device;
  fill_in(line, flags);
  return flags;
}

}  // namespace lockstep::mini_train
