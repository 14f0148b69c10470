// How context-parallel ranks share the attention of one sequence, as data: which queries each rank weighs against which
// keys, turn by turn, and what it sends to whom. A pure function of the way, the number of ranks and the mask; the
// step model, the trainer, the simulator and the tests' checker (testing/workload) read the same list.
//
// A sequence is cut into equal chunks, of which each rank has one or two. A turn begins with the exchange of operands,
// has the attention of blocks (a range of queries against a range of keys), and ends with the exchange of results. The
// backward has the turns in reverse, each with its own exchanges.
//
//   way        chunks of rank r     turns       source
//   ring       r                    P           keys and values go around: Liu, Zaharia, Abbeel 2023, arXiv:2310.01889
//   zigzag     r and 2P-1-r         P           the same, balanced under a causal mask: Megatron-LM's context
//                                               parallelism (Transformer Engine, AttnFuncWithCPAndKVP2P)
//   allgather  r and 2P-1-r         1           keys and values are gathered: Llama 3, arXiv:2407.21783, section 3.3.2
//   ulysses    r                    1           all-to-all from a part of the tokens to a part of the heads and back:
//                                               Jacobs et al. 2023, arXiv:2309.14509
//   lightseq   r                    P/2 + 1     ranks whose keys no later rank needs weigh queries of others: Li et al.
//                                               2023, arXiv:2310.03294 (DistFlashAttn), section 3.2
//   colossal   r                    2P          keys go around, scores stay in memory, values go around: Li et al.
//                                               2021, arXiv:2105.13120
//
// In a ring's backward keys and values go around the other way, so that turn t has in rank r those of rank r - t as the
// forward had: each rank begins with its neighbour's, and the gradients that follow them end at home. That is one
// exchange fewer than going around in the forward's direction takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::workload {

enum class ContextWay : std::uint8_t { ring, zigzag, allgather, ulysses, lightseq, colossal };
inline constexpr std::array<std::string_view, 6> kContextWays{"ring",    "zigzag",   "allgather",
                                                              "ulysses", "lightseq", "colossal"};
std::string_view name_of(ContextWay way);

struct ContextShape {
  ContextWay way = ContextWay::ring;
  std::int32_t ranks = 1;  // P
  bool causal = true;
};
std::string why_invalid(const ContextShape& shape);  // empty: there is a list

constexpr std::int32_t chunks_per_rank(ContextWay way) {
  return way == ContextWay::zigzag || way == ContextWay::allgather ? 2 : 1;
}
constexpr std::int32_t chunks_of(const ContextShape& shape) {
  return chunks_per_rank(shape.way) * shape.ranks;
}
// The rank's chunks of the sequence, in the order of its tokens.
std::vector<std::int32_t> chunks_of(const ContextShape& shape, std::int32_t rank);

inline constexpr std::int32_t kWholeSequence = -1;  // owner of arrays that have all tokens, in sequence order

// Arrays that ranks exchange, each with all tokens of a rank.
enum class ContextArray : std::uint8_t {
  queries,
  keys,     // keys and values
  outputs,  // with their sums: merged with the receiver's
  sums,     // the log-sum-exp of each query's scores
  d_outputs,
  d_queries,  // added to the receiver's
  d_keys,     // gradients of keys and values; likewise
  keys_only,
  values_only,
  d_keys_only,
  d_values_only,
};
inline constexpr std::size_t kNumContextArrays = 11;
std::string_view name_of(ContextArray array);
constexpr bool is_summed(ContextArray array) {
  return array == ContextArray::d_queries || array == ContextArray::d_keys || array == ContextArray::d_keys_only ||
         array == ContextArray::d_values_only;
}

struct ChunkRange {
  std::int32_t first = 0;  // among the owner's chunks
  std::int32_t count = 1;
};

// Attention is one kernel; with scores in memory it is two.
enum class ContextWork : std::uint8_t { attention, scores, values };

struct ContextBlock {
  std::int32_t queries_of = 0;  // a rank, or kWholeSequence
  std::int32_t keys_of = 0;
  ChunkRange queries;
  ChunkRange keys;
  bool causal = false;  // aligned at the end: the last query sees all keys of the block
  ContextWork work = ContextWork::attention;
  // True if the rank already has a result for some of these queries (an output; in the backward, a gradient), or a
  // gradient for some of these keys: the block's result is merged with it or added to it.
  bool merges_queries = false;
  bool adds_keys = false;
};

struct ContextMessage {
  std::int32_t peer = 0;
  std::int32_t owner = 0;  // owner of the array: a rank; kWholeSequence for a gather or a reduction
};

// One rank's part in the exchange of an array. shift: at most one message to a rank and one from a rank. all_gather,
// reduce_scatter, all_to_all: messages to and from every other rank.
struct ContextExchange {
  schedules::Comm comm = schedules::Comm::shift;
  ContextArray array = ContextArray::keys;  // array of the sent message, if the received one has another (below)
  std::vector<ContextMessage> sends = {};
  std::vector<ContextMessage> receives = {};
  ContextArray received = ContextArray::keys;
};

struct ContextTurn {
  std::vector<ContextExchange> operands = {};  // before the blocks
  std::vector<ContextBlock> blocks = {};
  std::vector<ContextExchange> results = {};  // after them
};

// Results received in a turn are merged after the blocks of the turn that runs next; results of the last turn
// immediately.
struct ContextSides {
  std::vector<ContextTurn> forward;   // in order
  std::vector<ContextTurn> backward;  // [turn], run from the last to the first
};

struct ContextList {
  ContextShape shape;
  std::vector<ContextSides> of_rank;

  std::int32_t turns() const { return static_cast<std::int32_t>(of_rank.front().forward.size()); }
  const ContextTurn& turn(std::int32_t rank, bool backward, std::int32_t index) const {
    const ContextSides& sides = of_rank[static_cast<std::size_t>(rank)];
    return (backward ? sides.backward : sides.forward)[static_cast<std::size_t>(index)];
  }
};
// All ranks have the same number of turns, and in each the same kinds of exchanges. Throws a usage Error with
// why_invalid().
ContextList context_list(const ContextShape& shape);
// One rank's list. In each turn no rank has more to compute than the last one.
ContextSides context_sides(const ContextShape& shape, std::int32_t rank);

// Position of an exchange in one direction of a list.
struct ExchangePosition {
  std::int32_t turn = 0;
  bool results = false;
  std::int32_t index = 0;  // among the turn's

  std::uint16_t number() const { return static_cast<std::uint16_t>(turn * 16 + (results ? 8 : 0) + index); }
  static ExchangePosition of_number(std::uint16_t number) {
    return {.turn = number / 16, .results = (number & 8) != 0, .index = number & 7};
  }
};
std::vector<ExchangePosition> places_of(const ContextTurn& turn, std::int32_t index);  // operands first

// Operands received in a turn are sent on in the next and needed by their own turn's blocks: they are freed once the
// work after both begins. A rank therefore holds the operands of two turns at a time.
enum class ContextMoment : std::uint8_t { operands_begin, blocks_begin, blocks_end };
// The turn whose operands a rank frees at this moment of a turn; -1: none.
std::int32_t turn_given_up(const std::vector<ContextTurn>& turns, bool backward, ContextMoment moment,
                           std::int32_t turn);

}  // namespace lockstep::workload
