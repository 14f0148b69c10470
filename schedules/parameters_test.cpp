#include "schedules/parameters.h"

#include <gtest/gtest.h>

#include "schedules/catalogue.h"
#include "schedules/check.h"
#include "schedules/messages.h"
#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

std::string gathered(std::string_view csv, std::int32_t most_active) {
  return to_csv(with_gathers(parse_csv(csv, "s.csv"), most_active));
}

// By the rules of _add_unshard_reshard, with two stages active.
TEST(Parameters, GathersStandWherePyTorchPutsThem) {
  EXPECT_EQ(gathered("0F0,0F1,,0B0,0B1\n", 2), "0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD\n");
  EXPECT_EQ(gathered("0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n", 2),
            "0UNSHARD,1UNSHARD,0F0,0F1,1F0,1F1,1B0,1B1,1RESHARD,0B0,0B1,0RESHARD\n");
  EXPECT_EQ(gathered("0F0,1F0,1B0,0B0\n", 1),
            "0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,1B0,1RESHARD,0UNSHARD,0B0,0RESHARD\n");
  EXPECT_EQ(gathered("0F0,(1F0;0B0)OVERLAP_F_B,1B0\n", 1),
            "0UNSHARD,0F0,1UNSHARD,(1F0;0B0)OVERLAP_F_B,0RESHARD,1B0,1RESHARD\n");
}

TEST(Parameters, ReductionsFollowTheLastBackwardOfTheirStage) {
  EXPECT_EQ(to_csv(with_reductions(parse_csv("0F0,0F1,0B1,0I0,0W0\n", "s.csv"))), "0F0,0F1,0B1,0I0,0W0,0REDUCE_GRAD\n");
  EXPECT_EQ(to_csv(with_reductions(parse_csv("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1\n", "s.csv"))),
            "0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,1REDUCE_GRAD,0B1,0REDUCE_GRAD\n");
}

TEST(Parameters, LoweredListsOfTheCatalogueAreReadAndChecked) {
  for (const CatalogueEntry& entry : catalogue()) {
    const PipelineShape shape{4, 8, entry.takes_chunks ? 2 : 1};
    const Schedule lowered = with_messages(with_reductions(with_gathers(entry.make(shape))));
    const Schedule read = parse_csv(to_csv(lowered), "s.csv", lowered.num_pipes());
    EXPECT_EQ(read.of_rank, lowered.of_rank) << entry.name;
    EXPECT_TRUE(check(read).empty()) << entry.name;
  }
}

}  // namespace
}  // namespace lockstep::schedules
