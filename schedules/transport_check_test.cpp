#include "schedules/transport_check.h"

#include <gtest/gtest.h>

#include "schedules/generators/every_schedule.h"
#include "schedules/messages.h"
#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

TEST(TransportCheck, AHangSaysWhereEachRankStands) {
  // Both ranks send first.
  const Schedule schedule = parse_csv(
      "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
      "2F0,2SEND_F0,1RECV_F0,1F0,1B0,1SEND_B0,2RECV_B0,2B0\n",
      "s.csv");
  EXPECT_EQ(hang_of(schedule, {Waiting::blocking}), "rank 0 at 0SEND_F0 to rank 1; rank 1 at 2SEND_F0 to rank 0");
  EXPECT_EQ(hang_of(schedule, {Waiting::buffered, 1}), "");
}

// With slots for all messages no schedule that check() accepts hangs; fewer slots never help.
TEST(TransportCheck, MoreSlotsNeverHang) {
  for_every_schedule(6, [](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    const Schedule lowered = with_messages(schedule);
    bool went = false;
    for (std::int32_t slots : {1, 2, 4, 4 * schedule.num_microbatches}) {
      const bool goes = hang_of(lowered, {Waiting::buffered, slots}).empty();
      EXPECT_TRUE(goes || !went) << schedule.name << " with " << slots;
      went = goes;
    }
    EXPECT_TRUE(went) << schedule.name;
  });
}

}  // namespace
}  // namespace lockstep::schedules
