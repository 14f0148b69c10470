// Counts of the plans equal the closed forms of docs/metrics.md, for every algorithm of the catalogue.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "collectives/algorithms/building_blocks.h"
#include "collectives/plan/cost.h"
#include "testing/collectives/every_choice.h"

namespace lockstep::algorithms {
namespace {

using collectives::Kind;

// A function of p ranks and the S bytes of the whole vector.
using Form = std::function<std::int64_t(std::int64_t p, std::int64_t S)>;

struct Row {
  Kind kind;
  const char* choice;
  Form steps;
  Form rounds;  // none: no closed form
  Form sent;    // bytes sent by the busiest rank
  const char* source;
  bool folds = false;  // if p is not a power of two, `steps` is an upper bound
};

int floor_lg(std::int64_t p) {
  return log2_of_power(floor_power_of_two(static_cast<int>(p)));
}
int ceil_lg(std::int64_t p) {
  return log2_of_power(ceil_power_of_two(static_cast<int>(p)));
}
std::int64_t core(std::int64_t p) {
  return std::max(1, floor_power_of_two(static_cast<int>(p)));
}
bool folded(std::int64_t p) {
  return core(p) != p;
}
std::int64_t near_square_root(std::int64_t p) {
  std::int64_t d = 1;
  for (std::int64_t k = 1; k * k <= p; ++k) d = p % k == 0 ? k : d;
  return p / d;
}

// The most non-zero digits in base `radix` of a number below p; the number of numbers below p with only one.
int most_digits(std::int64_t p, int radix) {
  int most = 0;
  for (int v = 1; v < p; ++v) {
    int digits = 0;
    for (int rest = v; rest > 0; rest /= radix) digits += rest % radix != 0 ? 1 : 0;
    most = std::max(most, digits);
  }
  return most;
}
std::int64_t one_digit_numbers(std::int64_t p, int radix) {
  std::int64_t count = 0;
  for (std::int64_t place = 1; place < p; place *= radix) {
    for (int digit = 1; digit < radix && digit * place < p; ++digit) ++count;
  }
  return count;
}
std::int64_t bits_below(std::int64_t p) {
  std::int64_t bits = 0;
  for (unsigned v = 1; v < static_cast<unsigned>(p); ++v) bits += std::popcount(v);
  return bits;
}
// Blocks that the host of a guest sends in an all-gather by recursive doubling.
std::int64_t folded_gather_blocks(std::int64_t p) {
  std::int64_t blocks = core(p) - 1 + p;
  for (std::int64_t bit = 1; bit < core(p); bit *= 2) blocks += std::min(bit, p - core(p));
  return blocks;
}
std::int64_t pat_steps(std::int64_t p, std::int64_t aggregation) {
  const std::int64_t power = ceil_power_of_two(static_cast<int>(p));
  const std::int64_t trees = std::max<std::int64_t>(1, std::min(aggregation, power / 2));
  return floor_lg(trees) + std::min(power / trees, p) - 1;
}

const Form one = [](auto, auto) { return 1; };
const Form peers = [](auto p, auto) { return p - 1; };
const Form twice_peers = [](auto p, auto) { return 2 * (p - 1); };
const Form floor_log = [](auto p, auto) { return floor_lg(p); };
const Form ceil_log = [](auto p, auto) { return ceil_lg(p); };
const Form whole = [](auto, auto S) { return S; };
const Form part = [](auto p, auto S) { return S / p * (p - 1); };
const Form twice_part = [](auto p, auto S) { return 2 * (S / p) * (p - 1); };
const Form to_all = [](auto p, auto S) { return S * (p - 1); };
const Form folding_steps = [](auto p, auto) { return floor_lg(p) + (folded(p) ? 2 : 0); };
const Form none;

constexpr const char* kPatarasuk = "Patarasuk, Yuan 2009";
constexpr const char* kMpich = "Thakur, Rabenseifner, Gropp 2005; MPICH";
constexpr const char* kBruck = "Bruck et al. 1997";
constexpr const char* kSanders = "Sanders, Speck, Traff 2009; NCCL issue 457: 2 S, except for the root which is just S";
constexpr const char* kCounting = "counting";

std::vector<Row> all_reduce_rows() {
  const Kind kind = Kind::all_reduce;
  const Form tree_rounds = [](auto p, auto) { return 2 * ceil_lg(p); };
  const Form binary_sent = [](auto p, auto S) { return p == 2 ? S : p <= 4 ? 2 * S : 3 * S; };
  const Form double_sent = [](auto p, auto S) { return p == 2 ? S : p == 3 ? 3 * S / 2 : 2 * S; };
  const Form two_levels = [](auto p, auto) { return 2 * (near_square_root(p) - 1 + p / near_square_root(p) - 1); };
  const Form two = [](auto, auto) { return 2; };
  const auto server_sent = [](std::int64_t s) { return [s](auto p, auto S) { return S / s * (p + s - 2); }; };
  const Form twice_floor_log = [](auto p, auto) { return 2 * floor_lg(p); };
  return {
      {kind, "ring", twice_peers, twice_peers, twice_part, kPatarasuk},
      {kind, "ring:directions=2", twice_peers, none, twice_part, kPatarasuk},
      {kind, "ring:directions=2:lanes=3", twice_peers, none, twice_part, kPatarasuk},
      {kind, "double_tree", twice_floor_log, none, double_sent, kSanders},
      {kind, "double_tree:chunks=2", twice_floor_log, none, double_sent, kSanders},
      {kind, "binary_tree", twice_floor_log, none, binary_sent, kSanders},
      {kind, "tree", twice_floor_log, tree_rounds, [](auto p, auto S) { return S * ceil_lg(p); }, kMpich},
      {kind, "tree:radix=3:chunks=5", [](auto p, auto) { return 2 * most_digits(p, 3); }, none,
       [](auto p, auto S) { return S * one_digit_numbers(p, 3); }, kCounting},
      {kind, "recursive_doubling", folding_steps, folding_steps,
       [](auto p, auto S) { return S * (floor_lg(p) + (folded(p) ? 1 : 0)); }, kMpich, true},
      {kind, "halving_doubling", [](auto p, auto) { return 2 * floor_lg(p) + (folded(p) ? 2 : 0); },
       [](auto p, auto) { return 2 * floor_lg(p) + (folded(p) ? 2 : 0); },
       [](auto p, auto S) { return 2 * (S - S / core(p)) + (folded(p) ? S : 0); }, kMpich, true},
      {kind, "bruck", ceil_log, ceil_log, to_all, kBruck},
      {kind, "one_shot", one, peers, to_all, kCounting},
      {kind, "two_shot", two, twice_peers, twice_part, kCounting},
      {kind, "server", two, twice_peers, to_all, "Jiang et al. 2020, section 3"},
      {kind, "server:servers=2", two, none, server_sent(2), "Jiang et al. 2020, section 3"},
      {kind, "server:servers=3:last=1", two, none, server_sent(3), "Jiang et al. 2020, section 3"},
      {kind, "server:servers=8", two, none, server_sent(8), "Jiang et al. 2020, section 3"},
      {kind, "root", two, twice_peers, to_all, kCounting},
      {kind, "hierarchical", two_levels, two_levels, twice_part, kCounting},
      {kind, "hierarchical:group=2", [](auto p, auto) { return 2 * (1 + p / 2 - 1); }, none, twice_part, kCounting},
      {kind, "ring_2d", two_levels, none, twice_part, kCounting},
  };
}

std::vector<Row> scatter_and_gather_rows() {
  const auto pat = [](std::int64_t blocks) { return [blocks](auto p, auto) { return pat_steps(p, blocks); }; };
  std::vector<Row> rows;
  for (const Kind kind : {Kind::reduce_scatter, Kind::all_gather}) {
    rows.insert(rows.end(), {
                                {kind, "ring", peers, peers, part, kPatarasuk},
                                {kind, "ring:lanes=2", peers, none, part, kPatarasuk},
                                {kind, "bruck", ceil_log, ceil_log, part, kBruck},
                                {kind, "pat", ceil_log, ceil_log, part, "arXiv:2506.20252"},
                                {kind, "pat:aggregation=1", peers, peers, part, "arXiv:2506.20252"},
                                {kind, "pat:aggregation=4", pat(4), pat(4), part, "arXiv:2506.20252"},
                                {kind, "direct", one, peers, part, kCounting},
                            });
  }
  rows.push_back({Kind::reduce_scatter, "recursive_halving", folding_steps, folding_steps,
                  [](auto p, auto S) { return folded(p) ? S : S / p * (p - 1); }, kMpich, true});
  rows.push_back({Kind::all_gather, "recursive_doubling", folding_steps, folding_steps,
                  [](auto p, auto S) { return S / p * (folded(p) ? folded_gather_blocks(p) : p - 1); }, kMpich, true});
  return rows;
}

std::vector<Row> broadcast_and_reduce_rows() {
  const auto pipelined = [](std::int64_t chunks) { return [chunks](auto p, auto) { return p - 2 + chunks; }; };
  const Form below_root = [](auto p, auto) { return 1 + floor_lg(p - 1); };
  const Form scatter_rounds = [](auto p, auto) { return ceil_lg(p) + p - 1; };
  const Form largest_subtree = [](auto p, auto S) {
    return S / p * (p - 1) + S / p * largest_inner_size(static_cast<int>(p));
  };
  std::vector<Row> rows;
  for (const Kind kind : {Kind::broadcast, Kind::reduce}) {
    rows.insert(rows.end(), {
                                {kind, "chain", peers, pipelined(8), whole, "Traff, Ripke 2005"},
                                {kind, "chain:chunks=3", peers, pipelined(3), whole, "Traff, Ripke 2005"},
                                {kind, "double_tree", below_root, none, whole, kSanders},
                            });
  }
  rows.insert(
      rows.end(),
      {
          {Kind::broadcast, "binary_tree", floor_log, none, [](auto p, auto S) { return p == 2 ? S : 2 * S; }, kMpich},
          {Kind::broadcast, "binomial", floor_log, ceil_log, [](auto p, auto S) { return S * ceil_lg(p); }, kMpich},
          {Kind::broadcast, "scatter_allgather", peers, scatter_rounds, twice_part, kMpich},
          {Kind::broadcast, "direct", one, peers, to_all, kCounting},
          {Kind::reduce, "binary_tree", floor_log, none, whole, kMpich},
          {Kind::reduce, "binomial", floor_log, ceil_log, whole, kMpich},
          {Kind::reduce, "reduce_scatter_gather", [](auto p, auto) { return p - 1 + floor_lg(p); }, scatter_rounds,
           largest_subtree, kMpich},
          {Kind::reduce, "direct", one, peers, whole, kCounting},
      });
  return rows;
}

std::vector<Row> other_rows() {
  const Form block = [](auto p, auto S) { return S / p; };
  const Form largest_subtree = [](auto p, auto S) { return S / p * largest_inner_size(static_cast<int>(p)); };
  const Form levels = [](auto p, auto) {
    return (near_square_root(p) > 1 ? 1 : 0) + (p / near_square_root(p) > 1 ? 1 : 0);
  };
  const Form level_peers = [](auto p, auto) { return near_square_root(p) - 1 + p / near_square_root(p) - 1; };
  const Form level_bytes = [](auto p, auto S) {
    const std::int64_t g = near_square_root(p);
    return S / p * (p - g) + S / p * (p - p / g);  // S (m-1)/m + S (g-1)/g
  };
  return {
      {Kind::all_to_all, "pairwise", peers, peers, part, kMpich},
      {Kind::all_to_all, "bruck", ceil_log, ceil_log, [](auto p, auto S) { return S / p * bits_below(p); }, kBruck},
      {Kind::all_to_all, "hierarchical", levels, level_peers, level_bytes, "Traff, Rougier 2014"},
      {Kind::all_to_all, "direct", one, peers, part, kCounting},
      {Kind::all_to_all_v, "pairwise", peers, peers, part, kMpich},
      {Kind::all_to_all_v, "direct", one, peers, part, kCounting},
      {Kind::gather, "binomial", floor_log, ceil_log, largest_subtree, kMpich},
      {Kind::gather, "direct", one, peers, block, kCounting},
      {Kind::scatter, "binomial", floor_log, ceil_log, part, kMpich},
      {Kind::scatter, "direct", one, peers, part, kCounting},
      {Kind::send_recv, "direct", one, one, whole, kCounting},
      {Kind::hypercube, "exchange", ceil_log, ceil_log, part, kMpich},
  };
}

std::vector<Row> all_rows() {
  std::vector<Row> all;
  for (const auto& rows : {all_reduce_rows(), scatter_and_gather_rows(), broadcast_and_reduce_rows(), other_rows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

// Blocks of three elements per chunk: every chunk has the same size, so that the forms are exact.
collectives::Operation operation_for(const plan::Plan& plan) {
  collectives::Operation operation;
  operation.kind = plan.kind;
  operation.count = std::int64_t{3} * plan.chunks_per_block;
  if (plan.kind == Kind::all_to_all_v) {
    const auto pairs = static_cast<std::size_t>(plan.num_ranks) * static_cast<std::size_t>(plan.num_ranks);
    operation.matrix = std::make_shared<collectives::CountMatrix>(
        collectives::CountMatrix{plan.num_ranks, std::vector<std::int64_t>(pairs, operation.count)});
  }
  return operation;
}

plan::Counts counts_of(const plan::Plan& plan) {
  return plan::count(plan, plan::contents_of(plan), operation_for(plan));
}

void expect_forms(const Row& row, int p) {
  const plan::Plan plan = make_plan(parse_choice(row.kind, row.choice), p, 0);
  const std::int64_t S = collectives::message_bytes(row.kind, p, operation_for(plan).count, core::DType::f32);
  const plan::Counts counts = counts_of(plan);
  if (row.folds && folded(p)) {
    EXPECT_LE(counts.steps, row.steps(p, S)) << "steps";
  } else {
    EXPECT_EQ(counts.steps, row.steps(p, S)) << "steps";
  }
  if (row.rounds) {
    EXPECT_EQ(counts.rounds, row.rounds(p, S)) << "rounds";
  }
  EXPECT_EQ(counts.busiest().bytes_sent, row.sent(p, S)) << "bytes sent";
}

TEST(Counts, EqualTheClosedForms) {
  for (const Row& row : all_rows()) {
    const Choice choice = parse_choice(row.kind, row.choice);
    for (int p = 2; p <= 33; ++p) {
      if (refusal(choice, p, 0)) continue;
      SCOPED_TRACE(title(choice) + ", " + std::to_string(p) + " ranks; source: " + row.source);
      expect_forms(row, p);
    }
  }
}

TEST(Counts, EveryAlgorithmHasAClosedForm) {
  const std::vector<Row> rows = all_rows();
  for (const Algorithm& algorithm : catalogue()) {
    const bool has_row = std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.kind == algorithm.kind && parse_choice(row.kind, row.choice).algorithm == &algorithm;
    });
    EXPECT_TRUE(has_row) << "all_rows() has no row for " << collectives::name_of(algorithm.kind) << " "
                         << algorithm.name;
  }
}

// Each rank sends 2 (S/g) (m-1)/m = 2 S (m-1)/p to other groups: the ranks of a group share the vector.
TEST(Counts, HierarchicalSendsLittleBetweenGroups) {
  const int p = 24;
  for (const int g : {2, 3, 4, 6, 8, 12}) {
    const int m = p / g;
    const plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, "hierarchical:group=" + std::to_string(g)), p, 0);
    const std::int64_t S = operation_for(plan).count * 4;
    std::vector<std::int64_t> between(static_cast<std::size_t>(p), 0);
    for (const plan::LinkCounts& link : counts_of(plan).links) {
      if (link.from / g != link.to / g) between[static_cast<std::size_t>(link.from)] += link.bytes;
    }
    for (const std::int64_t bytes : between) EXPECT_EQ(bytes, 2 * S * (m - 1) / p) << "group " << g;
  }
}

// One message each way: two directions load both halves of a link alike.
TEST(Counts, TwoDirectionsUseBothHalvesOfALink) {
  const plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, "ring:directions=2"), 6, 0);
  const std::int64_t S = operation_for(plan).count * 4;
  const plan::Counts counts = counts_of(plan);
  EXPECT_EQ(counts.links.size(), 12U);
  for (const plan::LinkCounts& link : counts.links) EXPECT_EQ(link.bytes, S * 5 / 6);
}

// Both tree roots of a double tree send less than the others: S where the root has one child in its tree.
TEST(Counts, DoubleTreeRootSendsHalf) {
  for (const int p : {2, 4, 8, 16, 32}) {
    const plan::Plan plan = make_plan(parse_choice(Kind::all_reduce, "double_tree"), p, 0);
    const std::int64_t S = operation_for(plan).count * 4;
    EXPECT_EQ(counts_of(plan).ranks.back().bytes_sent, S) << p;  // the first tree's root is the last rank
  }
}

// Four lanes share a rank's port, so that a pipelined double tree needs few more rounds than the busiest rank has
// messages to send: a fifth more, plus filling the pipeline, which takes twice a message's path.
TEST(Counts, DoubleTreeKeepsPortsBusy) {
  for (const int chunks : {8, 32}) {
    const Choice choice = parse_choice(Kind::all_reduce, "double_tree:chunks=" + std::to_string(chunks));
    for (int p = 2; p <= 33; ++p) {
      const plan::Counts counts = counts_of(make_plan(choice, p, 0));
      const auto messages = static_cast<int>(counts.busiest().messages_sent);
      EXPECT_GE(counts.rounds, messages) << p << " ranks, " << chunks << " chunks";
      EXPECT_LE(counts.rounds, messages + messages / 5 + 2 * counts.steps) << p << " ranks, " << chunks << " chunks";
    }
  }
}

}  // namespace
}  // namespace lockstep::algorithms
