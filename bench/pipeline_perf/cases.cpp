#include "bench/pipeline_perf/cases.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/options.h"
#include "schedules/generators/zero_bubble.h"
#include "schedules/schedule.h"
#include "schedules/slices.h"
#include "workload/rules.h"

namespace lockstep::pipeline {
namespace {

using program::FlagValue;
using schedules::CatalogueEntry;
using schedules::PipelineShape;
using schedules::Schedule;

constexpr double kLongestMs = 1e6;

using Flag = program::FlagOf<PipelineFlags>;

constexpr const char* kWhat = "Schedules";
constexpr const char* kHow = "Costs";
constexpr const char* kModel = "The model of --mode real";
constexpr const char* kOutput = "Output";

double memory_limit_of(const FlagValue& value) {
  const double limit = value.number_from(0, 1e6);
  if (limit < 1) throw value.refused("below one microbatch, which any schedule holds", "numbers of at least 1");
  return limit;
}

// "a=4,b=4,invert=20,precondition=1,layers=3"
FillerWork filler_of(const FlagValue& value) {
  using Field = core::Field<FillerWork>;
  constexpr std::array kFields{
      Field{"a", "ms", [](FillerWork& w, const FlagValue& v) { w.input_curvature = v.number_from(0, kLongestMs); }},
      Field{"b", "ms", [](FillerWork& w, const FlagValue& v) { w.output_curvature = v.number_from(0, kLongestMs); }},
      Field{"invert", "ms", [](FillerWork& w, const FlagValue& v) { w.inversion = v.number_from(0, kLongestMs); }},
      Field{"precondition", "ms",
            [](FillerWork& w, const FlagValue& v) { w.precondition = v.number_from(0, kLongestMs); }},
      Field{"work", "ms", [](FillerWork& w, const FlagValue& v) { w.work = v.number_from(0, kLongestMs); }},
      Field{"layers", "1 or more", [](FillerWork& w, const FlagValue& v) { w.layers = v.int32(1, 10000); }}};
  FillerWork work;
  core::read_fields<FillerWork>(work, "", core::split(value.text, ','), kFields);
  if (!work.given()) throw value.refused("no work for bubbles", "at least one of a, b, invert and work above 0");
  return work;
}

const std::array kFlagsOfWhat{
    Flag{"--mode", "simulated",
         "simulated: in virtual time; emulated: in wall-clock time on emulated devices; real: a GPT's stages",
         [](PipelineFlags& f, const FlagValue& v) { f.mode = mode_of(v); }},
    Flag{"--schedule", "1f1b", "names, or all; --list shows them",
         [](PipelineFlags& f, const FlagValue& v) { f.schedules = text_list(v); }},
    Flag{"--stages", "4", "ranks of the pipeline, a list",
         [](PipelineFlags& f, const FlagValue& v) { f.stages = integer_list(v, 1, 4096); }},
    Flag{"--microbatches", "8", "microbatches per step, a list",
         [](PipelineFlags& f, const FlagValue& v) { f.microbatches = integer_list(v, 1, 65536); }},
    Flag{"--chunks", "", "stages per rank, for schedules that have this parameter [2]",
         [](PipelineFlags& f, const FlagValue& v) { f.chunks = integer(v, 1, 1024); }},
    Flag{"--slices", "", "token slices per microbatch, for schedules that have this parameter [4]",
         [](PipelineFlags& f, const FlagValue& v) { f.slices = integer(v, 1, 1024); }},
    Flag{"--slicing", "even", "token slices of equal length (even) or of equal time (balanced)",
         [](PipelineFlags& f, const FlagValue& v) {
           f.balanced_slices = v.index_of(std::array{"even", "balanced"}) == 1;
         }},
    Flag{"--csv", "",
         "a schedule of your own (docs/schedule_format.md), which replaces --schedule, --stages, --microbatches, "
         "--chunks and --slices: the file determines all these",
         [](PipelineFlags& f, const FlagValue& v) { f.csv_file = file_name(v); }},
    Flag{"--pipes", "1", "pipes of the CSV; 2: the upper half of its stages is a second pipe",
         [](PipelineFlags& f, const FlagValue& v) { f.pipes = integer(v, 1, 64); }},
};

const std::array kFlagsOfCosts{
    Flag{"--t-f", "1", "milliseconds of a microbatch's forward on a rank's share of the model",
         [](PipelineFlags& f, const FlagValue& v) { f.times_ms.forward = v.number(0, kLongestMs); }},
    Flag{"--t-i", "1", "milliseconds of a microbatch's input gradient on a rank",
         [](PipelineFlags& f, const FlagValue& v) { f.times_ms.input_gradient = v.number(0, kLongestMs); }},
    Flag{"--t-w", "1", "milliseconds of its weight gradient; a full backward takes both",
         [](PipelineFlags& f, const FlagValue& v) { f.times_ms.weight_gradient = v.number_from(0, kLongestMs); }},
    Flag{"--t-comm", "0", "milliseconds from the end of a message's producer to its arrival",
         [](PipelineFlags& f, const FlagValue& v) { f.times_ms.message = v.number_from(0, kLongestMs); }},
    Flag{"--t-attention", "0",
         "share of --t-f and --t-i spent in causal attention, 0 to 1: later token slices take longer",
         [](PipelineFlags& f, const FlagValue& v) { f.times_ms.attention = v.number_from(0, 1); }},
    Flag{"--t-evict", "0",
         "milliseconds to move a microbatch's kept activations to another rank, or back, for schedules that evict "
         "(bpipe)",
         [](PipelineFlags& f, const FlagValue& v) { f.evict_ms = v.number_from(0, kLongestMs); }},
    Flag{"--memory-limit", "",
         "microbatches whose activations a rank may hold, at least 1; zb_search obeys it [--stages, what 1F1B holds]",
         [](PipelineFlags& f, const FlagValue& v) { f.memory_limit = memory_limit_of(v); }},
    Flag{
        "--w-memory", "",
        "share of a microbatch's activations, 0 to 1, that is held from I until W, for the limit and peak_W; for a GPT "
        "layer as in Qi et al. 2023, 32h/(34h+5as) [1; with --mode real what the stages keep]",
        [](PipelineFlags& f, const FlagValue& v) { f.w_memory = v.number_from(0, 1); }},
    Flag{"--fill", "",
         "work to put into the bubbles, over as many steps as it takes, as PipeFisher does with K-FAC's: ms on a "
         "rank's share of the model, a=MS (per microbatch, after its forward), b=MS (after its backward), invert=MS "
         "(when all of these are done), work=MS (anything else), precondition=MS (in every step, after the gradients), "
         "layers=N (kernels into which each is divided; 1)",
         [](PipelineFlags& f, const FlagValue& v) { f.filler = filler_of(v); }},
    Flag{"--repeat", "5", "runs per row, with --mode emulated or real",
         [](PipelineFlags& f, const FlagValue& v) { f.repeat = integer(v, 1, 10000); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait of an emulated or a real run fails",
         [](PipelineFlags& f, const FlagValue& v) { f.timeout_s = integer(v, 1, 86400); }},
};

// Flags of --mode real.
const std::array kFlagsOfModel{
    Flag{"--layers", "2", "transformer layers per rank",
         [](PipelineFlags& f, const FlagValue& v) { f.model.layers = integer(v, 1, 1000); }},
    Flag{"--hidden", "128", "hidden size",
         [](PipelineFlags& f, const FlagValue& v) { f.model.hidden = integer(v, 1, 1 << 20); }},
    Flag{"--heads", "4", "attention heads",
         [](PipelineFlags& f, const FlagValue& v) { f.model.heads = integer(v, 1, 4096); }},
    Flag{"--length", "64", "tokens per sequence",
         [](PipelineFlags& f, const FlagValue& v) { f.model.length = integer(v, 1, 1 << 20); }},
    Flag{"--batch", "", "not taken here: sequences of a step are --microbatches x --microbatch-size",
         [](PipelineFlags&, const FlagValue& v) {
           throw v.refused("is the number of sequences per step in other programs",
                           "--microbatch-size " + v.text + " for the sequences of a microbatch");
         }},
    Flag{"--microbatch-size", "1", "sequences per microbatch",
         [](PipelineFlags& f, const FlagValue& v) { f.model.batch = integer(v, 1, 1 << 20); }},
    Flag{"--dtype", "f32", "f32, bf16 or f16",
         [](PipelineFlags& f, const FlagValue& v) {
           f.model.dtype = v.one_of(std::array{"f32", "bf16", "f16"});
         }},
};

const std::array kFlagsOfOutput{
    program::json_flag<PipelineFlags>(),
    Flag{"--trace", "", "file for a trace that ui.perfetto.dev opens; for a single row",
         [](PipelineFlags& f, const FlagValue& v) { f.trace_file = file_name(v); }},
    Flag{"--dump-csv", "", "file for the schedule as CSV; for a single row",
         [](PipelineFlags& f, const FlagValue& v) { f.dump_csv_file = file_name(v); }},
};

void check_together(const program::CommandLine& line, const PipelineFlags& flags) {
  for (const char* name : {"--schedule", "--stages", "--microbatches", "--chunks", "--slices", "--slicing"}) {
    if (flags.csv_file.empty() || !line.value(name)) continue;
    throw core::usage_error(std::string(name) +
                            " together with --csv; allowed: one of these flags, as the file determines the shape");
  }
  for (const char* name : {"--t-f", "--t-i", "--t-w", "--t-comm", "--t-attention", "--t-evict"}) {
    if (flags.mode != Mode::real || !line.value(name)) continue;
    throw core::usage_error(std::string(name) +
                            " together with --mode real; allowed: with the other modes, as times of real " +
                            "kernels are measured");
  }
  for (const auto& flag : kFlagsOfModel) {
    if (flags.mode == Mode::real || !line.value(flag.names)) continue;
    throw core::usage_error(std::string(flag.names) + " requires --mode real");
  }
  if (flags.model.hidden % flags.model.heads != 0) {
    throw core::usage_error("--heads is " + std::to_string(flags.model.heads) + ", and --hidden is " +
                            std::to_string(flags.model.hidden) + "; allowed: a divisor of --hidden");
  }
  if (flags.csv_file.empty() && line.value("--pipes")) {
    throw core::usage_error("--pipes requires --csv, as named schedules have their own");
  }
  if (flags.filler.given() && flags.mode == Mode::real) {
    throw core::usage_error(
        "--fill together with --mode real; allowed: with the other modes, as the model has no such kernels");
  }
  if (flags.lowered && flags.dump_csv_file.empty()) {
    throw core::usage_error("--lowered requires --dump-csv FILE");
  }
}

}  // namespace

namespace {

constexpr std::array kModes{"simulated", "emulated", "real"};  // as in Mode

}  // namespace

std::string name_of(Mode mode) {
  return kModes.at(static_cast<std::size_t>(mode));
}

Mode mode_of(const FlagValue& value) {
  return static_cast<Mode>(value.index_of(kModes));
}

std::string basis_of(Mode mode) {
  return mode == Mode::real ? "measured" : name_of(mode);
}

PipelineFlags parse_pipeline_flags(int argc, const char* const* argv) {
  PipelineFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program +
                            ": times, bubbles and memory of pipeline schedules, by name or from a file.");
  declare_all(line, kFlagsOfWhat, kWhat);
  declare_all(line, kFlagsOfCosts, kHow);
  declare_all(line, kFlagsOfModel, kModel);
  declare_place(line, kModel);
  declare_all(line, kFlagsOfOutput, kOutput);
  line.add_switch("--lowered", flags.lowered, "the dumped CSV has the messages", kOutput);
  line.add_switch("--list", flags.list, "list the named schedules and exit", kOutput);
  line.parse(argc, argv);
  read_all(line, kFlagsOfWhat, flags);
  read_all(line, kFlagsOfCosts, flags);
  read_all(line, kFlagsOfModel, flags);
  read_all(line, kFlagsOfOutput, flags);
  if (flags.mode != Mode::real) program::refuse_place(line, " without --mode real", "with --mode real");
  flags.place = program::read_place(line);
  flags.all_ranks = !line.value("--stages") && flags.csv_file.empty();
  check_together(line, flags);
  return flags;
}

namespace {

constexpr std::string_view kSearch = "zb_search";
constexpr std::string_view kSearchSource = "the search of Qi et al. 2023 (arXiv:2401.10241), section 3.1";
constexpr int kUsualChunks = 2;
constexpr int kUsualSlices = 4;
constexpr std::int64_t kTokens = 4096;  // tokens per sequence; balanced slices are whole numbers of tokens

// `entry`: a name for the search within a memory of its own, or null.
Case search_case(const PipelineFlags& flags, const PipelineShape& shape, const CatalogueEntry* entry) {
  const double most = entry == nullptr ? flags.memory_limit.value_or(shape.ranks)
                                       : static_cast<double>(entry->searched_share * shape.ranks);
  Schedule schedule = schedules::zb_search({shape, flags.times_ms, {most, flags.w_share()}});
  schedule.name = entry == nullptr ? kSearch : entry->name;
  Schedule messages = schedules::with_messages(schedule);
  Case bench_case{schedule.name, schedule, std::move(messages),
                  shape,         entry,    std::string(entry == nullptr ? kSearchSource : entry->source)};
  bench_case.memory_limit = most;
  return bench_case;
}

Case named_case(const PipelineFlags& flags, const CatalogueEntry& entry, const PipelineShape& shape) {
  if (entry.searched_share > 0) return search_case(flags, shape, &entry);
  Schedule schedule = entry.make(shape);
  Schedule messages = schedules::with_messages(schedule);
  return {std::string(entry.name), std::move(schedule), std::move(messages), shape, &entry, std::string(entry.source)};
}

std::vector<std::string> chosen_names(const PipelineFlags& flags) {
  std::vector<std::string> names;
  for (const std::string& name : flags.schedules) {
    if (name != "all") {
      names.push_back(name);
      continue;
    }
    for (const CatalogueEntry& entry : schedules::catalogue()) names.emplace_back(entry.name);
    names.emplace_back(kSearch);
  }
  return names;
}

// --chunks applies to schedules that take chunks. A single named schedule has to take it.
int chunks_of(const PipelineFlags& flags, bool takes_chunks, bool alone) {
  if (takes_chunks) return flags.chunks.value_or(kUsualChunks);
  return alone ? flags.chunks.value_or(1) : 1;
}

// --slices applies to schedules that take slices. A single named schedule has to take it.
int slices_of(const PipelineFlags& flags, bool takes_slices, bool alone) {
  if (takes_slices) return flags.slices.value_or(kUsualSlices);
  return alone ? flags.slices.value_or(1) : 1;
}

// All slices take equal times if forward and both gradients together do.
std::vector<std::int64_t> slice_tokens(const PipelineFlags& flags, int slices) {
  if (slices == 1) return {};
  if (!flags.balanced_slices) return schedules::even_slices(slices, slices);
  const schedules::Times& t = flags.times_ms;
  const double with_attention = t.forward + t.input_gradient;
  const double attention = t.attention * with_attention / (with_attention + t.weight_gradient);
  return schedules::balanced_slices(kTokens, slices, attention, schedules::slice_block(kTokens, slices));
}

const CatalogueEntry& entry_of(const std::string& name) {
  const auto entries = schedules::catalogue();
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
  if (found != entries.end()) return *found;
  std::string allowed;
  for (const CatalogueEntry& entry : entries) allowed += std::string(entry.name) + ", ";
  throw core::usage_error(fmt::format("--schedule {}: not known; allowed: all, {}{}", name, allowed, kSearch));
}

// Adds the case, or the reason why its shape is invalid to `left_out`.
void add_named(const PipelineFlags& flags, const std::string& name, int ranks, int microbatches, bool alone,
               Cases& cases) {
  const bool search = name == kSearch;
  const CatalogueEntry* const entry = search ? nullptr : &entry_of(name);
  const PipelineShape shape{ranks, microbatches, chunks_of(flags, !search && entry->takes_chunks, alone),
                            slice_tokens(flags, slices_of(flags, !search && entry->takes_slices, alone))};
  std::string reason;
  if (!search) reason = schedules::why_invalid(*entry, shape);
  if (search && shape.chunks != 1) reason = fmt::format("chunks is {}; allowed: 1", shape.chunks);
  if (search && shape.slices() != 1) reason = fmt::format("slices is {}; allowed: 1", shape.slices());
  if (reason.empty() && !search && flags.mode == Mode::real) reason = workload::untrainable(*entry, entry->make(shape));
  if (!reason.empty()) {
    cases.left_out.push_back(fmt::format("{} at {} ranks, {} microbatches: {}", name, ranks, microbatches, reason));
  } else {
    cases.all.push_back(search ? search_case(flags, shape, nullptr) : named_case(flags, *entry, shape));
  }
}

Cases named_cases(const PipelineFlags& flags) {
  Cases cases;
  const std::vector<std::string> names = chosen_names(flags);
  for (int ranks : flags.stages) {
    for (int microbatches : flags.microbatches) {
      for (const std::string& name : names) add_named(flags, name, ranks, microbatches, names.size() == 1, cases);
    }
  }
  const bool all = std::find(flags.schedules.begin(), flags.schedules.end(), "all") != flags.schedules.end();
  if (cases.left_out.empty() || (all && !cases.all.empty())) return cases;
  throw core::usage_error("--schedule " + cases.left_out.front());
}

std::ptrdiff_t count_of_parameters(const Schedule& schedule) {
  std::ptrdiff_t count = 0;
  for (const auto& list : schedule.of_rank) {
    count += std::count_if(list.begin(), list.end(),
                           [](const auto& action) { return schedules::is_of_parameters(action.op); });
  }
  return count;
}

// True if the lists are wrong as one pipe and right as two: a file of Chimera or DualPipe without --pipes 2.
bool are_two_pipes(const Schedule& given) {
  const std::int32_t half = given.stages_per_pipe / 2;
  if (given.num_pipes() != 1 || given.stages_per_pipe % 2 != 0 || half % given.num_ranks() != 0) return false;
  Schedule halved = given;
  halved.stages_per_pipe = half;
  return !schedules::check(given).empty() && schedules::check(halved).empty();
}

Cases csv_cases(const PipelineFlags& flags) {
  const std::string name = std::filesystem::path(flags.csv_file).filename().string();
  Schedule given = schedules::parse_csv(
      core::text_of_file(flags.csv_file, "a CSV file with one line per rank", "--csv " + flags.csv_file),
      flags.csv_file, flags.pipes);
  if (are_two_pipes(given)) {
    throw core::usage_error(flags.csv_file +
                            ": each microbatch goes through one half of the stages; allowed: --pipes 2");
  }
  schedules::check_or_throw(given);
  given.name = name;
  Schedule computations = given;
  for (auto& list : computations.of_rank) {
    std::erase_if(list, [](const auto& action) {
      return !schedules::is_compute(action.op) && !schedules::is_of_eviction(action.op);
    });
  }
  const PipelineShape shape{given.num_ranks(), given.num_microbatches / given.slices(), given.chunks(),
                            given.slice_tokens};
  Cases cases;
  if (const auto parameters = count_of_parameters(given); parameters > 0) {
    cases.left_out.push_back(fmt::format(
        "{} UNSHARD, RESHARD or REDUCE_GRAD of {}: they are correct but have no stated time", parameters, name));
  }
  Schedule messages = schedules::has_messages(given) ? std::move(given) : schedules::with_messages(computations);
  cases.all.push_back({name, std::move(computations), std::move(messages), shape, nullptr, std::nullopt});
  return cases;
}

}  // namespace

Cases make_cases(const PipelineFlags& flags) {
  return flags.csv_file.empty() ? named_cases(flags) : csv_cases(flags);
}

std::string list_text() {
  std::string text;
  for (const CatalogueEntry& entry : schedules::catalogue()) {
    text += fmt::format("{:<15} {}; {}; bubble: {}\n", entry.name, entry.title, entry.source, entry.bubble);
  }
  return text + fmt::format("{:<15} {}; for the given times, --memory-limit and --w-memory\n", kSearch, kSearchSource);
}

}  // namespace lockstep::pipeline
