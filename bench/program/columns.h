// The table of a benchmark of training steps as a list of columns: each defines how a value of a row is shown, and
// under which name it is in the row's record.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/program/program.h"
#include "core/error.h"
#include "core/record.h"

namespace lockstep::program {

struct Title {
  std::string name;
  std::string unit = {};   // in the line below the names
  int width = 0;           // at least; negative: to the left
  std::string group = {};  // neighbours with the same one have it above their names
};

// How a number is shown: times a factor, with this many decimals.
struct Shown {
  int decimals = 2;
  double factor = 1;
};
inline constexpr Shown kWhole{.decimals = 0};
inline constexpr Shown kUsAsMs{.decimals = 3, .factor = 1e-3};
inline constexpr Shown kMegabytes{.decimals = 3, .factor = 1e-6};
std::string number_text(double value, const Shown& shown);

// The place of a number in a record (docs/record_format.md).
struct Field {
  core::NamedNumbers core::StepRecord::*numbers = nullptr;  // null: in the table only
  std::string name = {};
};
inline Field count(const std::string& name) {
  return {&core::StepRecord::counts, name};
}
inline Field figure(const std::string& name) {
  return {&core::StepRecord::figures, name};
}

template <class Row>
struct Column {
  Column(Title column, std::function<std::string(const Row&)> shows)
      : title(std::move(column)), text(std::move(shows)) {}
  // `value` gives any number.
  Column(Title column, const Shown& shown, std::function<double(const Row&)> value, Field place = {})
      : title(std::move(column)),
        text([shown, value](const Row& row) { return number_text(value(row), shown); }),
        number(value),
        field(std::move(place)) {}
  // A number that is in the record only.
  Column(Field place, std::function<double(const Row&)> value) : number(std::move(value)), field(std::move(place)) {}

  Title title;
  std::function<std::string(const Row&)> text;
  std::function<double(const Row&)> number;
  Field field;
};

// Lines of a table: "#" and the titles, or a blank and the cells of a row.
std::string titles_text(const std::vector<Title>& titles);
std::string cells_text(const std::vector<Title>& titles, const std::vector<std::string>& cells);

template <class Row>
std::vector<Title> titles_of(const std::vector<Column<Row>>& columns) {
  std::vector<Title> titles;
  for (const Column<Row>& column : columns) {
    if (column.text) titles.push_back(column.title);
  }
  return titles;
}

template <class Row>
std::string columns_text(const std::vector<Column<Row>>& columns) {
  return titles_text(titles_of(columns));
}

template <class Row>
std::string row_text(const std::vector<Column<Row>>& columns, const Row& row, const std::string& remark = "") {
  std::vector<std::string> cells;
  for (const Column<Row>& column : columns) {
    if (column.text) cells.push_back(column.text(row));
  }
  return cells_text(titles_of(columns), cells) + remark + "\n";
}

// The table and the record file of a benchmark, a row at a time. Ranks of mpirun that print nothing give no json_file.
template <class Row>
class StepTable {
 public:
  StepTable(std::vector<Column<Row>> columns, Print print, const std::string& json_file)
      : columns_(std::move(columns)), print_(std::move(print)), writer_(json_file) {}

  void begin(const std::string& heading) { print_(heading + columns_text(columns_)); }
  // A run comes before the records of its rows.
  template <class Record>
  void write(const Record& record) {
    writer_.write(record);
  }
  // A wrong row is marked, with the reason below it, before `below`.
  void show(const Row& row, const std::string& wrong, const std::string& below) {
    print_(row_text(columns_, row, wrong.empty() ? "" : "  WRONG") + (wrong.empty() ? "" : "#   " + wrong + "\n") +
           below);
    ++rows_;
    wrong_ += wrong.empty() ? 0 : 1;
  }
  // Shows the row, and writes its record with the numbers of the columns.
  void add(const Row& row, core::StepRecord record, const std::string& below) {
    for (const Column<Row>& column : columns_) {
      if (column.field.numbers) (record.*column.field.numbers).emplace_back(column.field.name, column.number(row));
    }
    show(row, record.error.value_or(""), below);
    write(record);
  }
  std::size_t rows() const { return rows_; }
  std::size_t wrong() const { return wrong_; }
  // Returns the exit status: core::Failure's if a row is wrong.
  int end(const std::string& ending) {
    print_(ending);
    writer_.commit();
    return wrong_ > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
  }

 private:
  const std::vector<Column<Row>> columns_;
  const Print print_;
  core::RecordWriter writer_;
  std::size_t rows_ = 0;
  std::size_t wrong_ = 0;
};

}  // namespace lockstep::program
