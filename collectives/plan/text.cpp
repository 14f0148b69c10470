#include "collectives/plan/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "collectives/plan/cost.h"
#include "collectives/plan/messages.h"
#include "core/error.h"
#include "core/index.h"

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
  for (std::size_t i = 0; i < step.after.size(); ++i) {
    text += fmt::format("{}{}.{}", i == 0 ? " after " : ", ", step.after[i].lane, step.after[i].step);
  }
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

namespace {

constexpr int kMaxRanks = 1 << 20;  // a typing error must not use up memory

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// Reads one line, token by token; every error names the line and the column.
class LineReader {
 public:
  LineReader(std::string_view source, int number, std::string_view line)
      : source_(source), number_(number), line_(line.substr(0, line.find('#'))) {
    skip_space();
  }

  bool at_end() const { return at_ == line_.size(); }

  [[noreturn]] void fail(const std::string& allowed) const { fail_at(at_, allowed); }
  [[noreturn]] void fail_at(std::size_t column, const std::string& allowed) const {
    const std::size_t end = line_.find_first_of(" \t\r", column);
    const std::string_view found = line_.substr(column, end == std::string_view::npos ? end : end - column);
    const std::string there = found.empty() ? "the line ends" : fmt::format("found '{}'", found);
    throw core::usage_error(fmt::format("{}:{}:{}: {}; allowed: {}", source_, number_, column + 1, there, allowed));
  }

  // Everything up to the next space.
  std::string_view word(const std::string& allowed) {
    std::size_t end = at_;
    while (end < line_.size() && !is_space(line_[end])) ++end;
    if (end == at_) fail(allowed);
    return take(end);
  }

  bool accept(std::string_view token) {
    if (line_.substr(at_, token.size()) != token) return false;
    take(at_ + token.size());
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("'{}'", token));
  }

  int integer(const std::string& meaning) {
    int value = 0;
    const char* begin = line_.data() + at_;
    const auto [end, error] = std::from_chars(begin, line_.data() + line_.size(), value);
    if (error != std::errc{}) fail(meaning + " (an integer)");
    take(at_ + static_cast<std::size_t>(end - begin));
    return value;
  }

  void end() {
    if (!at_end()) fail("nothing more on this line");
  }
  std::size_t column() const { return at_; }

 private:
  std::string_view take(std::size_t end) {
    const std::string_view token = line_.substr(at_, end - at_);
    at_ = end;
    skip_space();
    return token;
  }
  void skip_space() {
    while (at_ < line_.size() && is_space(line_[at_])) ++at_;
  }

  std::string_view source_;
  int number_;
  std::string_view line_;
  std::size_t at_ = 0;
};

constexpr std::array kOps{Op::send, Op::recv, Op::recv_reduce, Op::copy, Op::reduce};
constexpr std::array kBuffers{Buffer::input, Buffer::output, Buffer::scratch};

std::optional<Op> op_named(std::string_view name) {
  for (const Op op : kOps) {
    if (name_of(op) == name) return op;
  }
  return {};
}

Slice parse_slice(LineReader& line) {
  Slice slice;
  bool known = false;
  for (const Buffer buffer : kBuffers) {
    if (known || !line.accept(name_of(buffer))) continue;
    slice.buffer = buffer;
    known = true;
  }
  if (!known) line.fail("input[..], output[..] or scratch[..]");
  line.expect("[");
  slice.first = line.integer("first chunk");
  slice.count = 1;
  if (line.accept("..")) {
    const std::size_t column = line.column();
    const auto count = static_cast<std::int64_t>(line.integer("last chunk")) - slice.first + 1;
    if (count != static_cast<int>(count)) line.fail_at(column, "a chunk nearer to the first");
    slice.count = static_cast<int>(count);
  }
  line.expect("]");
  return slice;
}

Step parse_operands(Op op, LineReader& line) {
  Step step;
  step.op = op;
  (op == Op::send ? step.src : step.dst) = parse_slice(line);
  line.expect(op == Op::send ? "->" : op == Op::reduce ? "+=" : "<-");
  if (op == Op::send || reads_peer(op)) step.peer = line.integer("peer rank");
  if (op == Op::recv_reduce) line.expect("+");
  if (op != Op::send && reads_src(op)) step.src = parse_slice(line);
  return step;
}

After parse_awaited(LineReader& line) {
  After after;
  const std::size_t column = line.column();
  after.lane = line.integer("lane of the step to wait for");
  if (after.lane < 0) line.fail_at(column, "a lane from 0 on");
  line.expect(".");
  after.step = line.integer("index of the step to wait for");
  return after;
}

std::vector<After> parse_after(LineReader& line) {
  std::vector<After> after{parse_awaited(line)};
  while (line.accept(",")) after.push_back(parse_awaited(line));
  return after;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Plan parse() {
    int number = 0;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      LineReader line(source_, ++number, text_.substr(begin, end - begin));
      if (!line.at_end()) parse_line(line, number);
      begin = end + 1;
    }
    if (!has_header_)
      throw core::usage_error(fmt::format("{}: holds no plan; its first line must be {}", source_, kHeader));
    return std::move(plan_);
  }
  StepLines& lines() { return lines_; }

 private:
  static constexpr std::string_view kHeader = "'plan COLLECTIVE NAME ranks=N root=R chunks=K scratch=S'";

  void parse_line(LineReader& line, int number) {
    const std::size_t column = line.column();
    const std::string allowed = !has_header_ ? std::string(kHeader)
                                : lane_      ? "'rank R lane L', send, recv, recv_reduce, copy or reduce"
                                             : "'rank R lane L'";
    const std::string_view word = line.word(allowed);
    if (word == "plan" && !has_header_) return header(line);
    if (word == "rank" && has_header_) return lane_heading(line);
    const std::optional<Op> op = op_named(word);
    if (!op || !lane_) line.fail_at(column, allowed);
    Step step = parse_operands(*op, line);
    if (line.accept("after")) step.after = parse_after(line);
    line.end();
    lane_->push_back(step);
    lane_lines_->push_back(number);
  }

  void header(LineReader& line) {
    plan_.kind = parse_kind(line);
    const std::size_t name_column = line.column();
    plan_.algorithm = line.word("the algorithm's name, or -");
    if (plan_.algorithm == "-") plan_.algorithm.clear();
    if (!plan_.algorithm.empty() && !is_word(plan_.algorithm)) line.fail_at(name_column, "a name of one word");
    const std::size_t ranks_column = line.column();
    plan_.num_ranks = field(line, "ranks");
    if (plan_.num_ranks < 1 || plan_.num_ranks > kMaxRanks) {
      line.fail_at(ranks_column, fmt::format("ranks from 1 to {}", kMaxRanks));
    }
    plan_.root = field(line, "root");
    plan_.chunks_per_block = field(line, "chunks");
    plan_.scratch_chunks = field(line, "scratch");
    line.end();
    plan_.ranks.resize(static_cast<std::size_t>(plan_.num_ranks));
    lines_.resize(plan_.ranks.size());
    has_header_ = true;
  }

  static collectives::Kind parse_kind(LineReader& line) {
    const std::size_t column = line.column();
    const std::string_view word = line.word("a collective");
    std::string allowed;
    for (const collectives::Kind kind : collectives::all_kinds()) {
      if (collectives::name_of(kind) == word) return kind;
      allowed += (allowed.empty() ? "" : ", ") + std::string(collectives::name_of(kind));
    }
    line.fail_at(column, allowed);
  }

  static int field(LineReader& line, const std::string& name) {
    line.expect(name + "=");
    return line.integer("value of " + name);
  }

  void lane_heading(LineReader& line) {
    const std::size_t column = line.column();
    const int rank = line.integer("rank");
    if (rank < 0 || rank >= plan_.num_ranks) line.fail_at(column, fmt::format("0..{}", plan_.num_ranks - 1));
    line.expect("lane");
    const std::size_t lane_column = line.column();
    auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
    if (line.integer("lane") != static_cast<int>(lanes.size())) {
      line.fail_at(lane_column, fmt::format("{} (a rank's lanes come in order)", lanes.size()));
    }
    line.end();
    lanes.emplace_back();
    lane_ = &lanes.back();
    auto& lines_of_rank = lines_[static_cast<std::size_t>(rank)];
    lines_of_rank.emplace_back();
    lane_lines_ = &lines_of_rank.back();
  }

  std::string_view text_;
  std::string_view source_;
  Plan plan_;
  bool has_header_ = false;
  Lane* lane_ = nullptr;  // lane that steps are added to
  StepLines lines_;
  std::vector<int>* lane_lines_ = nullptr;
};

// Needs of check() for a plan: chunks moved by all steps, and bytes for the symbols of all buffers.
struct CheckedSizes {
  double moves = 0;
  double bytes = 0;
};

CheckedSizes need_of(const Plan& plan) {
  const double contributors = collectives::has_op(plan.kind) ? plan.num_ranks / 8.0 : 0;  // bytes per chunk
  CheckedSizes need;
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    const auto blocks = static_cast<double>(collectives::input_blocks(plan.kind, plan.num_ranks, plan.root, rank) +
                                            collectives::output_blocks(plan.kind, plan.num_ranks, plan.root, rank));
    const auto& lanes = plan.ranks[at(rank)].lanes;
    const double chunks = blocks * std::max(0, plan.chunks_per_block) + std::max(0, plan.scratch_chunks);
    need.bytes += chunks * (20 + 8 * static_cast<double>(lanes.size()) + contributors);
    for (const Lane& lane : lanes) {
      for (const Step& step : lane) need.moves += std::max(0, chunks_of(step));
    }
  }
  return need;
}

// A few characters can ask for any number of chunks. A plan that fills its buffers has steps in proportion to them.
void check_need(const Plan& plan, std::string_view text, std::string_view source) {
  constexpr double kPerCharacter = 64;
  const double of_text = kPerCharacter * static_cast<double>(text.size());
  const CheckedSizes need = need_of(plan);
  if (need.moves <= 0x1p20 + of_text && need.bytes <= 0x1p24 + of_text) return;
  throw core::usage_error(
      fmt::format("{}: {} chunks per block, {} scratch chunks and steps that move {:g} chunks are too many for {} "
                  "ranks and a text of this length; allowed: fewer chunks, as executors cut them into segments by "
                  "themselves",
                  source, plan.chunks_per_block, plan.scratch_chunks, need.moves, plan.num_ranks));
}

}  // namespace

Plan parse_plan(std::string_view text, std::string_view source, StepLines* lines) {
  Parser parser(text, source);
  Plan plan = parser.parse();
  check_need(plan, text, source);
  if (lines != nullptr) *lines = std::move(parser.lines());
  return plan;
}

namespace {

std::string label_of(const Moved& moved) {
  return moved.origin < 0 ? fmt::format("{}", moved.chunk) : fmt::format("{}.{}", moved.origin, moved.chunk);
}

// Runs of consecutive chunks of one origin: "0-3,7".
std::string chunks_text(const Contents& contents, int step_id, int count) {
  std::string text;
  for (int i = 0; i < count;) {
    int last = i;
    const auto follows = [&](int next) {
      const Moved& first = contents.at(step_id, i);
      const Moved& moved = contents.at(step_id, next);
      return moved.origin == first.origin && moved.chunk == first.chunk + next - i;
    };
    while (last + 1 < count && follows(last + 1)) ++last;
    text += text.empty() ? "" : ",";
    text += label_of(contents.at(step_id, i));
    if (last > i) text += fmt::format("-{}", contents.at(step_id, last).chunk);
    i = last + 1;
  }
  return text;
}

// One element per chunk is enough: only rounds are needed.
collectives::Operation smallest_operation(const Plan& plan) {
  collectives::Operation operation;
  operation.kind = plan.kind;
  operation.root = plan.root;
  operation.count = plan.chunks_per_block;
  if (plan.kind == collectives::Kind::all_to_all_v) {
    const auto pairs = at(plan.num_ranks) * at(plan.num_ranks);
    operation.matrix = std::make_shared<collectives::CountMatrix>(
        collectives::CountMatrix{plan.num_ranks, std::vector<std::int64_t>(pairs, plan.chunks_per_block)});
  }
  return operation;
}

using RoundCells = std::vector<std::vector<std::string>>;  // [rank][round]

RoundCells cells_of(const Plan& plan, const Contents& contents, const Prediction& unit) {
  const StepIds& ids = contents.ids();
  const Messages messages = match_messages(plan, ids);
  const auto rounds = static_cast<std::size_t>(std::lround(unit.time_us));
  RoundCells cells(at(plan.num_ranks), std::vector<std::string>(rounds, "."));
  for (const Message& message : messages.list) {
    const Step& send = step_at(plan, ids.index(message.send));
    const bool adds = step_at(plan, ids.index(message.recv)).op == Op::recv_reduce;
    const auto round = static_cast<std::size_t>(std::lround(unit.spans[at(message.send)].begin_us));
    cells[at(ids.index(message.send).rank)][round] =
        fmt::format("{}{}>{}", chunks_text(contents, message.send, send.src.count), adds ? "+" : "", send.peer);
  }
  return cells;
}

}  // namespace

std::string draw(const Plan& plan, const Contents& contents) {
  const RoundCells cells = cells_of(plan, contents, predict(plan, contents, smallest_operation(plan), {.alpha_us = 1}));
  const std::size_t rounds = cells.front().size();
  std::string heading = "rank";
  std::vector<std::string> rows;
  for (int rank = 0; rank < plan.num_ranks; ++rank) rows.push_back(fmt::format("{:>4}", rank));
  for (std::size_t round = 0; round < rounds; ++round) {
    std::size_t width = 0;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      rows[rank] += "  " + cells[rank][round];
      width = std::max(width, rows[rank].size());
    }
    heading += fmt::format("  {}", round + 1);
    width = std::max(width, heading.size());
    if (round + 1 == rounds) break;
    for (std::string& row : rows) row.resize(width, ' ');
    heading.resize(width, ' ');
  }
  std::string text =
      fmt::format("{} {}, {} ranks, {} chunks per block: {} rounds\n{}\n", collectives::name_of(plan.kind),
                  plan.algorithm, plan.num_ranks, plan.chunks_per_block, rounds, heading);
  for (const std::string& row : rows) text += row + "\n";
  return text;
}

}  // namespace lockstep::plan
