#include <gtest/gtest.h>

#include "bench/program/columns.h"

namespace lockstep::program {
namespace {

struct Row {
  std::string name;
  double us;
  std::int64_t wrong;
};

std::vector<Column<Row>> columns() {
  return {{{"case", "", -6}, [](auto& r) { return r.name; }},
          {{"us", "(us)", 6, "forward"}, {1}, [](auto& r) { return r.us; }, figure("us")},
          {{"ms", "(ms)", 6, "forward"}, kUsAsMs, [](auto& r) { return r.us; }},
          {{"wrong", "", 5}, kWhole, [](auto& r) { return r.wrong; }, count("wrong")},
          {count("one"), [](auto&) { return 1; }}};
}

TEST(Columns, HaveTitlesUnitsAndGroups) {
  EXPECT_EQ(columns_text(columns()),
            "#          forward\n"
            "#case       us     ms wrong\n"
            "#         (us)   (ms)      \n");
  EXPECT_EQ(row_text(columns(), {"a", 1234.56, 3}), " a      1234.6  1.235     3\n");
}

TEST(StepTable, ShowsRowsAndMarksWrongOnes) {
  std::string printed;
  StepTable<Row> table(
      columns(), [&](const std::string& text) { printed += text; }, "");
  core::StepRecord record;
  table.add({"a", 1, 0}, record, "");
  record.error = "3 elements differ";
  table.add({"b", 2, 3}, record, "# below\n");
  EXPECT_EQ(printed,
            " a         1.0  0.001     0\n"
            " b         2.0  0.002     3  WRONG\n"
            "#   3 elements differ\n"
            "# below\n");
  EXPECT_EQ(table.end(""), static_cast<int>(core::Failure::wrong_data));
  EXPECT_EQ(table.wrong(), 1U);
  EXPECT_EQ(table.rows(), 2U);
}

}  // namespace
}  // namespace lockstep::program
