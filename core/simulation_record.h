// The record of a training step that was predicted for a machine (docs/record_format.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule_record.h"

namespace lockstep::core {

struct SimulationRecord {
  std::string run;
  std::string program;
  std::string model;
  std::vector<std::pair<std::string, double>> model_numbers;  // "layers", "hidden", ...
  std::int64_t parameters = 0;
  std::string layout;                                  // "tp=8,pp=64,dp=6,..."
  std::map<std::string, std::int64_t> layout_numbers;  // "tp", "pp", "dp", ...
  std::string schedule;
  std::string machine;
  std::int64_t ranks = 1;
  std::int64_t global_batch = 1;
  double step_ms = 0;
  // Of the rank that computes longest; together the step. In the order in which they are drawn.
  std::vector<std::pair<std::string, double>> parts_ms;
  BubblesRecord bubbles;
  double mfu = 0;
  double hfu = 0;
  std::string flop_convention;
  double model_tflops_a_gpu = 0;  // model FLOPs a second, as papers print it
  double hardware_tflops_a_gpu = 0;
  double tokens_per_s = 0;
  std::vector<std::pair<std::string, double>> memory_bytes;  // by kind, of the rank that needs most; "total"
  double capacity_bytes = 0;
  bool fits = true;
  std::vector<std::pair<std::string, double>> sent_bytes;  // by the rank of `parts_ms`, by kind
  std::int64_t events = 0;
  double engine_s = 0;  // of wall_s, that the simulation alone took
  double wall_s = 0;    // that the prediction took
  std::optional<TimelineRecord> timeline;
  std::optional<MemoryRecord> memory;
};

std::string to_json(const SimulationRecord& record);

}  // namespace lockstep::core
