// Records: what a run was and what it measured, as lines of JSON. docs/record_format.md gives the meaning and unit of
// each field. core/record_format.py generates the structs, their JSON and that page from docs/record.schema.json, so
// that a field is defined once. An unknown value is left empty and becomes null.
#pragma once

#include <optional>
#include <string>

#include "core/output_file.h"
#include "core/provenance.h"
#include "core/record_types.h"

namespace lockstep::core {

// Writes a record file, each record as soon as it is known: if the program stops for any reason, even a signal that
// cannot be caught, the records so far remain in a file that is marked partial (core/output_file.h). Without a path,
// nothing is written.
class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  bool is_open() const { return file_.has_value(); }
  template <class Record>
  void write(const Record& record) {
    if (file_) file_->write_line(to_json(record));
  }
  // Replaces the last record, for a result that grows as its program runs.
  template <class Record>
  void rewrite(const Record& record) {
    if (file_) file_->rewrite_line(to_json(record));
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<RecordFile> file_;
};

}  // namespace lockstep::core
