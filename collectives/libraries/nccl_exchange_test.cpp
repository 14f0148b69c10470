// Runs exchanges on arrays: all ranks' rounds in lockstep, with every send matched to the receive that NCCL would
// match.
#include "collectives/libraries/nccl_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::CountMatrix;
using collectives::Kind;
using collectives::Operation;
using Elements = std::vector<std::int64_t>;

constexpr std::int64_t kUntouched = -1;

// Value that identifies an element of the world's inputs.
std::int64_t element(int rank, std::int64_t index) {
  return 100'000 * static_cast<std::int64_t>(rank) + index;
}

struct Buffers {
  Elements input;
  Elements output;
};

Buffers make_buffers(const Operation& operation, int num_ranks, int rank) {
  Buffers buffers;
  const std::int64_t size = input_offsets(operation, num_ranks, rank).back();
  for (std::int64_t i = 0; i < size; ++i) buffers.input.push_back(element(rank, i));
  buffers.output.assign(static_cast<std::size_t>(output_offsets(operation, num_ranks, rank).back()), kUntouched);
  return buffers;
}

// Sends read the state before the round; messages between a pair are first in, first out.
void run_round(std::vector<Buffers>& ranks, const std::vector<Exchange>& exchanges, std::size_t round) {
  std::map<std::pair<int, int>, std::deque<Elements>> wires;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Elements& from = exchanges[r].own_block_at ? ranks[r].output : ranks[r].input;
    for (const Message& m : exchanges[r].rounds.at(round).sends) {
      ASSERT_LE(m.first + m.count, static_cast<std::int64_t>(from.size()));
      wires[{static_cast<int>(r), m.peer}].emplace_back(from.begin() + m.first, from.begin() + m.first + m.count);
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const Message& m : exchanges[r].rounds.at(round).receives) {
      auto& wire = wires[{m.peer, static_cast<int>(r)}];
      ASSERT_FALSE(wire.empty()) << "rank " << r << " receives from " << m.peer << " what was not sent";
      ASSERT_EQ(static_cast<std::int64_t>(wire.front().size()), m.count);
      std::copy(wire.front().begin(), wire.front().end(), ranks[r].output.begin() + m.first);
      wire.pop_front();
    }
  }
  for (const auto& [ends, wire] : wires) EXPECT_TRUE(wire.empty()) << "from " << ends.first << " to " << ends.second;
}

void expect_meaning(const Operation& operation, int num_ranks, const std::vector<Buffers>& ranks) {
  for (int r = 0; r < num_ranks; ++r) {
    const auto at = output_offsets(operation, num_ranks, r);
    for (std::size_t b = 0; b + 1 < at.size(); ++b) {
      const auto origin = origin_of(operation.kind, num_ranks, operation.root, r, static_cast<int>(b));
      const auto source = input_offsets(operation, num_ranks, origin.rank).at(static_cast<std::size_t>(origin.block));
      for (std::int64_t i = 0; i < at[b + 1] - at[b]; ++i) {
        ASSERT_EQ(ranks[static_cast<std::size_t>(r)].output.at(static_cast<std::size_t>(at[b] + i)),
                  element(origin.rank, source + i))
            << collectives::name_of(operation.kind) << " n=" << num_ranks << " rank " << r << " block " << b;
      }
    }
  }
}

void expect_right(const Operation& operation, int num_ranks) {
  std::vector<Buffers> ranks;
  std::vector<Exchange> exchanges;
  for (int r = 0; r < num_ranks; ++r) {
    ranks.push_back(make_buffers(operation, num_ranks, r));
    exchanges.push_back(exchange_of(operation, num_ranks, r));
    ASSERT_EQ(exchanges.back().rounds.size(), exchanges.front().rounds.size());
    if (const auto at = exchanges.back().own_block_at) {
      std::copy_n(ranks.back().input.begin(), operation.count, ranks.back().output.begin() + *at);
    }
  }
  for (std::size_t round = 0; round < exchanges.front().rounds.size(); ++round) run_round(ranks, exchanges, round);
  expect_meaning(operation, num_ranks, ranks);
}

TEST(NcclExchange, GivesWhatTheCollectiveMeansForAnyNumberOfRanks) {
  for (const Kind kind : {Kind::send_recv, Kind::hypercube}) {
    for (int n = 1; n <= 17; ++n) {
      for (const std::int64_t count : {0, 1, 5}) {
        const Operation operation{.kind = kind, .count = count};
        if (!nccl_refusal(operation, n, 90)) expect_right(operation, n);
      }
    }
  }
}

TEST(NcclExchange, AllToAllVTakesItsCountsFromTheMatrix) {
  for (int n = 1; n <= 9; ++n) {
    CountMatrix matrix{.num_ranks = n, .counts = {}};
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) matrix.counts.push_back((from * 5 + to * 3) % 7);  // some are 0
    }
    Operation operation{.kind = Kind::all_to_all_v};
    operation.matrix = std::make_shared<const CountMatrix>(matrix);
    expect_right(operation, n);
  }
}

TEST(NcclExchange, HypercubeTakesLogarithmicallyManyRounds) {
  EXPECT_EQ(exchange_of({.kind = Kind::hypercube, .count = 1}, 1, 0).rounds.size(), 0U);
  EXPECT_EQ(exchange_of({.kind = Kind::hypercube, .count = 1}, 16, 5).rounds.size(), 4U);
}

TEST(NcclExchange, ReductionsAreNoExchanges) {
  EXPECT_THROW(exchange_of({.kind = Kind::all_reduce, .count = 1}, 2, 0), core::Error);
}

}  // namespace
}  // namespace lockstep::libraries
