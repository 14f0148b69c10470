// Context-parallel ranks, and every pair of options of a layout, give the losses of one rank.
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"
#include "testing/trainer/run.h"
#include "trainer/data/corpus.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kLongRun = 20;

TrainOptions options_for(const std::string& layout, std::int64_t steps, const std::string& model = "") {
  TrainOptions options = options_of({}, steps);
  options.layout = workload::parse_layout("dtype=f32,overlap_p2p=yes,batch=4," + layout);
  if (!model.empty()) options.model = workload::parse_model(model);
  return options;
}

const std::string kColossal = "colossal,flash=no";

TEST(ContextRanks, EveryWayHasTheLossesOfOneRankOverTwentySteps) {
  const TrainResult single = run(options_for("dp=1,microbatch=2", kLongRun));
  for (const std::string& way : {std::string("ring"), std::string("zigzag"), std::string("allgather"),
                                 std::string("ulysses"), std::string("lightseq"), kColossal}) {
    for (const char* ranks : {"2", "4"}) {
      const std::string layout = std::string("microbatch=2,cp=") + ranks + ",cp_way=" + way;
      EXPECT_EQ(difference(single, run(options_for(layout, kLongRun)), 1e-5), "") << layout;
    }
  }
}

TEST(ContextRanks, TheirProductsWithOtherRanksHaveTheLossesOfOneRank) {
  const TrainResult single = run(options_for("dp=1", kSteps));
  for (const char* layout : {"cp=2,tp=2",
                             "cp=2,tp=2,sp=yes,cp_way=ulysses",
                             "cp=2,dp=2,zero=1",
                             "cp=2,dp=2,zero=2,cp_way=ring",
                             "cp=2,zero=3,cp_way=lightseq",
                             "cp=2,pp=2",
                             "cp=2,pp=2,schedule=zb_h1,cp_way=allgather",
                             "cp=2,dp=2,zero=3,shard_ranks=2",
                             "cp=2,recompute=full,early_stop=yes",
                             "cp=4,recompute=full,cp_way=lightseq",
                             "cp=2,tp=2,dp=2,zero=2,sp=yes",
                             "cp=2,recompute=full,cp_way=ulysses",
                             "cp=2,dp=2,order=dp-cp-tp-pp",
                             "cp=2,recompute=selective",
                             "cp=4,recompute=selective,cp_way=lightseq,pp=2,schedule=zb_h1",
                             "cp=2,recompute=selective,cp_way=ulysses",
                             "cp=2,recompute=selective,cp_way=allgather",
                             "cp=2,dp=2,zero=3,recompute=full,cp_way=colossal,flash=no",
                             "cp=4,pp=2,schedule=zb_h1,cp_way=colossal,flash=no",
                             "cp=2,tp=2,sp=yes,recompute=selective,cp_way=colossal,flash=no"}) {
    EXPECT_EQ(difference(single, run(options_for(layout, kSteps)), 1e-5), "") << layout;
  }
}

// Positions by rank: turned queries and keys, and keys that two heads of queries share.
TEST(ContextRanks, LlamasBlockHasTheLossesOfOneRank) {
  const std::string llama =
      "layers=2,hidden=32,heads=4,kv_heads=2,vocabulary=256,sequence=16,dropout=no,norm=rms,gated=yes,biases=no,"
      "learned_positions=no,tied_embeddings=no";
  const TrainResult single = run(options_for("dp=1", kSteps, llama));
  for (const char* layout : {"cp=2,cp_way=ring", "cp=4", "cp=2,cp_way=ulysses", "cp=2,cp_way=allgather,tp=2"}) {
    EXPECT_EQ(difference(single, run(options_for(layout, kSteps, llama)), 1e-5), "") << layout;
  }
}

TEST(ContextRanks, RefuseWhatTheyCannotDo) {
  EXPECT_EQ(refusal_of(options_for("cp=3", 1)),
            "layout: 2 x cp (cp_way=zigzag) is 6, and sequence is 16; allowed: 1 2 4 8 16");
  EXPECT_NE(refusal_of(options_for("cp=8,cp_way=ulysses", 1)).find("heads / tp is 4; allowed: 1 2 4"),
            std::string::npos);
  EXPECT_NE(refusal_of(options_for("cp=2,cp_way=colossal", 1)).find("allowed: flash=no"), std::string::npos);
}

TEST(ContextRanks, MemoryIsPredictedToTheByteOnEveryRank) {
  for (const std::string& way : {std::string("ring"), std::string("zigzag"), std::string("allgather"),
                                 std::string("ulysses"), std::string("lightseq"), kColossal}) {
    for (const char* layout :
         {"cp=2,microbatch=2", "cp=4", "cp=2,recompute=full,early_stop=yes", "cp=2,recompute=selective",
          "cp=4,microbatch=2,recompute=selective,pp=2,schedule=zb_h1", "cp=2,tp=2,sp=yes,dp=2,zero=3,recompute=full"}) {
      const std::string text = std::string(layout) + ",cp_way=" + way;
      EXPECT_EQ(memory_difference(options_for(text, 2)), "") << text;
      if (way == kColossal) continue;  // heads of queries share those of keys
      TrainOptions options = options_for(text, 2);
      options.model = tiny_llama();
      EXPECT_EQ(memory_difference(options), "") << text;
    }
  }
}

// Every pair of options of a layout occurs in some layout that is run, and each gives the losses of one rank.

constexpr std::int32_t kMostRanks = 8;
constexpr std::size_t kOptions = 8;
using Row = std::array<std::size_t, kOptions>;  // which value of each option

const std::vector<std::string>& schedules_of_pairs() {
  static const std::vector<std::string> names{"1f1b", "gpipe",         "interleaved", "zb_h1",
                                              "zb_v", "breadth_first", "chimera",     "dualpipe"};
  return names;
}

Row sizes() {
  return {3, 2, 3, 4, schedules_of_pairs().size(), 2, 3, 2};
}

workload::Layout layout_of(const Row& row) {
  workload::Layout layout;
  layout.dp = 1 << row[0];
  layout.tp = 1 << row[1];
  layout.pp = 1 << row[2];
  layout.zero = static_cast<std::int32_t>(row[3]);
  layout.schedule = schedules_of_pairs()[row[4]];
  layout.sequence_parallel = row[5] == 1;
  layout.recompute = static_cast<workload::Recompute>(row[6]);
  layout.shard_ranks = row[7] == 1 ? 2 : 0;
  layout.microbatches = 4;
  layout.bucket_cap_bytes = 20'000;
  if (layout.schedule == "interleaved" || layout.schedule == "breadth_first") layout.chunks = 2;
  return layout;
}

bool is_possible(const workload::Layout& layout) {
  if (layout.ranks() > kMostRanks) return false;
  if (layout.shard_ranks > 0 && replicas_of(layout) == 1) return false;  // full sharding
  return refusal_of(options_of(layout)).empty();
}

struct Pair {
  std::size_t first, first_value, second, second_value;
  auto operator<=>(const Pair&) const = default;
};

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < kOptions; ++a) {
    for (std::size_t b = a + 1; b < kOptions; ++b) pairs.insert({a, row[a], b, row[b]});
  }
  return pairs;
}

std::vector<Row> possible_rows() {
  std::vector<Row> rows;
  Row row{};
  while (true) {
    if (is_possible(layout_of(row))) rows.push_back(row);
    std::size_t option = 0;
    while (option < kOptions && ++row[option] == sizes()[option]) row[option++] = 0;
    if (option == kOptions) return rows;
  }
}

// Greedy: always the row with most pairs that none has had.
std::vector<Row> covering_rows() {
  const std::vector<Row> rows = possible_rows();
  std::set<Pair> missing;
  for (const Row& row : rows) missing.merge(pairs_of(row));
  std::vector<Row> chosen;
  while (!missing.empty()) {
    const Row* best = nullptr;
    std::size_t most = 0;
    for (const Row& row : rows) {
      std::size_t gained = 0;
      for (const Pair& pair : pairs_of(row)) gained += missing.count(pair);
      if (gained > most) {
        most = gained;
        best = &row;
      }
    }
    chosen.push_back(*best);
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
  }
  return chosen;
}

// A model that has learned to look back two letters beats counting pairs of letters.
TEST(Learning, BeatsTheBigramOnTextThatItHasNotSeen) {
  TrainOptions options = options_of({.dp = 2, .zero = 1}, 600);
  options.model = workload::parse_model("layers=2,hidden=64,heads=4,vocabulary=256,sequence=32,dropout=no");
  options.synthetic_bytes = 1 << 17;
  options.rate.warmup = 60;
  const Corpus corpus = corpus_of(options);
  const TrainResult result = train(checked(options), corpus);
  const auto all = [](const TokenText& text) {
    std::vector<std::int32_t> tokens(text.size());
    text.copy(0, tokens);
    return tokens;
  };
  const double bigram = bigram_entropy_nats(all(corpus.training()), all(corpus.validation()), 256);
  EXPECT_LT(result.validation_loss, bigram - 0.5);
  EXPECT_GT(result.validation_loss, kSyntheticEntropyNats);
}

TEST(Pairs, EveryPairOfOptionsGivesTheLossesOfOneRank) {
  constexpr std::int64_t kLongSteps = 20;
  const TrainResult single = run(options_of({}, kLongSteps));
  const std::vector<Row> rows = covering_rows();
  EXPECT_GT(rows.size(), 30u);  // 4 ZeRO stages x 8 schedules are 32 pairs alone
  for (const Row& row : rows) {
    const workload::Layout layout = layout_of(row);
    EXPECT_EQ(difference(single, run(options_of(layout, kLongSteps)), 1e-5), "") << text_of(layout);
  }
}

}  // namespace
}  // namespace lockstep::trainer
