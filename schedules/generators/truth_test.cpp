// Compares makespans, spans, peaks, messages, their order, and hangs with a table that was made independently of this
// code (testdata/pipeline_truth.json; its "definitions" explain the fields).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedules/count.h"
#include "schedules/generators/catalogue.h"
#include "schedules/generators/reorder.h"
#include "schedules/messages.h"
#include "schedules/transport_check.h"

namespace lockstep::schedules {
namespace {

using nlohmann::json;

const json& truth() {
  static const json table = json::parse(std::ifstream(LOCKSTEP_PIPELINE_TRUTH));
  return table;
}

// The table's names contain the chunks ("interleaved_v4"), and its V schedules also exist as blocks before reordered()
// ("v_min_block").
struct Named {
  std::string name;
  std::int32_t chunks = 1;
};
Named named(std::string name) {
  Named found{name};
  const std::size_t at = name.rfind("_v");
  if (at != std::string::npos && at + 2 < name.size() && name[at + 2] != 'm') {
    found = {name.substr(0, at), std::stoi(name.substr(at + 2))};
  }
  if (found.name == "looped_bfs") found.name = "breadth_first";
  if (found.name == "dualpipev") found.name = "dualpipe_v";
  return found;
}

Schedule schedule_of(const json& row) {
  const Named found = named(row.at("schedule"));
  const PipelineShape shape{row.at("p"), row.at("m"), 1};
  if (found.name == "v_half_block") return v_half_block(shape);
  if (found.name == "v_min_block") return v_min_block(shape);
  return make_schedule(found.name, {row.at("p"), row.at("m"), found.chunks});
}

std::string label(const json& row) {
  return row.at("schedule").get<std::string>() + " p=" + row.at("p").dump() + " m=" + row.at("m").dump();
}

TEST(Truth, Times) {
  for (const json& row : truth().at("cases")) {
    const Schedule schedule = schedule_of(row);
    const Times times{1, 1, 1, row.at("tcomm")};
    const Timeline timeline = play(schedule, times);
    const Spans spans = spans_of(schedule, times, timeline);
    const Bubbles bubbles = bubbles_of(spans);
    EXPECT_NEAR(spans.makespan, row.at("makespan"), 1e-8) << label(row);
    EXPECT_NEAR(spans.own, row.at("max_span"), 1e-8) << label(row);
    EXPECT_NEAR(spans.work, row.at("work"), 1e-8) << label(row);
    EXPECT_NEAR(bubbles.of_makespan, row.at("bubble_makespan"), 1e-8) << label(row);
    EXPECT_NEAR(bubbles.of_own_span, row.at("bubble_span"), 1e-8) << label(row);
    for (std::size_t r = 0; r < timeline.size(); ++r) {
      EXPECT_NEAR(timeline[r].front().start, row.at("start").at(r), 1e-8) << label(row);
      EXPECT_NEAR(timeline[r].back().end, row.at("end").at(r), 1e-8) << label(row);
    }
  }
  EXPECT_GE(truth().at("cases").size(), 220U);
}

TEST(Truth, CountsAndHangs) {
  for (const json& row : truth().at("static")) {
    const Schedule schedule = schedule_of(row);
    std::vector<double> until_w;
    std::vector<double> until_i;
    std::vector<std::int64_t> sends;
    for (const RankCounts& rank : count_ranks(schedule)) {
      until_w.push_back(rank.peak.until_weight_gradient);
      until_i.push_back(rank.peak.until_input_gradient);
      sends.push_back(rank.sends);
    }
    EXPECT_EQ(json(until_w), row.at("peak_act")) << label(row);
    EXPECT_EQ(json(until_i), row.at("peak_act_B")) << label(row);
    EXPECT_EQ(json(sends), row.at("sends")) << label(row);
    const Ordering ordering = count_ordering(schedule);
    EXPECT_EQ(ordering.pairs, row.at("pairs")) << label(row);
    EXPECT_EQ(ordering.pairs_out_of_order, row.at("pairs_out_of_order")) << label(row);
    EXPECT_EQ(ordering.set_aside, row.at("extra_buffers")) << label(row);
    const Schedule lowered = with_messages(schedule);
    EXPECT_EQ(!hang_of(lowered, {Waiting::blocking}).empty(), row.at("hangs_blocking")) << label(row);
    EXPECT_EQ(!hang_of(lowered, {Waiting::batched}).empty(), row.at("hangs_batched")) << label(row);
  }
  EXPECT_GE(truth().at("static").size(), 110U);
}

TEST(Truth, IllegalShapesAreRefused) {
  for (const json& row : truth().at("illegal")) EXPECT_ANY_THROW(schedule_of(row)) << label(row);
}

}  // namespace
}  // namespace lockstep::schedules
