#include "bench/collective_perf/table.h"
#include "testing/core/thrown.h"

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep::sweep {
namespace {

Row sample_row() {
  Row row;
  row.of.bytes = 8;
  row.of.count = 2;
  row.of.dtype = "float";
  row.of.op = "sum";
  row.out_of_place.time_us = 12.9;
  row.out_of_place.wrong = 0;
  row.in_place = row.out_of_place;
  return row;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Literal text of nccl-tests 2.19.6.
TEST(Table, HeadingIsNcclTests) {
  EXPECT_EQ(table_heading_text({}),
            "#\n"
            "#                                                              out-of-place                       "
            "in-place          \n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   "
            "busbw  #wrong \n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
            "(GB/s)         \n");
}

TEST(Table, RowIsNcclTests) {
  EXPECT_EQ(row_text({}, sample_row()),
            "           8             2     float     sum      -1    12.90    0.00    0.00       0    12.90    0.00    "
            "0.00       0\n");
}

TEST(Table, LargeRow) {
  Row row = sample_row();
  row.of.bytes = 134217728;
  row.of.count = 33554432;
  row.of.dtype = "bfloat16";
  row.of.op = "none";
  row.of.root = 3;
  row.out_of_place = {};
  row.out_of_place.time_us = 123456.78;
  row.out_of_place.algbw_gbps = 480.567;
  row.out_of_place.busbw_gbps = 12345.67;
  row.out_of_place.wrong = 12345678;
  row.in_place.time_us = 1e9;
  row.in_place.wrong.reset();
  EXPECT_EQ(row_text({}, row),
            "   134217728      33554432  bfloat16    none       3   123457  480.57   12346  1.23457e+07  1.0e+09    "
            "0.00    0.00    N/A\n");
}

TEST(Table, AFailedPlacementSaysSo) {
  Row row = sample_row();
  row.in_place.failed = true;
  EXPECT_EQ(row_text({}, row),
            "           8             2     float     sum      -1    12.90    0.00    0.00       0      N/A     N/A    "
            " N/A  FAILED\n");
}

TEST(Table, PerIterationColumns) {
  Row row = sample_row();
  row.out_of_place.samples = {.mean = 100, .min = 11, .max = 14.126, .p99 = 14, .stddev = 3.2};
  const Columns columns{.per_iteration = true};
  EXPECT_EQ(table_heading_text(columns),
            "#\n"
            "#                                                                 out-of-place (+ per-iteration)          "
            "                      in-place (+ per-iteration)\n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max   "
            " i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv% \n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)     (us)   "
            "  (us)      (%)     (us)  (GB/s)  (GB/s)             (us)     (us)     (us)      (%) \n");
  EXPECT_EQ(row_text(columns, row),
            "           8             2     float     sum      -1    12.90    0.00    0.00       0    11.00    14.13   "
            " 14.00     3.20    12.90    0.00    0.00       0     0.00     0.00     0.00     0.00\n");
}

TEST(Table, Timestamps) {
  Row row = sample_row();
  row.timestamp = "2026-01-31 23:59:59";
  const Columns columns{.timestamps = true};
  EXPECT_EQ(lines_of(table_heading_text(columns))[2],
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   "
            "busbw  #wrong           timestamp");
  EXPECT_EQ(lines_of(table_heading_text(columns))[3],
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
            "(GB/s)           %Y-%m-%d %H:%M:%S");
  EXPECT_EQ(row_text(columns, row),
            "           8             2     float     sum      -1    12.90    0.00    0.00       0    12.90    0.00    "
            "0.00       0  2026-01-31 23:59:59\n");
  EXPECT_EQ(timestamp_now().size(), 19u);
}

TEST(Table, OwnColumnsStandToTheRight) {
  Row row = sample_row();
  row.of.ranks = 8;
  row.of.algorithm = "ring:lanes=2";
  row.plan = PlanFacts{{14, 14, 98, 10.5}, {}, {}};
  row.out_of_place.measured_over_predicted = 1.2286;
  row.out_of_place.samples = {.median = 12.5, .p95 = 14, .p99 = 15};
  const Columns columns{.explain = true, .stats = true};
  const std::vector<std::string> heading = lines_of(table_heading_text(columns));
  const std::string own = row_text({}, sample_row());
  EXPECT_EQ(row_text(columns, row), own.substr(0, own.size() - 1) +
                                        "      8              ring:lanes=2      14            14     10.50    1.23     "
                                        "N/A    12.50    14.00    15.00     0.00     0.00     0.00\n");
  EXPECT_EQ(heading[2].substr(118),
            "  ranks                 algorithm   steps          wire   predict     m/p  ip_m/p      p50      p95      "
            "p99   ip_p50   ip_p95   ip_p99");
  EXPECT_EQ(heading[3].substr(118),
            "                                               (B/rank)      (us)                     (us)     (us)     "
            "(us)     (us)     (us)     (us)");
  EXPECT_EQ(heading[2].size(), row_text(columns, row).size() - 1);
}

TEST(Table, EmulatedLinksShowWhatAPredictionIsMadeOf) {
  Row row = sample_row();
  row.plan = PlanFacts{{14, 14, 98, 10.5}, 10, 0.25};
  const Columns columns{.explain = true, .links = true};
  const std::vector<std::string> heading = words_of(lines_of(table_heading_text(columns))[2]);
  const std::vector<std::string> words = words_of(row_text(columns, row));
  const std::vector<std::string> names(heading.end() - 5, heading.end());
  const std::vector<std::string> cells(words.end() - 5, words.end());
  EXPECT_EQ(names, (std::vector<std::string>{"predict", "links", "memory", "m/p", "ip_m/p"}));
  EXPECT_EQ(cells, (std::vector<std::string>{"10.50", "10.00", "0.25", "N/A", "N/A"}));
}

TEST(Table, WhatIsNotKnownIsNotGuessed) {
  const std::vector<std::string> words = words_of(row_text(Columns{.explain = true}, sample_row()));
  EXPECT_EQ(std::vector<std::string>(words.begin() + 13, words.end()),
            (std::vector<std::string>{"1", "N/A", "N/A", "N/A", "N/A", "N/A", "N/A"}));
}

// A script that splits at white space finds nccl-tests' thirteen columns whichever others are on.
TEST(Table, WordsOfNcclTestsKeepTheirPlaces) {
  Row row = sample_row();
  row.of.algorithm = "double_tree";
  row.out_of_place.wrong.reset();
  const std::vector<std::string> plain = words_of(row_text({}, row));
  ASSERT_EQ(plain.size(), 13u);
  for (const Columns& columns : {Columns{.choice = true}, Columns{.explain = true}, Columns{.stats = true}}) {
    const std::vector<std::string> words = words_of(row_text(columns, row));
    EXPECT_GT(words.size(), 13u);
    EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 13), plain);
    // A row that was not verified is shorter; our columns stay under their headings.
    EXPECT_EQ(row_text(columns, row).size() - 1, lines_of(table_heading_text(columns))[2].size());
  }
}

TEST(Table, Heading) {
  Heading heading;
  heading.flags.program = "all_reduce_perf";
  heading.version = "0.1.0";
  heading.threads = 8;
  heading.flags.sizes = {8, 134217728, 1048576, 2};
  heading.notes = {"ranks 8 on 2 cores: oversubscribed"};
  heading.devices = {{0, 12345, "node1", 0, "0000:1b:00", "NVIDIA H100 80GB HBM3"}, {1, 12345, "node1", 1, "cpu", "X"}};
  EXPECT_EQ(heading_text(heading),
            "# lockstep version 0.1.0 (nccl-tests 2.19.6 output format)\n"
            "# Collective test starting: all_reduce_perf\n"
            "# nThread 8 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 "
            "validation: 1 graph: 0 unalign: 0\n"
            "# ranks 8 on 2 cores: oversubscribed\n"
            "#\n"
            "# Using devices\n"
            "#  Rank  0 Group  0 Pid  12345 on      node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n"
            "#  Rank  1 Group  0 Pid  12345 on      node1 device  1 [cpu] X\n");
  heading.flags.sizes.step_factor = 1;
  EXPECT_TRUE(core::has(heading_text(heading), " step: 1048576(bytes) "));
}

TEST(Table, HeadingOfGraphsAndEvents) {
  Heading heading;
  heading.flags.device.graph_launches = 3;
  heading.flags.per_iteration_timing = true;
  EXPECT_TRUE(core::has(heading_text(heading), " graph: 3 "));
  EXPECT_TRUE(core::has(heading_text(heading), "host clock timing"));
  heading.timed_by_events = true;
  EXPECT_TRUE(core::has(heading_text(heading), "CUDA event timing"));
}

TEST(Table, TheHostsTimeHasItsName) {
  const std::string names = lines_of(table_heading_text(Columns{.cpu_time = true}))[2];
  EXPECT_EQ(names.size(), lines_of(table_heading_text({}))[2].size());
  EXPECT_TRUE(core::has(names, "  cputime   algbw"));
}

TEST(Table, Footing) {
  EXPECT_EQ(footing_text({"all_reduce_perf", 0, 41.2345, std::nullopt}),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 41.2345 \n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "#\n");
  EXPECT_EQ(lines_of(footing_text({"x", 3, 0, std::nullopt}))[0], "# Out of bounds values : 3 FAILED");
}

TEST(Table, TheGateFailsBelowNineTenths) {
  EXPECT_EQ(lines_of(footing_text({"x", 0, 89.9, 100.0}))[1], "# Avg bus bandwidth    : 89.9 FAILED");
  EXPECT_EQ(lines_of(footing_text({"x", 0, 90.0, 100.0}))[1], "# Avg bus bandwidth    : 90 OK");
  EXPECT_TRUE(below_minimum({"x", 0, 89.9, 100.0}));
  EXPECT_FALSE(below_minimum({"x", 0, 0.0, std::nullopt}));
}

TEST(Number, HasAsManyDecimalsAsFit) {
  EXPECT_EQ(number_text(0, 7), "   0.00");
  EXPECT_EQ(number_text(9999.99, 7), "9999.99");
  EXPECT_EQ(number_text(9999.999, 7), "10000.0");
  EXPECT_EQ(number_text(99999.96, 7), " 100000");
  EXPECT_EQ(number_text(1234567, 7), "1234567");
  EXPECT_EQ(number_text(12345678, 7), "1.2e+07");
  EXPECT_EQ(number_text(999.99, 6), "999.99");
  EXPECT_EQ(number_text(1000, 6), "1000.0");
  EXPECT_EQ(number_text(1e7, 6), " 1e+07");
}

}  // namespace
}  // namespace lockstep::sweep
