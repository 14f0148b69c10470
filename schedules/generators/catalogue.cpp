#include "schedules/generators/catalogue.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/options.h"
#include "schedules/generators/zero_bubble.h"

namespace lockstep::schedules {
namespace {

// Time of a microbatch on a rank.
double whole(const Times& times) {
  return times.forward + times.input_gradient + times.weight_gradient;
}
double full_backward(const Times& times) {
  return times.input_gradient + times.weight_gradient;
}
bool are_equal(const Times& times) {
  return times.forward == times.input_gradient && times.forward == times.weight_gradient;
}

// True if all slices of a microbatch take equal times, forward and backward.
bool take_equal_times(const PipelineShape& shape, const Times& times) {
  for (const Op op : {Op::forward, Op::backward}) {
    const double first = time_of({op, 0, 0}, times, 1, shape.slice_tokens);
    for (std::int32_t slice = 1; slice < shape.slices(); ++slice) {
      if (std::abs(time_of({op, 0, slice}, times, 1, shape.slice_tokens) - first) > 1e-9 * first) return false;
    }
  }
  return true;
}

ClosedForm makespan(const PipelineShape& shape, const Times& times, double bubble) {
  return {true, shape.microbatches * whole(times) + bubble};
}
ClosedForm own_span(const PipelineShape& shape, const Times& times, double bubble) {
  return {false, shape.microbatches * whole(times) + bubble};
}

// Closed forms, with messages that take no time. Each returns no value where it is not exact.

std::optional<ClosedForm> fill_and_drain(const PipelineShape& shape, const Times& times) {
  return makespan(shape, times, (shape.ranks - 1) * whole(times));
}

// A flow shop of identical machines: the sum of all slices, plus the longest slice for each stage but one (Li et al.
// 2021, section 3.3), first forward, then backward.
std::optional<ClosedForm> of_slices_filled_and_drained(const PipelineShape& shape, const Times& times) {
  double forward = 0;
  double backward = 0;
  for (std::int32_t slice = 0; slice < shape.slices(); ++slice) {
    forward = std::max(forward, time_of({Op::forward, 0, slice}, times, 1, shape.slice_tokens));
    backward = std::max(backward, time_of({Op::backward, 0, slice}, times, 1, shape.slice_tokens));
  }
  return makespan(shape, times, (shape.ranks - 1) * (forward + backward));
}

std::optional<ClosedForm> of_seq1f1b(const PipelineShape& shape, const Times& times) {
  if (!take_equal_times(shape, times)) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / shape.slices());
}

std::optional<ClosedForm> of_seq1f1b_i(const PipelineShape& shape, const Times& times) {
  if (!take_equal_times(shape, times) || shape.microbatches * shape.slices() % shape.ranks != 0) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / (shape.chunks * shape.slices()));
}

std::optional<ClosedForm> of_chunks_in_groups(const PipelineShape& shape, const Times& times) {
  if (shape.microbatches % shape.ranks != 0) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / shape.chunks);
}

std::optional<ClosedForm> of_breadth_first(const PipelineShape& shape, const Times& times) {
  if (shape.microbatches < shape.ranks) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / shape.chunks);
}

std::optional<ClosedForm> of_zb_h1(const PipelineShape& shape, const Times& times) {
  if (times.weight_gradient > times.forward || shape.microbatches < shape.ranks) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * (times.forward + times.input_gradient - times.weight_gradient));
}

std::optional<ClosedForm> of_interleaved_zb(const PipelineShape& shape, const Times& times) {
  if (shape.microbatches % shape.ranks != 0) return std::nullopt;
  auto form = of_zb_h1(shape, times);
  const double work = shape.microbatches * whole(times);
  if (form) form->cost = work + (form->cost - work) / shape.chunks;
  return form;
}

std::optional<ClosedForm> of_zb_h2(const PipelineShape& shape, const Times& times) {
  const bool short_weights = times.weight_gradient <= std::min(times.forward, times.input_gradient);
  if (!short_weights || shape.microbatches < 2 * shape.ranks - 1) return std::nullopt;
  return own_span(shape, times, (shape.ranks - 1) * (times.forward + times.input_gradient - 2 * times.weight_gradient));
}

std::optional<ClosedForm> of_zb_v(const PipelineShape& shape, const Times& times) {
  if (!are_equal(times) || shape.microbatches < 2 * shape.ranks - 1) return std::nullopt;
  return own_span(shape, times, 0);
}

std::optional<ClosedForm> of_dualpipe(const PipelineShape& shape, const Times& times) {
  if (!are_equal(times)) return std::nullopt;
  const double fused = times.forward + full_backward(times);
  const std::int32_t inner = shape.ranks / 2 - 1;
  return makespan(shape, times, inner * (fused + full_backward(times) - 3 * times.weight_gradient));
}

std::optional<ClosedForm> of_dualpipe_v(const PipelineShape& shape, const Times& times) {
  if (!are_equal(times)) return std::nullopt;
  const double fused = times.forward + full_backward(times);
  return makespan(shape, times, (shape.ranks - 1) * (fused + full_backward(times) - 3 * times.weight_gradient) / 2);
}

std::optional<ClosedForm> of_chimera(const PipelineShape& shape, const Times& times) {
  const int units = shape.microbatches / shape.ranks;
  if (full_backward(times) == times.forward) return makespan(shape, times, (shape.ranks - 2) * times.forward);
  if (full_backward(times) != 2 * times.forward) return std::nullopt;
  return makespan(shape, times, (units + 1) * (shape.ranks - 2) * times.forward);
}

std::optional<ClosedForm> of_chimera_doubled(const PipelineShape& shape, const Times& times) {
  if (full_backward(times) != 2 * times.forward) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 2) * full_backward(times));
}

std::optional<ClosedForm> of_naive(const PipelineShape& shape, const Times& times) {
  return ClosedForm{true, shape.microbatches * shape.ranks * whole(times)};
}

// ZB-1p and ZB-2p: found for equal times, within the activations of `share` microbatches for each rank of the pipe.
template <std::int32_t share>
Schedule searched(const PipelineShape& shape) {
  return zb_search({shape, {1, 1, 1}, {static_cast<double>(share * shape.ranks), 1}});
}

}  // namespace

std::optional<ClosedForm> none_known(const PipelineShape& /*shape*/, const Times& /*times*/) {
  return std::nullopt;
}

// Generators: pure functions of a shape, called with shapes that the catalogue accepts.

Schedule naive(const PipelineShape& shape);
Schedule one_f_one_b(const PipelineShape& shape);
Schedule eager_1f1b(const PipelineShape& shape);
Schedule interleaved(const PipelineShape& shape);
Schedule breadth_first(const PipelineShape& shape);
Schedule interleaved_zb(const PipelineShape& shape);
Schedule seq1f1b(const PipelineShape& shape);
Schedule seq1f1b_i(const PipelineShape& shape);
Schedule bpipe(const PipelineShape& shape);
Schedule zb_v(const PipelineShape& shape);
Schedule v_half(const PipelineShape& shape);
Schedule v_min(const PipelineShape& shape);
Schedule dualpipe(const PipelineShape& shape);
Schedule dualpipe_v(const PipelineShape& shape);
Schedule hanayo(const PipelineShape& shape);
Schedule chimera(const PipelineShape& shape);
Schedule chimera_doubled(const PipelineShape& shape);

namespace {

std::string text_of(std::string_view what, std::int32_t value) {
  return std::string(what) + " is " + std::to_string(value) + "; allowed: ";
}

std::string at_least(std::string_view what, std::int32_t value, std::int32_t least) {
  return value >= least ? "" : text_of(what, value) + "at least " + std::to_string(least);
}

// `meaning` of the divisor, for the message: "the ranks".
std::string multiple_of(std::string_view what, std::int32_t value, std::int32_t divisor, std::string_view meaning) {
  if (value % divisor == 0) return "";
  const std::int32_t below = value - value % divisor;
  return text_of(what, value) + "multiples of " + std::string(meaning) + ", such as " +
         (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + divisor);
}

std::string even(std::string_view what, std::int32_t value) {
  return multiple_of(what, value, 2, "2");
}

std::string multiple_of_ranks(std::string_view what, std::int32_t value, const PipelineShape& shape) {
  return multiple_of(what, value, shape.ranks, "the ranks (" + std::to_string(shape.ranks) + ")");
}

std::string any(const PipelineShape& /*shape*/) {
  return "";
}
std::string any_of_several_chunks(const PipelineShape& shape) {
  return at_least("chunks", shape.chunks, 2);
}
std::string for_groups(const PipelineShape& shape) {
  if (auto few = any_of_several_chunks(shape); !few.empty()) return few;
  const std::int32_t groups = std::max(1, shape.microbatches / shape.ranks);
  const std::int32_t rest = shape.microbatches % groups;
  if (rest == 0) return "";
  const std::int32_t below = shape.microbatches - rest;
  return std::to_string(shape.microbatches) + " microbatches cannot be split into " + std::to_string(groups) +
         " equal groups of at least " + std::to_string(shape.ranks) + "; try " + std::to_string(below) + " or " +
         std::to_string(below + groups);
}
// Groups of p slices: the slices of a microbatch are all in one group, or fill several groups.
std::string for_sliced_groups(const PipelineShape& shape) {
  if (auto few = any_of_several_chunks(shape); !few.empty()) return few;
  if (shape.slices() == 1) return for_groups(shape);
  if (shape.ranks % shape.slices() != 0) {
    return text_of("slices", shape.slices()) + "divisors of the ranks (" + std::to_string(shape.ranks) + ")";
  }
  return multiple_of_ranks("microbatches x slices", shape.microbatches * shape.slices(), shape);
}
std::string for_2bw(const PipelineShape& shape) {
  return at_least("microbatches", shape.microbatches, shape.ranks);
}
std::string for_hanayo(const PipelineShape& shape) {
  return even("chunks", shape.chunks);
}
std::string for_dualpipe(const PipelineShape& shape) {
  if (auto odd = even("ranks", shape.ranks); !odd.empty()) return odd;
  if (auto odd = even("microbatches", shape.microbatches); !odd.empty()) return odd;
  return at_least("microbatches", shape.microbatches, 2 * shape.ranks);
}
std::string for_dualpipe_v(const PipelineShape& shape) {
  return at_least("microbatches", shape.microbatches, 2 * shape.ranks);
}
std::string for_chimera(const PipelineShape& shape) {
  if (auto odd = even("ranks", shape.ranks); !odd.empty()) return odd;
  return multiple_of_ranks("microbatches", shape.microbatches, shape);
}
std::string for_chimera_doubled(const PipelineShape& shape) {
  if (auto odd = even("ranks", shape.ranks); !odd.empty()) return odd;
  return multiple_of("microbatches", shape.microbatches, 2 * shape.ranks,
                     "twice the ranks (" + std::to_string(2 * shape.ranks) + ")");
}

constexpr std::array kEntries{
    CatalogueEntry{"naive", "model parallelism without a pipeline",
                   "GPipe, Huang et al. 2019 (arXiv:1811.06965), fig. 2b", "m (p-1)(f+b), at any times", 1,
                   Versions::one, false, naive, any, of_naive},
    CatalogueEntry{"gpipe", "GPipe, fill and drain", "Huang et al. 2019 (arXiv:1811.06965), section 2.3",
                   "(p-1)(f+b), at any times", 1, Versions::one, false, breadth_first, any, fill_and_drain},
    CatalogueEntry{"1f1b", "1F1B, PipeDream-Flush",
                   "Narayanan et al. 2020 (arXiv:2006.09503), section 3.2; DAPPLE, Fan et al. 2020 (arXiv:2007.01045)",
                   "(p-1)(f+b), at any times", 1, Versions::one, false, one_f_one_b, any, fill_and_drain},
    CatalogueEntry{"eager_1f1b", "eager 1F1B",
                   "Zhuang et al. 2022 (arXiv:2211.05322), section 4: twice the forwards ahead, which hide messages",
                   "(p-1)(f+b), at any times", 1, Versions::one, false, eager_1f1b, any, fill_and_drain},
    CatalogueEntry{"interleaved", "interleaved 1F1B", "Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.2",
                   "(p-1)(f+b)/v, if p divides m", 1, Versions::one, true, interleaved, for_groups,
                   of_chunks_in_groups},
    CatalogueEntry{"terapipe", "TeraPipe, token slices filled and drained",
                   "Li et al. 2021 (arXiv:2102.07988), section 3.3; each slice's keys and values serve the next ones",
                   "(p-1) x (f+b of the longest slice), at any times", 1, Versions::one, false, breadth_first, any,
                   of_slices_filled_and_drained, true},
    CatalogueEntry{"seq1f1b", "Seq1F1B, token slices", "Sun et al. 2024 (arXiv:2406.03488), section 3.2",
                   "(p-1)(f+b)/k, if the k slices take equal times", 1, Versions::one, false, seq1f1b, any, of_seq1f1b,
                   true},
    CatalogueEntry{"seq1f1b_i", "interleaved Seq1F1B", "Sun et al. 2024 (arXiv:2406.03488), section 3.3",
                   "(p-1)(f+b)/(v k), if the k slices take equal times and p divides m k", 1, Versions::one, true,
                   seq1f1b_i, for_sliced_groups, of_seq1f1b_i, true},
    CatalogueEntry{
        "bpipe", "BPipe, 1F1B with evenly spread activations",
        "Kim et al. 2023 (ICML, PMLR 202:16639), section 3: no rank holds more than ceil((p+2)/2) microbatches",
        "(p-1)(f+b), at any times, if evictions are hidden", 1, Versions::one, false, bpipe, any, fill_and_drain, false,
        true},
    CatalogueEntry{"breadth_first", "breadth-first, looped", "Lamy-Poirier 2022 (arXiv:2211.05953)",
                   "(p-1)(f+b)/v, if m >= p", 1, Versions::one, true, breadth_first, any_of_several_chunks,
                   of_breadth_first},
    CatalogueEntry{"zb_h1", "ZB-H1", "Qi et al. 2023 (arXiv:2401.10241), section 2.3.1",
                   "(p-1)(f+i-w), if w <= f and m >= p", 1, Versions::one, false, zb_h1, any, of_zb_h1},
    CatalogueEntry{"interleaved_zb", "interleaved zero bubble", "PyTorch's ScheduleInterleavedZeroBubble",
                   "(p-1)(f+i-w)/v, if w <= f and p divides m (derived)", 1, Versions::one, true, interleaved_zb,
                   for_groups, of_interleaved_zb},
    CatalogueEntry{"zb_h2", "ZB-H2", "Qi et al. 2023 (arXiv:2401.10241), section 2.3.2",
                   "own span: (p-1)(f+i-2w), if w <= f, i and m >= 2p-1", 1, Versions::one, false, zb_h2, any,
                   of_zb_h2},
    CatalogueEntry{"zb_1p", "ZB-1p, found by search",
                   "Qi et al. 2023 (arXiv:2401.10241), section 3: in the memory of 1F1B", "no closed form", 1,
                   Versions::one, false, searched<1>, any, none_known, false, false, 1},
    CatalogueEntry{"zb_2p", "ZB-2p, found by search",
                   "Qi et al. 2023 (arXiv:2401.10241), section 3: in twice that memory", "no closed form", 1,
                   Versions::one, false, searched<2>, any, none_known, false, false, 2},
    CatalogueEntry{"zb_v", "ZB-V", "Qi et al. 2023 (arXiv:2401.10241), section 6",
                   "own span: 0, if f = i = w and m >= 2p-1", 1, Versions::one, false, zb_v, any, of_zb_v},
    CatalogueEntry{"v_half", "V-Half", "Qi et al. 2024 (arXiv:2405.15362), section 4", "about p/2m of the ideal time",
                   1, Versions::one, false, v_half, any, none_known},
    CatalogueEntry{"v_min", "V-Min", "Qi et al. 2024 (arXiv:2405.15362), section 4", "about 2p/3m of the ideal time", 1,
                   Versions::one, false, v_min, any, none_known},
    CatalogueEntry{"pipedream", "PipeDream, asynchronous",
                   "Narayanan et al. 2019 (SOSP), section 3.3: each backward uses the weights of its forward, p-1-r "
                   "updates old at rank r",
                   "none but the first fill and the last drain: (p-1)(f+b)", 1, Versions::in_flight, false, one_f_one_b,
                   any, fill_and_drain},
    CatalogueEntry{"pipedream_2bw", "PipeDream-2BW, asynchronous",
                   "Narayanan et al. 2020 (arXiv:2006.09503), section 3.1: weights one update old",
                   "none but the first fill and the last drain: (p-1)(f+b)", 1, Versions::double_buffered, false,
                   one_f_one_b, for_2bw, fill_and_drain},
    CatalogueEntry{"hanayo", "Hanayo, waves", "Liu et al. 2023 (arXiv:2308.15762)", "no closed form is exact", 1,
                   Versions::one, true, hanayo, for_hanayo, none_known},
    CatalogueEntry{"chimera", "Chimera, units one after another", "Li, Hoefler 2021 (arXiv:2107.06925)",
                   "(p-2)f if b = f; (m/p+1)(p-2)f if b = 2f (derived)", 2, Versions::one, false, chimera, for_chimera,
                   of_chimera},
    CatalogueEntry{"chimera_doubled", "Chimera, forwards of two microbatches",
                   "Li, Hoefler 2021 (arXiv:2107.06925), section 3.5", "(p-2)b if b = 2f, at any number of units", 2,
                   Versions::one, false, chimera_doubled, for_chimera_doubled, of_chimera_doubled},
    CatalogueEntry{"dualpipe", "DualPipe", "DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.1",
                   "(p/2-1)(f+b + b-3w), if f = i = w, fused pairs taking f+b", 2, Versions::one, false, dualpipe,
                   for_dualpipe, of_dualpipe},
    CatalogueEntry{"dualpipe_v", "DualPipeV", "Sea AI Lab 2025, cut in half; deepseek-ai/DualPipe",
                   "(p-1)(f+b + b-3w)/2, if f = i = w", 1, Versions::one, false, dualpipe_v, for_dualpipe_v,
                   of_dualpipe_v},
};

}  // namespace

std::span<const CatalogueEntry> catalogue() {
  return kEntries;
}

std::int32_t weight_versions(const CatalogueEntry& entry, const PipelineShape& shape, std::int32_t rank) {
  switch (entry.versions) {
    case Versions::one:
      return 1;
    case Versions::in_flight:
      return std::min(shape.microbatches, shape.ranks - rank);
    case Versions::double_buffered:
      return 2;
  }
  return 1;
}

std::string why_invalid(const CatalogueEntry& entry, const PipelineShape& shape) {
  for (const auto& [what, value] : {std::pair<const char*, std::int32_t>{"ranks", shape.ranks},
                                    {"microbatches", shape.microbatches},
                                    {"chunks", shape.chunks}}) {
    if (auto low = at_least(what, value, 1); !low.empty()) return low;
  }
  if (!entry.takes_chunks && shape.chunks != 1) {
    return "chunks is " + std::to_string(shape.chunks) + "; allowed: 1, as the schedule has its own stages";
  }
  if (!entry.takes_slices && shape.slices() != 1) {
    return "slices is " + std::to_string(shape.slices()) + "; allowed: 1, as the schedule takes microbatches whole";
  }
  for (const std::int64_t tokens : shape.slice_tokens) {
    if (tokens < 1) return "a slice has " + std::to_string(tokens) + " tokens; allowed: at least 1";
  }
  return entry.why_invalid(shape);
}

const CatalogueEntry& entry_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : kEntries) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw core::unknown_name("schedule '" + std::string(name) + "' is not known", name, names);
}

Schedule make_schedule(std::string_view name, const PipelineShape& shape) {
  const CatalogueEntry& entry = entry_named(name);
  if (const std::string reason = why_invalid(entry, shape); !reason.empty()) {
    throw core::usage_error(std::string(name) + ": " + reason);
  }
  Schedule schedule = entry.make(shape);
  schedule.name = entry.name;
  return schedule;
}

}  // namespace lockstep::schedules
