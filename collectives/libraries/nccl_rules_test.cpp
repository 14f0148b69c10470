#include "collectives/libraries/nccl_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/core/thrown.h"

namespace lockstep::libraries {
namespace {

using collectives::CountMatrix;
using collectives::Kind;
using collectives::Operation;
using core::DType;

constexpr NcclPlatform kHopper{90, 22809};
constexpr NcclPlatform kAmpere{80, 22809};

Operation operation(Kind kind, DType dtype = DType::f32, bool in_place = false) {
  return {.kind = kind, .count = 16, .dtype = dtype, .in_place = in_place};
}

TEST(NcclRules, EveryKindAndDtypeRunsOutOfPlaceOnHopper) {
  for (const Kind kind : collectives::all_kinds()) {
    for (const DType dtype : core::all_dtypes()) {
      EXPECT_EQ(nccl_refusal(operation(kind, dtype), 8, kHopper), std::nullopt)
          << collectives::name_of(kind) << " " << core::name_of(dtype);
    }
  }
}

TEST(NcclRules, InPlaceIsRefusedWhereWhatArrivesOverwritesWhatIsToBeSent) {
  for (const Kind kind : collectives::all_kinds()) {
    const bool refused = kind == Kind::all_to_all || kind == Kind::all_to_all_v || kind == Kind::send_recv;
    EXPECT_EQ(nccl_refusal(operation(kind, DType::f32, true), 4, kHopper).has_value(), refused)
        << collectives::name_of(kind);
  }
  EXPECT_EQ(*nccl_refusal(operation(Kind::all_to_all, DType::f32, true), 4, kHopper),
            "NCCL has no all_to_all in place");
}

TEST(NcclRules, HypercubeNeedsAPowerOfTwo) {
  for (int n = 1; n <= 33; ++n) {
    const bool power_of_two = n == 1 || n == 2 || n == 4 || n == 8 || n == 16 || n == 32;
    EXPECT_EQ(nccl_refusal(operation(Kind::hypercube), n, kHopper).has_value(), !power_of_two) << n;
  }
  EXPECT_EQ(*nccl_refusal(operation(Kind::hypercube), 6, kHopper), "hypercube needs a power of two of ranks, not 6");
}

TEST(NcclRules, OldGpusMoveEightBitFloatsButDoNotReduceThem) {
  EXPECT_EQ(*nccl_refusal(operation(Kind::all_reduce, DType::f8e4m3), 2, kAmpere),
            "NCCL reduces f8e4m3 on GPUs of compute capability 9.0 and above; this one has 8.0");
  EXPECT_TRUE(nccl_refusal(operation(Kind::reduce_scatter, DType::f8e5m2), 2, {89, 22809}).has_value());
  EXPECT_EQ(nccl_refusal(operation(Kind::all_gather, DType::f8e4m3), 2, kAmpere), std::nullopt);
  EXPECT_EQ(nccl_refusal(operation(Kind::all_reduce, DType::bf16), 2, kAmpere), std::nullopt);
}

TEST(NcclRules, TwoRanksOnOneGpuAreNamed) {
  const GpuUuid a{1};
  const GpuUuid b{2};
  const GpuUuid c{3};
  const NcclSharing old{.version_code = 22809, .enabled = true};
  EXPECT_EQ(shared_gpu_refusal(std::vector{a, b, c}, old), std::nullopt);
  EXPECT_EQ(shared_gpu_refusal(std::vector{a}, old), std::nullopt);
  EXPECT_EQ(
      *shared_gpu_refusal(std::vector{a, b, c, b}, old),
      "ranks 1 and 3 are on the same GPU: NCCL 2.28.9 needs one GPU per rank; NCCL 2.30 or newer lets ranks share "
      "one with NCCL_MULTI_RANK_GPU_ENABLE=1");
}

TEST(NcclRules, BlocksOfRanksOnOneGpuFitItTogether) {
  const auto blocks = [](std::size_t ranks, int multiprocessors) {
    return most_blocks(std::vector<GpuUuid>(ranks, GpuUuid{1}), 0, multiprocessors);
  };
  EXPECT_EQ(blocks(2, 132), 32);
  EXPECT_EQ(blocks(4, 132), 24);
  EXPECT_EQ(blocks(8, 132), 12);
  EXPECT_EQ(blocks(16, 132), 4);
  EXPECT_EQ(blocks(16, 16), 1);
  const std::vector<GpuUuid> mixed{{1}, {2}, {1}};
  EXPECT_EQ(most_blocks(mixed, 2, 132), 32);
  EXPECT_EQ(most_blocks(mixed, 1, 132), 0) << "it has its GPU alone";
}

TEST(NcclRules, VersionsWithoutAllCallsAreRefused) {
  EXPECT_EQ(version_refusal(22304), "NCCL 2.23.4 is too old; allowed: 2.24 or newer");
  EXPECT_EQ(version_refusal(22403), std::nullopt);
  EXPECT_EQ(version_refusal(23000), std::nullopt);
}

TEST(NcclRules, WhatAnOlderVersionDoesNotHaveIsRefusedByName) {
  const auto why = [](NcclRegistration registration, int policy, int version) {
    return settings_refusal({.cta_policy = policy}, registration, version).value_or("");
  };
  EXPECT_EQ(why(NcclRegistration::symmetric, 0, 22602), "-R 2 needs NCCL 2.27; this one is 2.26.2");
  EXPECT_EQ(why(NcclRegistration::local, 0, 22602), "");
  EXPECT_EQ(why(NcclRegistration::none, 1, 22602), "-x 1 needs NCCL 2.27; this one is 2.26.2");
  EXPECT_EQ(why(NcclRegistration::symmetric, 2, 22703), "-x 2 needs NCCL 2.28; this one is 2.27.3");
  EXPECT_EQ(why(NcclRegistration::symmetric, 2, 22809), "");
  for (const Kind kind : collectives::all_kinds()) {
    const bool refused = kind == Kind::all_to_all || kind == Kind::gather || kind == Kind::scatter;
    EXPECT_EQ(nccl_refusal(operation(kind), 8, {90, 22703}).has_value(), refused) << collectives::name_of(kind);
  }
  EXPECT_EQ(*nccl_refusal(operation(Kind::all_to_all), 8, {90, 22703}),
            "all_to_all needs NCCL 2.28; this one is 2.27.3");
}

// The list of NCCL's user guide: within a domain all_gather, all_to_all, gather and scatter; between hosts, from 2.30.6
// on, the first two.
TEST(NcclRules, CopyEnginesDoWhatIsCopiedBetweenSymmetricWindows) {
  std::vector<Kind> within;
  std::vector<Kind> between;
  for (const Kind kind : collectives::all_kinds()) {
    if (!zero_cta_refusal(kind, NcclRegistration::symmetric, 1, 22809)) within.push_back(kind);
    if (!zero_cta_refusal(kind, NcclRegistration::symmetric, 2, 23006)) between.push_back(kind);
    EXPECT_TRUE(zero_cta_refusal(kind, NcclRegistration::local, 1, 23007)) << collectives::name_of(kind);
  }
  const auto kinds = [](std::vector<Kind> some) {
    std::sort(some.begin(), some.end());
    return some;
  };
  EXPECT_EQ(kinds(within), kinds({Kind::all_gather, Kind::all_to_all, Kind::gather, Kind::scatter}));
  EXPECT_EQ(kinds(between), kinds({Kind::all_gather, Kind::all_to_all}));
  EXPECT_EQ(*zero_cta_refusal(Kind::all_gather, NcclRegistration::symmetric, 2, 23005),
            "copying between hosts needs NCCL 2.30.6; this one is 2.30.5");
}

TEST(NcclRules, NewVersionsShareAGpuIfTheyAreTold) {
  const std::vector<GpuUuid> one_gpu(4, GpuUuid{1});
  EXPECT_EQ(shared_gpu_refusal(one_gpu, {.version_code = 23000, .enabled = true}), std::nullopt);
  EXPECT_EQ(*shared_gpu_refusal(one_gpu, {.version_code = 23000, .enabled = false}),
            "ranks 0 and 1 are on the same GPU: NCCL lets ranks share a GPU only with NCCL_MULTI_RANK_GPU_ENABLE=1 in "
            "the environment");
  EXPECT_TRUE(sharing_refusal({.version_code = 22907, .enabled = true}).has_value());
  EXPECT_FALSE(sharing_refusal({.version_code = 23204, .enabled = true}).has_value());
}

TEST(NcclConfig, IsTheUsersWithinWhatSharersOfAGpuLeave) {
  NcclConfig asked;
  EXPECT_EQ(config_within(asked, 0), asked);
  EXPECT_EQ(config_within(asked, 12).max_ctas, 12);
  asked.min_ctas = 2;
  asked.max_ctas = 8;
  asked.net_name = "Socket";
  EXPECT_EQ(config_within(asked, 0), asked);
  EXPECT_EQ(config_within(asked, 12), asked) << "fewer than it may have";
  EXPECT_EQ(core::refusal_of([&] { config_within(asked, 4); }),
            "--max-ctas 8: ranks share a GPU, on which the thread blocks of all must run at the same time; allowed: "
            "1 to 4");
  asked.max_ctas.reset();
  EXPECT_THROW(config_within(asked, 1), core::Error) << "two at least, of one at most";
}

std::string refused_text(std::string_view text) {
  return core::refusal_of([&] { parse_nccl_choice(text); });
}

TEST(NcclChoice, ReadsWhatIsGivenAndLeavesTheRestToNccl) {
  EXPECT_EQ(parse_nccl_choice("library"), NcclChoice{});
  EXPECT_EQ(parse_nccl_choice("library:algo=ring:proto=ll128"), (NcclChoice{"ring", "ll128"}));
  EXPECT_EQ(parse_nccl_choice("library:proto=simple:algo=nvls"), (NcclChoice{"nvls", "simple"}));
  EXPECT_EQ(parse_nccl_choice("library:proto=ll"), (NcclChoice{"", "ll"}));
}

TEST(NcclChoice, IsWrittenAsItIsRead) {
  for (const std::string text : {"library", "library:algo=ring:proto=ll128", "library:algo=nvls", "library:proto=ll"})
    EXPECT_EQ(nccl_choice_text(parse_nccl_choice(text)), text);
}

TEST(NcclChoice, RefusesWhatIsNoWordOfNccls) {
  for (const std::string text : {"library:", "library:algo", "library:algo=", "library:algo=butterfly",
                                 "library:proto=ll256", "library:ring", "library:algo=ring:", "library::"}) {
    const std::string why = refused_text(text);
    EXPECT_TRUE(why.starts_with("--algo " + text + ": ")) << text << ": " << why;
    EXPECT_EQ(std::count(why.begin(), why.end(), '\n'), 0) << why;
    EXPECT_TRUE(core::has(why, "; allowed: "));
  }
}

TEST(NcclChoice, KnowsWhatThereIsInWhichCollective) {
  const auto refusal = [](std::string_view text, Kind kind) {
    return choice_refusal(parse_nccl_choice(text), kind).value_or("");
  };
  EXPECT_EQ(refusal("library", Kind::all_to_all), "");
  EXPECT_EQ(refusal("library:algo=tree:proto=ll", Kind::all_reduce), "");
  EXPECT_EQ(refusal("library:algo=pat", Kind::all_gather), "");
  EXPECT_EQ(refusal("library:proto=ll128", Kind::broadcast), "");
  EXPECT_EQ(refusal("library:algo=tree", Kind::all_gather),
            "NCCL has no all_gather by tree; allowed: ring, nvls, collnetdirect, pat");
  EXPECT_EQ(refusal("library:algo=nvls", Kind::reduce), "NCCL has no reduce by nvls; allowed: ring");
  EXPECT_EQ(refusal("library:algo=pat", Kind::all_reduce),
            "NCCL has no all_reduce by pat; allowed: ring, tree, nvls, nvlstree, collnetdirect, collnetchain");
  EXPECT_EQ(refusal("library:algo=nvls:proto=ll128", Kind::all_reduce),
            "NCCL's nvls has no protocol ll128; allowed: simple");
  EXPECT_EQ(refusal("library:proto=ll", Kind::send_recv), "NCCL has one algorithm for send_recv; allowed: library");
}

// Runs exchanges on arrays: all ranks' rounds in lockstep, with every send matched to the receive that NCCL would
// match.

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
        if (!nccl_refusal(operation, n, kHopper)) expect_right(operation, n);
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
