// The record of training steps with one stage of ZeRO: bytes that a rank holds and sends (docs/record_format.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/training_record.h"

namespace lockstep::core {

struct ShardingRecord {
  std::string run;
  std::string program;
  std::string basis;
  ModelRecord model;
  int ranks = 1;
  int threads = 1;  // a rank
  int zero_stage = 0;
  int shard_ranks = 1;  // that share a set of shards; the others have replicas of it
  bool prefetch = true;
  std::string dtype;
  std::string gradient_dtype;
  int microbatches = 1;
  std::int64_t padded_elems = 0;  // of all buckets
  // By kind, of a rank. The formulas are of the padded elements.
  NamedNumbers held_bytes;
  NamedNumbers peak_bytes;  // each kind's own; "total": of all together
  NamedNumbers formula_bytes;
  // By what is sent: "weights" and "gradients" in a set of shards, gradients "over_replicas" of it; of a rank in a
  // step.
  NamedNumbers sent_bytes;
  NamedNumbers formula_sent_bytes;
  std::string status = "ok";  // or "wrong"
  std::optional<std::string> error;
  std::vector<double> samples_ms;  // `stats` of the line is summarize(samples_ms)
};

// One line of JSON without its newline; for RecordWriter.
std::string to_json(const ShardingRecord& record);

}  // namespace lockstep::core
