// Tuning files of vendor libraries, from what `tune` has measured: pure functions from measured points to text.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/tuning/tuning.h"

namespace lockstep::tuned_files {

struct TunedFile {
  std::string text;
  std::vector<std::string> left_out;  // a line for each collective that the format cannot tune, and why
  int rules = 0;                      // rows that choose an algorithm
};

// Sizes for which one algorithm is the best. Between two measured sizes the limit is their geometric mean; the
// outermost measured sizes stand for half a step beyond themselves.
struct Range {
  std::int64_t first_bytes;
  std::int64_t last_bytes;
  std::string algorithm;
  friend bool operator==(const Range&, const Range&) = default;
};
// `points` are of one collective and number of ranks, in any order. Neighbours with one algorithm are one range.
std::vector<Range> ranges_of(std::span<const tuning::Entry> points);

// Configuration of NCCL's example tuner plugin, as in NCCL 2.27 to 2.30 (ext-tuner/example/README.md): a row
//   collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
// for each range of a point's entry "library:algo=ring:proto=ll128" of the transport nccl. Bytes are the larger of
// input and output, as in algbw. channels: of each row; 0 for NCCL's own number (its getAlgoInfo takes the plugin's
// only if it is not 0), where the plugin's README has -1, which the plugin turns into 1.
TunedFile nccl_tuner_file(std::span<const tuning::Entry> entries, int channels);

// Number of an algorithm in Open MPI's settings; nothing if the library has no algorithm of that name.
using AlgorithmId = std::function<std::optional<int>(collectives::Kind, std::string_view name)>;

// Rules that Open MPI's component coll/tuned reads (coll_tuned_dynamic_rules_filename), in the format of 4.x that 5.0
// reads too (its coll_tuned_dynamic_file.c, without the line rule-file-version): numbers only, comments after #. From
// the entries "library:algorithm=ring" of the transport mpi. Sizes and numbers of ranks that were not measured are left
// to Open MPI's own decision. Throws Error for an algorithm without a number.
TunedFile openmpi_rules_file(std::span<const tuning::Entry> entries, const AlgorithmId& id_of);

}  // namespace lockstep::tuned_files
