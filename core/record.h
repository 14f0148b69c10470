// Records: what a run was and what it measured, as lines of JSON. docs/record_format.md gives the meaning and unit of
// each field. core/record_format.py generates the structs, their JSON and that page from docs/record.schema.json, so
// that a field is defined once. An unknown value is left empty and becomes null.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/host_load.h"
#include "core/output_file.h"
#include "core/provenance.h"
#include "core/record_types.h"

namespace lockstep::core {

// Writes a record file, each record as soon as it is known: if the program stops for any reason, even a signal that
// cannot be caught, the records so far remain in a file that is marked partial (core/output_file.h). Without a path,
// nothing is written. What other programs used of the processors meanwhile becomes known at the end, and is then
// written into the lines of the runs (RunRecord::others_share).
class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  bool is_open() const { return file_.has_value(); }
  template <class Record>
  void write(const Record& record) {
    if (!file_) return;
    if constexpr (std::is_same_v<Record, RunRecord>) {
      const std::string line = to_json(record) + kRoom;
      runs_.push_back({record, file_->end(), line.size()});
      file_->write_line(line);
    } else {
      file_->write_line(to_json(record));
    }
  }
  // Replaces the last record, for a result that grows as its program runs.
  template <class Record>
  void rewrite(const Record& record) {
    if (file_) file_->rewrite_line(to_json(record));
  }
  void commit() {
    if (!file_) return;
    const std::optional<double> share = load_.others_share();
    for (WrittenRun& run : runs_) {
      if (!share || run.record.basis == "simulated") continue;
      run.record.others_share = std::round(*share * 1e3) / 1e3;
      file_->overwrite_line(run.begins, run.size, to_json(run.record));
    }
    file_->commit();
  }

 private:
  struct WrittenRun {
    RunRecord record;
    std::size_t begins;  // offset of its line
    std::size_t size;    // bytes of it
  };
  static constexpr const char* kRoom = " ";  // "0.123" is longer than null

  HostLoad load_;
  std::optional<RecordFile> file_;
  std::vector<WrittenRun> runs_;
};

}  // namespace lockstep::core
