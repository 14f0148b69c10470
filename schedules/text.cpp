#include "schedules/schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::schedules {
namespace {

constexpr std::array<std::string_view, 27> kNames{
    // as in Op
    "F",          "B",           "I",     "W",     "SEND_F",    "RECV_F",     "SEND_B",    "RECV_B",  "UNSHARD",
    "RESHARD",    "REDUCE_GRAD", "EVICT", "FETCH", "RECOMPUTE", "COLLECTIVE", "STEP",      "OFFLOAD", "LOAD",
    "SEND_CHUNK", "RECV_CHUNK",  "HOLD",  "ASK",   "ASKED",     "YIELD",      "CURVATURE", "INVERT",  "FILL"};

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
  const auto* const end = kNames.begin() + static_cast<std::ptrdiff_t>(Op::fetch) + 1;
  const auto* const found = std::find(kNames.begin(), end, name);
  return found == end ? std::nullopt : std::optional(static_cast<Op>(found - kNames.begin()));
}

}  // namespace

std::string_view name_of(Op op) {
  return kNames.at(static_cast<std::size_t>(op));
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

namespace {

constexpr std::string_view kFused = ")OVERLAP_F_B";

std::string cell_of(const std::vector<Action>& list, std::size_t& i, std::int32_t slices) {
  if (!list[i].with_next || i + 1 == list.size()) return token_of(list[i], slices);
  ++i;
  return "(" + token_of(list[i - 1], slices) + ";" + token_of(list[i], slices) + std::string(kFused);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\"");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\"") - begin + 1);
}

// A file may contain any stage and microbatch numbers, so no allocation is sized by them.
class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Schedule parse(std::int32_t pipes) {
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      ++line_;
      parse_line(text_.substr(begin, end - begin));
      begin = end + 1;
    }
    finish(pipes);
    return std::move(made_);
  }

 private:
  void parse_line(std::string_view line) {
    if (trimmed(line).empty()) return;
    made_.of_rank.emplace_back();
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      column_ = begin + 1;
      parse_cell(trimmed(line.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (made_.of_rank.back().empty()) throw error("this rank's line has no action; allowed: at least one");
  }

  void parse_cell(std::string_view cell) {
    if (cell.empty()) return;
    if (cell.front() != '(') return add(cell, false);
    const std::size_t between = cell.find(';');
    if (between == std::string_view::npos || !cell.ends_with(kFused)) fail(cell);
    add(cell.substr(1, between - 1), true);
    add(cell.substr(between + 1, cell.size() - between - 1 - kFused.size()), false);
  }

  void add(std::string_view token, bool with_next) {
    const std::size_t point = std::min(token.find('.'), token.size());
    auto action = parse_token(token.substr(0, point));
    if (!action) fail(token);
    const std::int32_t slice = point == token.size() ? kWhole : slice_of(token, token.substr(point + 1));
    if (action->microbatch != kNoMicrobatch) check_slice(slice);
    action->with_next = with_next;
    const auto rank = static_cast<std::int32_t>(made_.of_rank.size()) - 1;
    const std::int32_t placed = rank_of_.try_emplace(action->stage, rank).first->second;
    if (placed != rank) {
      throw error("stage " + std::to_string(action->stage) + " belongs to rank " + std::to_string(placed) +
                  ", in whose line it appeared first; allowed: one rank per stage");
    }
    if (action->microbatch != kNoMicrobatch) microbatches_.insert(action->microbatch);
    made_.of_rank.back().push_back(*action);
    slice_of_.push_back(std::max(slice, 0));
    ++num_actions_;
  }

  std::int32_t slice_of(std::string_view token, std::string_view text) const {
    const auto numbered =
        parse_token("0F" + std::string(text));  // slice numbers follow the rules of microbatch numbers
    if (!numbered || numbered->microbatch >= kMostSlices) fail(token);
    return numbered->microbatch;
  }

  // Throws if only some of the microbatches have slices.
  void check_slice(std::int32_t slice) {
    const bool sliced = slice != kWhole;
    if (sliced_.value_or(sliced) != sliced) {
      throw error("some microbatches have slices (0F1.2) and some have none; allowed: all or none with slices");
    }
    sliced_ = sliced;
    slices_ = std::max(slices_, slice + 1);
  }

  // Numbers all slices (schedule.h).
  void number_slices() {
    std::size_t at = 0;
    for (auto& list : made_.of_rank) {
      for (Action& action : list) {
        if (action.microbatch != kNoMicrobatch) action.microbatch = action.microbatch * slices_ + slice_of_[at];
        ++at;
      }
    }
    if (sliced_.value_or(false)) made_.slice_tokens.assign(static_cast<std::size_t>(slices_), 1);
  }

  void finish(std::int32_t pipes) {
    if (microbatches_.empty()) throw of_file("the file has no action; allowed: at least one, such as 0F0");
    refuse_gap("stage", rank_of_, [](const auto& entry) { return entry.first; });
    refuse_gap("microbatch", microbatches_, [](std::int32_t microbatch) { return microbatch; });
    for (const auto& [stage, rank] : rank_of_) made_.rank_of_stage.push_back(rank);
    const std::int32_t stages = made_.num_stages();
    const std::size_t slices = microbatches_.size() * static_cast<std::size_t>(slices_);
    if (rank_of_.size() * slices > kMostEmpty * num_actions_) {
      throw of_file(std::to_string(num_actions_) + " actions for " + std::to_string(stages) + " stages and " +
                    std::to_string(slices) + (slices_ > 1 ? " slices of microbatches" : " microbatches") +
                    "; allowed: one forward and backward of each microbatch on each stage of a pipe");
    }
    made_.num_microbatches = static_cast<std::int32_t>(slices);
    number_slices();
    if (pipes < 1 || stages % pipes != 0 || stages / pipes % made_.num_ranks() != 0) {
      throw of_file(std::to_string(stages) + " stages on " + std::to_string(made_.num_ranks()) + " ranks in " +
                    std::to_string(pipes) + (pipes == 1 ? " pipe" : " pipes") +
                    "; allowed: equally many stages per rank and pipe");
    }
    made_.name = std::string(source_);
    made_.stages_per_pipe = stages / pipes;
  }

  // Throws if the ascending `numbers` are not 0, 1, 2, ...
  template <typename Numbers, typename NumberOf>
  void refuse_gap(const std::string& what, const Numbers& numbers, const NumberOf& number_of) const {
    std::int32_t next = 0;
    auto at = numbers.begin();
    while (at != numbers.end() && number_of(*at) == next) {
      ++at;
      ++next;
    }
    if (at == numbers.end()) return;
    throw of_file(what + " " + std::to_string(next) + " has no action, but " + what + " " +
                  std::to_string(number_of(*at)) + " has; allowed: numbers from 0 without a gap");
  }

  core::Error of_file(const std::string& what) const { return core::usage_error(std::string(source_) + ": " + what); }
  core::Error error(const std::string& what) const {
    return core::usage_error(std::string(source_) + ":" + std::to_string(line_) + ":" + std::to_string(column_) + ": " +
                             what);
  }
  [[noreturn]] void fail(std::string_view cell) const {
    throw error(
        "'" + std::string(cell.substr(0, kMostShown)) +
        "' is not an action; allowed: cells between commas, each a stage, F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, "
        "EVICT or FETCH, and a microbatch, such as 0F1, or 0F1.2 with its slice, two as (0F1;2B0)OVERLAP_F_B, or a "
        "stage and UNSHARD, RESHARD or REDUCE_GRAD");
  }

  static constexpr std::size_t kMostEmpty = 100;  // (stage, microbatch) pairs per action of the file
  static constexpr std::size_t kMostShown = 80;
  static constexpr std::int32_t kWhole = -1;  // a microbatch without a slice
  static constexpr std::int32_t kMostSlices = 65536;

  std::string_view text_;
  std::string_view source_;
  std::size_t line_ = 0;
  std::size_t column_ = 0;
  std::size_t num_actions_ = 0;
  std::map<std::int32_t, std::int32_t> rank_of_;  // by stage
  std::set<std::int32_t> microbatches_;
  std::vector<std::int32_t> slice_of_;  // per action, over all ranks
  std::optional<bool> sliced_;          // set by the first action with a microbatch
  std::int32_t slices_ = 1;             // per microbatch
  Schedule made_;
};

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& list : schedule.of_rank) {
    for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ",") + cell_of(list, i, schedule.slices());
    text += "\n";
  }
  return text;
}

Schedule parse_csv(std::string_view text, std::string_view source, std::int32_t pipes) {
  return Parser(text, source).parse(pipes);
}

}  // namespace lockstep::schedules
