// The record of a layout's training step: predicted from its pieces, and measured (docs/record_format.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/training_record.h"

namespace lockstep::core {

struct StepTimeRecord {
  std::string kind;  // "isolated", "contended", "measured"
  double step_ms = 0;
  std::vector<double> samples_ms;  // `stats` of the line is summarize(samples_ms)
  NamedNumbers parts_ms;           // mean of the ranks
  TimelineRecord timeline;
};

struct SlowdownRecord {
  std::string of;
  std::string beside;
  int ranks = 1;
  double factor = 1;
  std::int64_t samples = 0;
};

struct ScalingRecord {
  std::string run;
  std::string program;
  std::string basis;
  std::string mode;  // "weak", "strong"
  ModelRecord model;
  LayoutRecord layout;
  std::string dtype;
  int ranks = 1;
  int threads = 1;  // a rank
  bool oversubscribed = false;
  std::int64_t sequences_a_step = 0;
  std::int64_t tokens_a_step = 0;
  std::vector<StepTimeRecord> steps;
  std::vector<SlowdownRecord> slowdowns = {};
  double tokens_per_s = 0;
  std::optional<double> efficiency;
};

// One line of JSON without its newline; for RecordWriter.
std::string to_json(const ScalingRecord& record);

}  // namespace lockstep::core
