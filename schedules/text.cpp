#include "schedules/text.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "schedules/token.h"

namespace lockstep::schedules {
namespace {

constexpr std::string_view kFused = ")OVERLAP_F_B";
constexpr std::int32_t kUnplaced = -1;

std::string cell_of(const std::vector<Action>& list, std::size_t& i) {
  if (!list[i].with_next || i + 1 == list.size()) return token_of(list[i]);
  ++i;
  return "(" + token_of(list[i - 1]) + ";" + token_of(list[i]) + std::string(kFused);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\"");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\"") - begin + 1);
}

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
    if (trimmed(line).empty() && made_.of_rank.empty()) return;  // before the first rank
    made_.of_rank.emplace_back();
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      column_ = begin + 1;
      parse_cell(trimmed(line.substr(begin, end - begin)));
      begin = end + 1;
    }
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
    auto action = parse_token(token);
    if (!action) fail(token);
    action->with_next = with_next;
    const auto stage = static_cast<std::size_t>(action->stage);
    if (stage >= made_.rank_of_stage.size()) made_.rank_of_stage.resize(stage + 1, kUnplaced);
    const auto rank = static_cast<std::int32_t>(made_.of_rank.size()) - 1;
    std::int32_t& placed = made_.rank_of_stage[stage];
    if (placed != kUnplaced && placed != rank) {
      throw error("stage " + std::to_string(stage) + " belongs to rank " + std::to_string(placed) +
                  ", in whose line it stands first; allowed: one rank a stage");
    }
    placed = rank;
    made_.num_microbatches = std::max(made_.num_microbatches, action->microbatch + 1);
    made_.of_rank.back().push_back(*action);
  }

  void finish(std::int32_t pipes) {
    const std::int32_t stages = made_.num_stages();
    const auto hole = std::find(made_.rank_of_stage.begin(), made_.rank_of_stage.end(), kUnplaced);
    if (stages == 0) throw core::usage_error(std::string(source_) + ": no action in it; allowed: such as 0F0,0B0");
    if (hole != made_.rank_of_stage.end()) {
      throw core::usage_error(std::string(source_) + ": stage " + std::to_string(hole - made_.rank_of_stage.begin()) +
                              " has no action, but stage " + std::to_string(stages - 1) +
                              " has; allowed: stages from 0 without a gap");
    }
    if (pipes < 1 || stages % pipes != 0 || stages / pipes % made_.num_ranks() != 0) {
      throw core::usage_error(std::string(source_) + ": " + std::to_string(stages) + " stages on " +
                              std::to_string(made_.num_ranks()) + " ranks in " + std::to_string(pipes) +
                              " pipes; allowed: as many on each rank");
    }
    made_.name = std::string(source_);
    made_.stages_a_pipe = stages / pipes;
  }

  core::Error error(const std::string& what) const {
    return core::usage_error(std::string(source_) + ":" + std::to_string(line_) + ":" + std::to_string(column_) + ": " +
                             what);
  }
  [[noreturn]] void fail(std::string_view cell) const {
    throw error("'" + std::string(cell) +
                "' is no action; allowed: stage, F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B, and microbatch, such as "
                "0F1, or two as (0F1;2B0)OVERLAP_F_B");
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t line_ = 0;
  std::size_t column_ = 0;
  Schedule made_;
};

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& list : schedule.of_rank) {
    for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ",") + cell_of(list, i);
    text += "\n";
  }
  return text;
}

Schedule parse_csv(std::string_view text, std::string_view source, std::int32_t pipes) {
  return Parser(text, source).parse(pipes);
}

}  // namespace lockstep::schedules
