#include "workload/context_list.h"

#include <set>
#include <utility>

#include "core/error.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using Array = ContextArray;

constexpr ChunkRange kBoth{0, 2};
constexpr ChunkRange kFirst{0, 1};
constexpr ChunkRange kSecond{1, 1};

// Makes the lists of one rank.
class RankLists {
 public:
  RankLists(const ContextShape& shape, std::int32_t rank) : shape_(shape), ranks_(shape.ranks), rank_(rank) {}

  ContextSides sides() {
    switch (shape_.way) {
      case ContextWay::ring:
      case ContextWay::zigzag:
        ring();
        break;
      case ContextWay::allgather:
        gathered();
        break;
      case ContextWay::ulysses:
        by_heads();
        break;
      case ContextWay::lightseq:
        balanced();
        break;
      case ContextWay::colossal:
        scores_in_memory();
        break;
    }
    return std::move(made_);
  }

 private:
  std::int32_t around(std::int32_t rank) const { return (rank % ranks_ + ranks_) % ranks_; }

  // Sends the array of owner `sent` to the rank `to` positions ahead, and receives that of `received` from the rank
  // `to` positions before.
  ContextExchange shift(Array array, std::int32_t to, std::int32_t sent, std::int32_t received) const {
    return {.comm = Comm::shift,
            .array = array,
            .sends = {{around(rank_ + to), around(sent)}},
            .receives = {{around(rank_ - to), around(received)}},
            .received = array};
  }
  ContextExchange among_all(Comm comm, Array array) const {
    ContextExchange exchange{.comm = comm, .array = array, .received = array};
    const bool gathers = comm == Comm::all_gather;
    for (std::int32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      const bool whole = comm == Comm::reduce_scatter;
      exchange.sends.push_back({peer, whole ? peer : rank_});
      exchange.receives.push_back({peer, whole ? rank_ : peer});
    }
    LOCKSTEP_CHECK(gathers || comm == Comm::reduce_scatter || comm == Comm::all_to_all, "an exchange among all");
    return exchange;
  }

  // ---- ring and zigzag

  std::vector<ContextBlock> ring_blocks(std::int32_t turn) const {
    const std::int32_t owner = around(rank_ - turn);
    const ChunkRange all{0, chunks_per_rank(shape_.way)};
    if (turn == 0 || !shape_.causal) return {{rank_, owner, all, all, shape_.causal && turn == 0}};
    if (shape_.way == ContextWay::ring) {
      if (owner > rank_) return {};
      return {{rank_, owner, all, all}};
    }
    if (owner < rank_) return {{rank_, owner, kBoth, kFirst}};
    return {{rank_, owner, kSecond, kBoth}};
  }

  void ring() {
    for (std::int32_t turn = 0; turn < ranks_; ++turn) {
      ContextTurn forward{.blocks = ring_blocks(turn)};
      ContextTurn backward{.blocks = forward.blocks};
      if (turn > 0) {
        forward.operands = {shift(Array::keys, 1, rank_ - turn + 1, rank_ - turn)};
        backward.operands = {shift(Array::keys, -1, rank_ - turn - 1, rank_ - turn)};
        backward.results = {shift(Array::d_keys, -1, rank_ - turn, rank_ - turn + 1)};
      }
      add(std::move(forward), std::move(backward));
    }
  }

  // ---- allgather and ulysses

  void gathered() {
    ContextTurn forward{.operands = {among_all(Comm::all_gather, Array::keys)}};
    if (shape_.causal) {
      const std::vector<std::int32_t> chunks = chunks_of(shape_, rank_);
      for (std::int32_t i = 0; i < 2; ++i) {
        forward.blocks.push_back({rank_, kWholeSequence, {i, 1}, {0, chunks[static_cast<std::size_t>(i)] + 1}, true});
      }
    } else {
      forward.blocks = {{rank_, kWholeSequence, kBoth, {0, chunks_of(shape_)}}};
    }
    ContextTurn backward = forward;
    backward.results = {among_all(Comm::reduce_scatter, Array::d_keys)};
    add(std::move(forward), std::move(backward));
  }

  void by_heads() {
    const ChunkRange all{0, ranks_};
    const std::vector<ContextBlock> blocks{{kWholeSequence, kWholeSequence, all, all, shape_.causal}};
    add({.operands = {among_all(Comm::all_to_all, Array::queries), among_all(Comm::all_to_all, Array::keys)},
         .blocks = blocks,
         .results = {among_all(Comm::all_to_all, Array::outputs)}},
        {.operands = {among_all(Comm::all_to_all, Array::d_outputs)},
         .blocks = blocks,
         .results = {among_all(Comm::all_to_all, Array::d_queries), among_all(Comm::all_to_all, Array::d_keys)}});
  }

  // ---- lightseq

  // In turn t the ranks from t on have keys of t ranks before, and those below t have queries of P - t ranks before.
  // Halfway around an even number of ranks both would compute the same pairs, so the ranks below have none there.
  void balanced() {
    for (std::int32_t turn = 0; turn <= ranks_ / 2; ++turn) {
      const bool helps = rank_ < turn && 2 * turn != ranks_;                // computes for others
      const bool is_helped = rank_ + turn >= ranks_ && 2 * turn != ranks_;  // others compute for it
      const std::int32_t previous = rank_ - turn;                           // owner of the keys or queries that arrive
      const std::int32_t ahead = rank_ + turn;
      ContextTurn forward;
      ContextTurn backward;
      if (turn == 0) {
        forward.blocks = {{rank_, rank_, kFirst, kFirst, true}};
      } else if (previous >= 0) {
        forward.blocks = {{rank_, previous, kFirst, kFirst}};
      } else if (helps) {
        forward.blocks = {{around(previous), rank_, kFirst, kFirst}};
      }
      backward.blocks = forward.blocks;
      if (turn > 0) {
        // Sends keys ahead, or queries around to a rank that computes for this one.
        ContextExchange operands{.array = ahead < ranks_ ? Array::keys : Array::queries,
                                 .received = previous >= 0 ? Array::keys : Array::queries};
        if (ahead < ranks_ || is_helped) operands.sends = {{around(ahead), rank_}};
        if (previous >= 0 || helps) operands.receives = {{around(previous), around(previous)}};
        forward.operands = {operands};
        backward.operands = {operands};
        for (const Array array : {Array::outputs, Array::sums, Array::d_outputs}) {
          ContextExchange also{.array = array, .received = array};
          if (is_helped) also.sends = {{around(ahead), rank_}};
          if (helps) also.receives = {{around(previous), around(previous)}};
          if (2 * turn != ranks_) backward.operands.push_back(also);
          if (array == Array::d_outputs || 2 * turn == ranks_) continue;
          // Results return from the rank that received the queries.
          forward.results.push_back(
              {.array = array, .sends = also.receives, .receives = also.sends, .received = array});
        }
        ContextExchange back{.array = previous >= 0 ? Array::d_keys : Array::d_queries,
                             .received = ahead < ranks_ ? Array::d_keys : Array::d_queries};
        back.sends = operands.receives;
        back.receives = operands.sends;
        backward.results = {back};
      }
      add(std::move(forward), std::move(backward));
    }
  }

  // ---- colossal

  // Every score is computed, with or without a causal mask; the second half of the turns multiplies the values by them.
  void scores_in_memory() {
    for (std::int32_t turn = 0; turn < 2 * ranks_; ++turn) {
      const bool weighs = turn >= ranks_;
      const std::int32_t step = turn % ranks_;
      const std::int32_t owner = around(rank_ - step);
      ContextTurn forward{
          .blocks = {{rank_, owner, kFirst, kFirst, false, weighs ? ContextWork::values : ContextWork::scores}}};
      ContextTurn backward{.blocks = forward.blocks};
      if (step > 0) {
        const Array array = weighs ? Array::values_only : Array::keys_only;
        const Array gradient = weighs ? Array::d_values_only : Array::d_keys_only;
        forward.operands = {shift(array, 1, rank_ - step + 1, owner)};
        backward.operands = {shift(array, -1, rank_ - step - 1, owner)};
        backward.results = {shift(gradient, -1, owner, rank_ - step + 1)};
      }
      add(std::move(forward), std::move(backward));
    }
  }

  void add(ContextTurn forward, ContextTurn backward) {
    made_.forward.push_back(std::move(forward));
    made_.backward.push_back(std::move(backward));
  }

  const ContextShape& shape_;
  const std::int32_t ranks_;
  const std::int32_t rank_;
  ContextSides made_;
};

}  // namespace

std::string_view name_of(ContextWay way) {
  return kContextWays.at(static_cast<std::size_t>(way));
}

std::string_view name_of(ContextArray array) {
  constexpr std::array<std::string_view, kNumContextArrays> kNames{
      "queries",
      "keys and values",
      "outputs",
      "log-sum-exp",
      "gradients of outputs",
      "gradients of queries",
      "gradients of keys and values",
      "keys",
      "values",
      "gradients of keys",
      "gradients of values",
  };
  return kNames.at(static_cast<std::size_t>(array));
}

std::string why_invalid(const ContextShape& shape) {
  if (shape.ranks < 1) return "cp is " + std::to_string(shape.ranks) + "; allowed: at least 1";
  if (shape.way == ContextWay::lightseq && !shape.causal) {
    return "cp_way is lightseq, which balances a causal mask, and the mask is not causal; allowed: ring, ulysses";
  }
  return "";
}

namespace {

// Chunks of queries, and of keys, that have a result.
using Begun = std::set<std::pair<std::int32_t, std::int32_t>>;  // owner, chunk

// Returns whether any chunk of the range has a result, and marks all chunks.
bool begin(Begun& begun, std::int32_t owner, const ChunkRange& range) {
  bool had = false;
  for (std::int32_t i = range.first; i < range.first + range.count; ++i) had |= !begun.insert({owner, i}).second;
  return had;
}

void begin_arrived(const ContextTurn& turn, const ContextShape& shape, Begun& queries, Begun& keys) {
  for (const ContextExchange& exchange : turn.results) {
    if (exchange.comm != Comm::shift) continue;
    const bool of_queries = exchange.received == Array::outputs || exchange.received == Array::d_queries;
    if (!of_queries && !is_summed(exchange.received)) continue;
    Begun& begun = of_queries ? queries : keys;
    for (const ContextMessage& receive : exchange.receives) {
      begin(begun, receive.owner, {0, chunks_per_rank(shape.way)});
    }
  }
}

void mark_sums(std::vector<ContextTurn>& turns, const ContextShape& shape, bool backward) {
  Begun queries;
  Begun keys;
  for (std::size_t step = 0; step < turns.size(); ++step) {
    const auto index = [&](std::size_t at) { return backward ? turns.size() - 1 - at : at; };
    for (ContextBlock& block : turns[index(step)].blocks) {
      block.merges_queries = begin(queries, block.queries_of, block.queries);
      block.adds_keys = begin(keys, block.keys_of, block.keys);
    }
    if (step > 0) begin_arrived(turns[index(step - 1)], shape, queries, keys);
  }
}

}  // namespace

std::vector<std::int32_t> chunks_of(const ContextShape& shape, std::int32_t rank) {
  if (chunks_per_rank(shape.way) == 1) return {rank};
  return {rank, 2 * shape.ranks - 1 - rank};
}

ContextList context_list(const ContextShape& shape) {
  if (const std::string reason = why_invalid(shape); !reason.empty()) throw core::usage_error(reason);
  ContextList list{.shape = shape, .of_rank = {}};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) list.of_rank.push_back(context_sides(shape, rank));
  return list;
}

ContextSides context_sides(const ContextShape& shape, std::int32_t rank) {
  ContextSides sides = RankLists(shape, rank).sides();
  mark_sums(sides.forward, shape, false);
  mark_sums(sides.backward, shape, true);
  return sides;
}

std::vector<ExchangePosition> places_of(const ContextTurn& turn, std::int32_t index) {
  std::vector<ExchangePosition> places;
  for (const bool results : {false, true}) {
    const std::size_t count = (results ? turn.results : turn.operands).size();
    for (std::size_t e = 0; e < count; ++e) places.push_back({index, results, static_cast<std::int32_t>(e)});
  }
  return places;
}

std::int32_t turn_given_up(const std::vector<ContextTurn>& turns, bool backward, ContextMoment moment,
                           std::int32_t turn) {
  const auto count = static_cast<std::int32_t>(turns.size());
  const std::int32_t next = backward ? -1 : 1;
  const auto is_there = [&](std::int32_t t) { return t >= 0 && t < count; };
  const auto has_operands = [&](std::int32_t t) {
    return is_there(t) && !turns[static_cast<std::size_t>(t)].operands.empty();
  };
  switch (moment) {
    case ContextMoment::operands_begin:
      return is_there(turn - 2 * next) ? turn - 2 * next : -1;
    case ContextMoment::blocks_begin:
      return is_there(turn - next) && !has_operands(turn + next) ? turn - next : -1;
    case ContextMoment::blocks_end:
      return is_there(turn + next) ? -1 : turn;
  }
  return -1;
}

}  // namespace lockstep::workload
