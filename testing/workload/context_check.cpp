#include "testing/workload/context_check.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "workload/context_layer.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using Array = ContextArray;

// A chunk of queries and a chunk of keys, and the part of the heads (0: all).
struct Pair {
  std::int32_t query = 0;
  std::int32_t key = 0;
  std::int32_t heads = 0;
  friend auto operator<=>(const Pair&, const Pair&) = default;  // NOLINT(modernize-use-nullptr)
};
using Pairs = std::set<Pair>;

// The arrays that one rank has at a time, by owner, and for results the pairs that are in them.
struct Holding {
  std::set<std::pair<Array, std::int32_t>> operands;
  std::map<std::pair<Array, std::int32_t>, Pairs> results;
};

bool is_result(Array array) {
  return is_summed(array) || array == Array::outputs || array == Array::sums;
}

// Executes one direction of a list symbolically.
class Play {
 public:
  Play(const ContextList& list, bool backward, std::size_t limit, std::vector<std::string>& problems)
      : list_(list),
        backward_(backward),
        limit_(limit),
        problems_(problems),
        ranks_(list.shape.ranks),
        holding_(static_cast<std::size_t>(ranks_)) {
    for (std::int32_t r = 0; r < ranks_; ++r) {
      for (const Array array : {Array::queries, Array::keys, Array::keys_only, Array::values_only}) {
        at(r).operands.insert({array, r});
      }
      if (!backward_) continue;
      for (const Array array : {Array::outputs, Array::sums, Array::d_outputs}) at(r).operands.insert({array, r});
      if (list_.shape.way != ContextWay::ulysses) continue;
      for (const Array array : {Array::queries, Array::keys}) at(r).operands.insert({array, kWholeSequence});  // kept
    }
  }

  void run() {
    const std::int32_t turns = list_.turns();
    for (std::int32_t i = 0; i < turns; ++i) {
      turn_ = backward_ ? turns - 1 - i : i;
      exchange([](const ContextTurn& turn) -> const auto& { return turn.operands; });
      for (std::int32_t r = 0; r < ranks_; ++r) {
        for (const ContextBlock& block : turn_of(r).blocks) compute(r, block);
      }
      exchange([](const ContextTurn& turn) -> const auto& { return turn.results; });
    }
    check_ends();
  }

 private:
  Holding& at(std::int32_t rank) { return holding_[static_cast<std::size_t>(rank)]; }
  const ContextTurn& turn_of(std::int32_t rank) const { return list_.turn(rank, backward_, turn_); }

  void problem(std::int32_t rank, const std::string& what) {
    if (problems_.size() >= limit_) return;
    problems_.push_back(std::string(backward_ ? "backward" : "forward") + ", turn " + std::to_string(turn_) +
                        ", rank " + std::to_string(rank) + ": " + what);
  }

  // ---- exchanges

  template <class Part>
  void exchange(const Part& part) {
    const std::size_t count = part(turn_of(0)).size();
    for (std::int32_t r = 0; r < ranks_; ++r) {
      if (part(turn_of(r)).size() != count) return problem(r, "has another number of exchanges than rank 0");
    }
    for (std::size_t e = 0; e < count; ++e) {
      for (std::int32_t r = 0; r < ranks_; ++r) match(r, part(turn_of(r))[e], e, part);
      // All messages are sent before any is received.
      std::vector<Holding> before = holding_;
      for (std::int32_t r = 0; r < ranks_; ++r) leave(r, part(turn_of(r))[e]);
      for (std::int32_t r = 0; r < ranks_; ++r) arrive(r, part(turn_of(r))[e], before);
    }
  }

  template <class Part>
  void match(std::int32_t rank, const ContextExchange& exchange, std::size_t e, const Part& part) {
    if (exchange.comm != part(turn_of(0))[e].comm) problem(rank, "has another collective than rank 0");
    if (exchange.comm == Comm::shift && (exchange.sends.size() > 1 || exchange.receives.size() > 1)) {
      problem(rank, "has several messages in a shift");
    }
    for (const ContextMessage& send : exchange.sends) {
      const ContextExchange& other = part(turn_of(send.peer))[e];
      const bool meets = other.received == exchange.array &&
                         std::any_of(other.receives.begin(), other.receives.end(), [&](const ContextMessage& receive) {
                           return receive.peer == rank && receive.owner == send.owner;
                         });
      if (!meets) problem(rank, "sends what rank " + std::to_string(send.peer) + " does not receive");
    }
    for (const ContextMessage& receive : exchange.receives) {
      const ContextExchange& other = part(turn_of(receive.peer))[e];
      const bool meets = other.array == exchange.received &&
                         std::any_of(other.sends.begin(), other.sends.end(), [&](const ContextMessage& send) {
                           return send.peer == rank && send.owner == receive.owner;
                         });
      if (!meets) problem(rank, "waits for what rank " + std::to_string(receive.peer) + " does not send");
    }
  }

  bool moves_results(const ContextExchange& exchange, Array array) const {
    return is_result(array) && !(backward_ && (array == Array::outputs || array == Array::sums)) &&
           exchange.comm == Comm::shift;
  }

  void leave(std::int32_t rank, const ContextExchange& exchange) {
    if (exchange.comm != Comm::shift) return among_all(rank, exchange);
    for (const ContextMessage& send : exchange.sends) {
      const std::pair key{exchange.array, send.owner};
      if (moves_results(exchange, exchange.array)) {
        at(rank).results.erase(key);  // an empty sum may be sent, too
      } else if (at(rank).operands.count(key) == 0) {
        problem(rank, "sends " + std::string(name_of(exchange.array)) + " of rank " + std::to_string(send.owner) +
                          ", which it has not");
      }
    }
  }

  void arrive(std::int32_t rank, const ContextExchange& exchange, std::vector<Holding>& before) {
    if (exchange.comm != Comm::shift) return;
    for (const ContextMessage& receive : exchange.receives) {
      const std::pair key{exchange.received, receive.owner};
      if (!moves_results(exchange, exchange.received)) {
        at(rank).operands.insert(key);
        continue;
      }
      Pairs& mine = at(rank).results[key];
      for (const Pair& pair : before[static_cast<std::size_t>(receive.peer)].results[key]) {
        if (!mine.insert(pair).second) problem(rank, "receives a result that it has");
      }
    }
  }

  // Gathers make a whole sequence's operands; reductions and all-to-alls return all results to their owners.
  void among_all(std::int32_t rank, const ContextExchange& exchange) {
    if (exchange.sends.size() + 1 != static_cast<std::size_t>(ranks_) ||
        exchange.receives.size() + 1 != static_cast<std::size_t>(ranks_)) {
      return problem(rank, "does not exchange with every other rank");
    }
    const std::pair whole{exchange.array, kWholeSequence};
    const bool brings_home = is_summed(exchange.array) || (!backward_ && exchange.array == Array::outputs);
    if (!brings_home) {
      at(rank).operands.insert(whole);
      return;
    }
    for (const auto& pair : std::exchange(at(rank).results[whole], {})) home(exchange.array, pair, rank);
  }
  void home(Array array, const Pair& pair, std::int32_t from) {
    const bool of_key = array == Array::d_keys;
    const std::int32_t owner = owner_of(of_key ? pair.key : pair.query);
    if (!at(owner).results[{array, owner}].insert(pair).second) problem(from, "brings a result home twice");
    if (array == Array::outputs) at(owner).results[{Array::sums, owner}].insert(pair);
  }
  std::int32_t owner_of(std::int32_t chunk) const { return chunk < ranks_ ? chunk : 2 * ranks_ - 1 - chunk; }

  // ---- blocks

  std::vector<std::int32_t> chunks(std::int32_t owner, const ChunkRange& range) const {
    std::vector<std::int32_t> found;
    std::vector<std::int32_t> all;
    if (owner == kWholeSequence) {
      for (std::int32_t c = 0; c < chunks_of(list_.shape); ++c) all.push_back(c);
    } else {
      all = chunks_of(list_.shape, owner);
    }
    for (std::int32_t i = range.first; i < range.first + range.count; ++i) {
      if (i >= 0 && static_cast<std::size_t>(i) < all.size()) found.push_back(all[static_cast<std::size_t>(i)]);
    }
    return found;
  }

  void needs(std::int32_t rank, Array array, std::int32_t owner) {
    if (at(rank).operands.count({array, owner}) == 0) {
      problem(rank, "a block needs " + std::string(name_of(array)) + " of " +
                        (owner == kWholeSequence ? "all ranks" : "rank " + std::to_string(owner)));
    }
  }

  void compute(std::int32_t rank, const ContextBlock& block) {
    const bool in_memory = block.work != ContextWork::attention;
    const bool weighs = block.work == ContextWork::values;
    if (in_memory && block.causal) problem(rank, "masks scores that are made of all pairs");
    needs(rank, Array::queries, block.queries_of);
    needs(rank, in_memory ? (weighs ? Array::values_only : Array::keys_only) : Array::keys, block.keys_of);
    if (backward_ && block.queries_of != rank && block.queries_of != kWholeSequence) {
      for (const Array array : {Array::outputs, Array::sums, Array::d_outputs}) needs(rank, array, block.queries_of);
    }
    if (backward_ && block.queries_of == kWholeSequence) needs(rank, Array::d_outputs, kWholeSequence);
    const auto queries = chunks(block.queries_of, block.queries);
    const auto keys = chunks(block.keys_of, block.keys);
    if (static_cast<std::int32_t>(queries.size()) != block.queries.count ||
        static_cast<std::int32_t>(keys.size()) != block.keys.count) {
      problem(rank, "a block has chunks that there are not");
    }
    const auto offset = static_cast<std::ptrdiff_t>(keys.size()) - static_cast<std::ptrdiff_t>(queries.size());
    for (std::size_t i = 0; i < queries.size(); ++i) {
      for (std::size_t j = 0; j < keys.size(); ++j) {
        const auto distance = static_cast<std::ptrdiff_t>(i) + offset - static_cast<std::ptrdiff_t>(j);
        if (block.causal && distance < 0) continue;
        const bool diagonal = block.causal && distance == 0;
        if (!in_memory && list_.shape.causal && (keys[j] > queries[i] || (keys[j] == queries[i]) != diagonal)) {
          problem(rank, "weighs pairs that the mask hides, or hides some that it shows");
        }
        add(rank, block, {queries[i], keys[j], block.queries_of == kWholeSequence ? rank : 0});
      }
    }
  }

  void add(std::int32_t rank, const ContextBlock& block, const Pair& pair) {
    const auto insert = [&](Array array, std::int32_t owner) {
      if (!at(rank).results[{array, owner}].insert(pair).second) problem(rank, "weighs a pair twice");
    };
    const bool weighs = block.work == ContextWork::values;
    if (block.work == ContextWork::attention) {
      insert(backward_ ? Array::d_queries : Array::outputs, block.queries_of);
      insert(backward_ ? Array::d_keys : Array::sums, backward_ ? block.keys_of : block.queries_of);
    } else if (backward_) {
      insert(weighs ? Array::d_values_only : Array::d_keys_only, block.keys_of);
      if (!weighs) insert(Array::d_queries, block.queries_of);
    } else {
      insert(weighs ? Array::outputs : Array::sums, block.queries_of);
    }
  }

  // ---- the end

  // Pairs with a chunk's queries or keys that the mask shows.
  Pairs visible(std::int32_t rank, bool of_keys) const {
    Pairs pairs;
    const bool all = !list_.shape.causal || list_.shape.way == ContextWay::colossal;
    for (const std::int32_t mine : chunks_of(list_.shape, rank)) {
      for (std::int32_t other = 0; other < chunks_of(list_.shape); ++other) {
        if (!all && (of_keys ? other < mine : other > mine)) continue;
        for (std::int32_t heads = 0; heads < (list_.shape.way == ContextWay::ulysses ? ranks_ : 1); ++heads) {
          pairs.insert(of_keys ? Pair{other, mine, heads} : Pair{mine, other, heads});
        }
      }
    }
    return pairs;
  }

  void check_ends() {
    const bool in_memory = list_.shape.way == ContextWay::colossal;
    std::vector<std::pair<Array, bool>> wanted{{Array::outputs, false}, {Array::sums, false}};
    if (backward_ && in_memory) {
      wanted = {{Array::d_queries, false}, {Array::d_keys_only, true}, {Array::d_values_only, true}};
    } else if (backward_) {
      wanted = {{Array::d_queries, false}, {Array::d_keys, true}};
    }
    for (std::int32_t r = 0; r < ranks_; ++r) {
      for (const auto& [array, of_keys] : wanted) {
        if (at(r).results[{array, r}] != visible(r, of_keys)) {
          problem(r, "ends with other " + std::string(name_of(array)) + " than of the pairs that the mask shows");
        }
      }
    }
  }

  const ContextList& list_;
  const bool backward_;
  const std::size_t limit_;
  std::vector<std::string>& problems_;
  const std::int32_t ranks_;
  std::int32_t turn_ = 0;
  std::vector<Holding> holding_;
};

}  // namespace

std::vector<std::string> check(const ContextList& list, std::size_t limit) {
  std::vector<std::string> problems;
  for (const bool backward : {false, true}) Play(list, backward, limit, problems).run();
  return problems;
}

double chunk_pairs_in_step(const ContextList& list) {
  double pairs = 0;
  for (std::int32_t t = 0; t < list.turns(); ++t) {
    double most = 0;
    for (std::int32_t r = 0; r < list.shape.ranks; ++r) most = std::max(most, chunk_pairs(list.turn(r, false, t)));
    pairs += most;
  }
  return pairs;
}

}  // namespace lockstep::workload
