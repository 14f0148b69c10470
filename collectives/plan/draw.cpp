#include "collectives/plan/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "collectives/plan/cost.h"
#include "collectives/plan/messages.h"
#include "core/index.h"

namespace lockstep::plan {
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

using Grid = std::vector<std::vector<std::string>>;  // [rank][round]

Grid cells_of(const Plan& plan, const Contents& contents, const Prediction& unit) {
  const StepIds& ids = contents.ids();
  const Messages messages = match_messages(plan, ids);
  const auto rounds = static_cast<std::size_t>(std::lround(unit.time_us));
  Grid cells(at(plan.num_ranks), std::vector<std::string>(rounds, "."));
  for (const Message& message : messages.list) {
    const Step& send = step_at(plan, ids.place(message.send));
    const bool adds = step_at(plan, ids.place(message.recv)).op == Op::recv_reduce;
    const auto round = static_cast<std::size_t>(std::lround(unit.spans[at(message.send)].begin_us));
    cells[at(ids.place(message.send).rank)][round] =
        fmt::format("{}{}>{}", chunks_text(contents, message.send, send.src.count), adds ? "+" : "", send.peer);
  }
  return cells;
}

}  // namespace

std::string draw(const Plan& plan, const Contents& contents) {
  const Grid cells = cells_of(plan, contents, predict(plan, contents, smallest_operation(plan), {.alpha_us = 1}));
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
