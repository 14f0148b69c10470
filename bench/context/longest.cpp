#include "bench/context/longest.h"

#include <fmt/format.h>

#include "core/error.h"
#include "workload/memory.h"

namespace lockstep::context_bench {
namespace {

using workload::ContextWay;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 34;

double needed_bytes(const ContextFlags& flags, const workload::Layout& layout, std::int64_t tokens) {
  const workload::Model model = workload::parse_model(flags.fit_model + ",sequence=" + std::to_string(tokens));
  if (const std::string reason = why_invalid(model, layout); !reason.empty()) {
    throw core::usage_error("--fit: " + reason);
  }
  const auto ranks = workload::memory_of(model, layout, schedule_of(layout));
  return ranks[workload::worst_of(ranks)].total();
}

// Memory grows with the length.
std::int64_t longest_of(const ContextFlags& flags, const workload::Layout& layout) {
  const std::int64_t unit = std::int64_t{256} * chunks_of(context_of(layout));
  const auto fits = [&](std::int64_t units) { return needed_bytes(flags, layout, units * unit) <= flags.fit_gb * 1e9; };
  std::int64_t most = 1;
  while (most * unit < kMostTokens && fits(most)) most *= 2;
  std::int64_t least = most / 2;  // known to fit
  while (most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least * unit;
}

}  // namespace

std::vector<Longest> longest_sequences(const ContextFlags& flags) {
  if (flags.fit_model.empty()) return {};
  workload::Layout layout = workload::parse_layout(flags.fit_layout);
  std::vector<Longest> all{{.tokens = longest_of(flags, layout)}};
  for (const int ranks : flags.ranks) {
    for (const ContextWay way : flags.ways) {
      layout.cp = ranks;
      layout.cp_way = way;
      layout.flash = way != ContextWay::colossal;
      all.push_back({way, ranks, longest_of(flags, layout)});
    }
  }
  return all;
}

std::string longest_text(const ContextFlags& flags, const std::vector<Longest>& all) {
  if (all.empty()) return "";
  std::string text = fmt::format(
      "# longest sequence of {} that trains in {:g} GB per rank, layout {}: by the step model, nothing was run\n"
      "#{:>10} {:>3} {:>12} {:>16}\n",
      flags.fit_model, flags.fit_gb, flags.fit_layout.empty() ? "of one rank" : flags.fit_layout, "way", "cp", "tokens",
      "over one rank");
  for (const Longest& one : all) {
    const double ratio = static_cast<double>(one.tokens) / static_cast<double>(all.front().tokens);
    text += fmt::format("#{:>10} {:>3} {:>12} {:>16.2f}\n", one.ranks == 1 ? "-" : name_of(one.way), one.ranks,
                        one.tokens, all.front().tokens > 0 ? ratio : 0);
  }
  return text;
}

}  // namespace lockstep::context_bench
