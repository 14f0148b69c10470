// The record of a tensor-parallel layer on its ranks: times by way, and bytes sent (docs/record_format.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/training_record.h"

namespace lockstep::core {

// One way of running one direction, turn by turn, of the slowest rank.
struct LayerTimeRecord {
  std::string direction;           // "forward", "backward"
  std::string way;                 // "kernels", "communication", "serial", "async"
  std::vector<double> samples_us;  // `stats` is summarize(samples_us)
  NamedNumbers parts_us;           // of the turn in the median: "products", "other_kernels", "communication"
  // Over the kernels of the same turn; of ways that have both. Negative where both together took less.
  std::vector<double> exposed_us;
};

struct LayerRecord {
  std::string run;
  std::string program;
  std::string basis;
  std::string layer;  // "column", "mlp", ...
  int ranks = 1;
  int threads = 1;  // of kernels, a rank
  bool sequence_parallel = false;
  int tiles = 1;
  std::string dtype;
  NamedNumbers sizes;  // batch, length, hidden, heads, vocabulary
  std::string algorithm;
  std::vector<LayerTimeRecord> times;
  // In a forward and a backward, mean of the ranks.
  double sent_bytes = 0;
  double formula_bytes = 0;
  std::int64_t checked_passes = 0;  // forwards with their backwards, of which all results were compared
  std::int64_t wrong = 0;           // elements further from one rank's than rounding explains
  std::int64_t unlike = 0;          // elements with other bits than in one tile, one after the other
  std::string status = "ok";        // or "wrong"
  std::optional<std::string> error;
};

// One line of JSON without its newline; for RecordWriter.
std::string to_json(const LayerRecord& record);

}  // namespace lockstep::core
