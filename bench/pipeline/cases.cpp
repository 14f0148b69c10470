#include "bench/pipeline/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "schedules/check.h"
#include "schedules/generators/zb_search.h"
#include "schedules/messages.h"
#include "schedules/slices.h"
#include "schedules/text.h"
#include "trainer/step/train_step.h"

namespace lockstep::pipeline {
namespace {

using schedules::CatalogueEntry;
using schedules::PipelineShape;
using schedules::Schedule;

constexpr std::string_view kSearch = "zb_search";
constexpr std::string_view kSearchSource = "the search of Qi et al. 2023 (arXiv:2401.10241), section 3.1";
constexpr int kUsualChunks = 2;
constexpr int kUsualSlices = 4;
constexpr std::int64_t kTokens = 4096;  // tokens per sequence; balanced slices are whole numbers of them

Case search_case(const PipelineFlags& flags, const PipelineShape& shape) {
  const schedules::MemoryLimit memory{flags.memory_limit.value_or(shape.ranks), flags.w_share()};
  Schedule made = schedules::zb_search({shape, flags.times_ms, memory});
  Schedule messages = schedules::with_messages(made);
  Case one{std::string(kSearch), std::move(made), std::move(messages), shape, nullptr, std::string(kSearchSource)};
  one.memory_limit = memory.most;
  return one;
}

Case named_case(const CatalogueEntry& entry, const PipelineShape& shape) {
  Schedule made = entry.make(shape);
  Schedule messages = schedules::with_messages(made);
  return {std::string(entry.name), std::move(made), std::move(messages), shape, &entry, std::string(entry.source)};
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
  if (reason.empty() && !search && flags.mode == Mode::real) reason = trainer::untrainable(entry->make(shape));
  if (!reason.empty()) {
    cases.left_out.push_back(fmt::format("{} at {} ranks, {} microbatches: {}", name, ranks, microbatches, reason));
  } else {
    cases.all.push_back(search ? search_case(flags, shape) : named_case(*entry, shape));
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

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || std::filesystem::is_directory(path)) {
    throw core::usage_error(fmt::format("--csv {}: cannot be read; allowed: a CSV file with one line per rank", path));
  }
  return text.str();
}

std::ptrdiff_t count_of_parameters(const Schedule& schedule) {
  std::ptrdiff_t count = 0;
  for (const auto& list : schedule.of_rank) {
    count += std::count_if(list.begin(), list.end(),
                           [](const auto& action) { return schedules::is_of_parameters(action.op); });
  }
  return count;
}

Cases csv_cases(const PipelineFlags& flags) {
  const std::string name = std::filesystem::path(flags.csv_file).filename().string();
  Schedule given = schedules::parse_csv(text_of_file(flags.csv_file), flags.csv_file, flags.pipes);
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
