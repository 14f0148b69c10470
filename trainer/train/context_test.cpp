// Sequences that context ranks share, in every way and in products with the other kinds of parallelism, give the losses
// of one rank.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kLongRun = 20;

TrainOptions options_for(const std::string& layout, std::int64_t steps, const std::string& model = "") {
  TrainOptions options = options_of({}, steps);
  options.layout = workload::parse_layout("dtype=f32,overlap_p2p=yes,batch=4," + layout);
  if (!model.empty()) options.model = workload::parse_model(model);
  return options;
}

TEST(ContextRanks, EveryWayHasTheLossesOfOneRankOverTwentySteps) {
  const TrainResult one = run(options_for("dp=1,microbatch=2", kLongRun));
  for (const char* way : {"ring", "zigzag", "allgather", "ulysses", "lightseq"}) {
    for (const char* ranks : {"2", "4"}) {
      const std::string layout = std::string("microbatch=2,cp=") + ranks + ",cp_way=" + way;
      EXPECT_EQ(difference(one, run(options_for(layout, kLongRun)), 1e-5), "") << layout;
    }
  }
}

TEST(ContextRanks, TheirProductsWithOtherRanksHaveTheLossesOfOneRank) {
  const TrainResult one = run(options_for("dp=1", kSteps));
  for (const char* layout :
       {"cp=2,tp=2", "cp=2,tp=2,sp=yes,cp_way=ulysses", "cp=2,dp=2,zero=1", "cp=2,dp=2,zero=2,cp_way=ring",
        "cp=2,zero=3,cp_way=lightseq", "cp=2,pp=2", "cp=2,pp=2,schedule=zb_h1,cp_way=allgather",
        "cp=2,dp=2,zero=3,shard_ranks=2", "cp=2,recompute=full,early_stop=yes", "cp=4,recompute=full,cp_way=lightseq",
        "cp=2,tp=2,dp=2,zero=2,sp=yes", "cp=2,recompute=full,cp_way=ulysses", "cp=2,dp=2,order=dp-cp-tp-pp",
        "cp=2,recompute=selective", "cp=4,recompute=selective,cp_way=lightseq,pp=2,schedule=zb_h1",
        "cp=2,recompute=selective,cp_way=ulysses", "cp=2,recompute=selective,cp_way=allgather"}) {
    EXPECT_EQ(difference(one, run(options_for(layout, kSteps)), 1e-5), "") << layout;
  }
}

// Positions by rank: turned queries and keys, and keys that two heads of queries share.
TEST(ContextRanks, LlamasBlockHasTheLossesOfOneRank) {
  const std::string llama =
      "layers=2,hidden=32,heads=4,kv_heads=2,vocabulary=256,sequence=16,dropout=no,norm=rms,gated=yes,biases=no,"
      "learned_positions=no,tied_embeddings=no";
  const TrainResult one = run(options_for("dp=1", kSteps, llama));
  for (const char* layout : {"cp=2,cp_way=ring", "cp=4", "cp=2,cp_way=ulysses", "cp=2,cp_way=allgather,tp=2"}) {
    EXPECT_EQ(difference(one, run(options_for(layout, kSteps, llama)), 1e-5), "") << layout;
  }
}

std::string refusal_of(const std::string& layout) {
  try {
    checked(options_for(layout, 1));
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(ContextRanks, RefuseWhatTheyCannotDo) {
  EXPECT_EQ(refusal_of("cp=3"), "layout: 2 x cp (cp_way=zigzag) is 6, and sequence is 16; allowed: 1 2 4 8 16");
  EXPECT_NE(refusal_of("cp=8,cp_way=ulysses").find("heads / tp is 4; allowed: 1 2 4"), std::string::npos);
  EXPECT_NE(refusal_of("cp=2,cp_way=colossal,flash=no").find("cp_way=ring zigzag"), std::string::npos);
}

TEST(ContextRanks, MemoryIsPredictedToTheByteOnEveryRank) {
  for (const char* way : {"ring", "zigzag", "allgather", "ulysses", "lightseq"}) {
    for (const char* layout :
         {"cp=2,microbatch=2", "cp=4", "cp=2,recompute=full,early_stop=yes", "cp=2,recompute=selective",
          "cp=4,microbatch=2,recompute=selective,pp=2,schedule=zb_h1", "cp=2,tp=2,sp=yes,dp=2,zero=3,recompute=full"}) {
      const std::string text = std::string(layout) + ",cp_way=" + way;
      EXPECT_EQ(memory_difference(options_for(text, 2)), "") << text;
      TrainOptions options = options_for(text, 2);
      options.model = tiny_llama();
      EXPECT_EQ(memory_difference(options), "") << text;
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer
