#include "collectives/plan/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace lockstep::plan {
namespace {

std::string slice_text(const Slice& slice) {
  if (slice.count == 1) return fmt::format("{}[{}]", name_of(slice.buffer), slice.first);
  return fmt::format("{}[{}..{}]", name_of(slice.buffer), slice.first, slice.first + slice.count - 1);
}

std::string operands_text(const Step& step) {
  switch (step.op) {
    case Op::send:
      return fmt::format("{} -> {}", slice_text(step.src), step.peer);
    case Op::recv:
      return fmt::format("{} <- {}", slice_text(step.dst), step.peer);
    case Op::recv_reduce:
      return fmt::format("{} <- {} + {}", slice_text(step.dst), step.peer, slice_text(step.src));
    case Op::copy:
      return fmt::format("{} <- {}", slice_text(step.dst), slice_text(step.src));
    case Op::reduce:
      return fmt::format("{} += {}", slice_text(step.dst), slice_text(step.src));
  }
  return "?";
}

bool is_word(std::string_view name) {
  return !name.empty() && name != "-" && name.find('#') == std::string_view::npos &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
}

}  // namespace

std::string to_text(const Step& step) {
  std::string text = fmt::format("{} {}", name_of(step.op), operands_text(step));
  if (step.after.lane >= 0) text += fmt::format(" after {}.{}", step.after.lane, step.after.step);
  return text;
}

std::string to_text(const Plan& plan) {
  LOCKSTEP_CHECK(plan.algorithm.empty() || is_word(plan.algorithm), "a plan's name must be one word");
  std::string text = fmt::format("plan {} {} ranks={} root={} chunks={} scratch={}\n", name_of(plan.kind),
                                 plan.algorithm.empty() ? "-" : plan.algorithm, plan.num_ranks, plan.root,
                                 plan.chunks_per_block, plan.scratch_chunks);
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const auto& lanes = plan.ranks[rank].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      text += fmt::format("rank {} lane {}\n", rank, lane);
      for (const Step& step : lanes[lane]) text += "  " + to_text(step) + "\n";
    }
  }
  return text;
}

}  // namespace lockstep::plan
