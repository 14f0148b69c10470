// The record of a training run and of where the time of one of its steps went (docs/record_format.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule_record.h"

namespace lockstep::core {

using NamedNumbers = std::vector<std::pair<std::string, double>>;  // in the order in which they are drawn

struct ModelRecord {
  std::string name;
  NamedNumbers numbers;  // "layers", "hidden", ...
  std::int64_t parameters = 0;
};

struct LayoutRecord {
  std::string text;                             // "dp=2,zero=1"
  std::map<std::string, std::int64_t> numbers;  // "dp", "tp", ...
};

struct TrainingStepRecord {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // nats a token
  double norm = 0;        // of the gradients, before clipping
  double rate = 0;        // learning rate
  bool skipped = false;   // gradients were not finite
  double ms = 0;
  double tokens_per_s = 0;
  double mfu = 0;
};

struct ValidationRecord {
  std::int64_t step = 0;
  double loss = 0;  // nats a token
};

// The implementation that computed the products of matrices, on the CPU.
struct GemmRecord {
  std::string implementation;  // "amx", "packed", "onednn", "per-shape"
  std::string chosen_by;       // "probe", "flag", "checkpoint"
  NamedNumbers probe_us;       // a round of the probe by implementation; empty without one
};

// Of the devices that ranks were on, as a whole: GPUs by NVML, CPU packages by RAPL.
struct EnergyRecord {
  std::string source;  // "nvml", "rapl"
  int devices = 0;
  std::int64_t steps = 0;  // that were counted: all but the first
  double seconds = 0;      // that these took
  double joules_a_step = 0;
  double watts = 0;
  double tokens_per_joule = 0;
};

struct TrainingRecord {
  std::string run;
  std::string program;
  std::string basis;
  ModelRecord model;
  LayoutRecord layout;
  std::string schedule;
  std::string dtype;
  int ranks = 1;
  int threads = 1;  // a rank
  std::string data;
  std::int64_t tokens_a_step = 0;
  std::string flop_convention;
  double peak_flops = 0;  // of all cores together
  std::vector<TrainingStepRecord> steps;
  std::vector<ValidationRecord> validations;
  double unigram_loss = 0;  // of the validation text, by counting: what a model has to beat
  double bigram_loss = 0;
  std::int64_t timed_step = 0;  // that parts_ms and the timeline are of
  NamedNumbers parts_ms;        // mean of the ranks, together the time from the first task to the last
  bool graph = false;           // the step is a CUDA graph
  std::optional<GemmRecord> gemm = std::nullopt;
  std::optional<EnergyRecord> energy = std::nullopt;
  NamedNumbers memory_bytes;  // by kind, of the fullest rank at its peak; "total"
  TimelineRecord timeline;
};

// One line of JSON without its newline; for RecordWriter.
std::string to_json(const TrainingRecord& record);

}  // namespace lockstep::core
