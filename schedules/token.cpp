#include "schedules/token.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace lockstep::schedules {
namespace {

constexpr std::array<std::pair<Op, std::string_view>, 27> kNames{{{Op::forward, "F"},
                                                                  {Op::backward, "B"},
                                                                  {Op::input_gradient, "I"},
                                                                  {Op::weight_gradient, "W"},
                                                                  {Op::send_activations, "SEND_F"},
                                                                  {Op::recv_activations, "RECV_F"},
                                                                  {Op::send_gradient, "SEND_B"},
                                                                  {Op::recv_gradient, "RECV_B"},
                                                                  {Op::unshard, "UNSHARD"},
                                                                  {Op::reshard, "RESHARD"},
                                                                  {Op::reduce_grad, "REDUCE_GRAD"},
                                                                  {Op::recompute, "RECOMPUTE"},
                                                                  {Op::layer_collective, "COLLECTIVE"},
                                                                  {Op::optimizer, "STEP"},
                                                                  {Op::offload, "OFFLOAD"},
                                                                  {Op::load, "LOAD"},
                                                                  {Op::send_chunk, "SEND_CHUNK"},
                                                                  {Op::recv_chunk, "RECV_CHUNK"},
                                                                  {Op::curvature, "CURVATURE"},
                                                                  {Op::inversion, "INVERT"},
                                                                  {Op::filler, "FILL"},
                                                                  {Op::evict, "EVICT"},
                                                                  {Op::fetch, "FETCH"},
                                                                  {Op::hold, "HOLD"},
                                                                  {Op::ask, "ASK"},
                                                                  {Op::asked, "ASKED"},
                                                                  {Op::yield, "YIELD"}}};

// Parses and removes a number at the front.
std::optional<std::int32_t> take_number(std::string_view& text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// The operations that a schedule's text may contain: PyTorch's, EVICT and FETCH.
std::optional<Op> op_named(std::string_view name) {
  for (const auto& [op, known] : kNames) {
    if (known == name && op <= Op::fetch) return op;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Op op) {
  for (const auto& [known, name] : kNames) {
    if (known == op) return name;
  }
  return "?";
}

std::string token_of(const Action& action, std::int32_t slices) {
  std::string text(name_of(action.op));
  if (action.stage >= 0) text = std::to_string(action.stage) + text;
  if (action.microbatch < 0) return text;
  text += std::to_string(action.microbatch / slices);
  if (slices > 1) text += "." + std::to_string(action.microbatch % slices);
  return text;
}

std::optional<Action> parse_token(std::string_view text) {
  const auto stage = take_number(text);
  if (!stage) return std::nullopt;
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const auto op = op_named(text.substr(0, digits));
  text.remove_prefix(digits);
  if (!op) return std::nullopt;
  if (text.empty() && is_of_parameters(*op)) return Action{*op, *stage, kNoMicrobatch};
  const auto microbatch = take_number(text);
  if (!microbatch || !text.empty()) return std::nullopt;
  return Action{*op, *stage, *microbatch};
}

}  // namespace lockstep::schedules
