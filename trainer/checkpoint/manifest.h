// The manifest of a checkpoint: tensors, pieces, files, and the folder that they are in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {

// Whole tensors, the ranks' pieces of tensors, and a check that pieces make up the whole.

using Shape = std::vector<std::int64_t>;
std::int64_t elems_of(const Shape& shape);
std::string shape_text(const Shape& shape);  // "[2, 3]"

struct WholeTensor {
  std::string name;
  Shape shape;
};

// Elements of a tensor, flattened by rows, that a rank has contiguously in host memory. (The counterpart of
// parallel::ParameterStore::Run for one state of the optimizer.)
struct Piece {
  std::size_t tensor = 0;  // index in a list of whole tensors
  std::int64_t whole_begin = 0;
  std::int64_t count = 0;
  float* data = nullptr;
};

struct Interval {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const Interval&) const = default;
};

// Intervals of equal length and distance, such as some columns of a matrix: `times` intervals, `stride` apart.
struct IntervalRow {
  Interval first;
  std::int64_t stride = 0;
  std::int64_t times = 1;

  bool operator==(const IntervalRow&) const = default;
};
std::vector<IntervalRow> fold(const std::vector<Interval>& intervals);
std::vector<Interval> unfold(const std::vector<IntervalRow>& rows);

// A set of elements.
class IntervalSet {
 public:
  // Adds an interval and returns its parts that were not in the set before, ascending.
  std::vector<Interval> add(const Interval& interval);

 private:
  std::map<std::int64_t, std::int64_t> end_by_begin_;  // intervals that neither overlap nor touch
};

// Returns an empty text if the intervals contain each of the elements [0, elems) exactly once, otherwise a description
// of the first element that they do not.
std::string why_not_whole(std::vector<Interval> intervals, std::int64_t elems);

// The run that a checkpoint is of, and the tensors in each of its files. Written last, as manifest.json: a folder with
// a manifest that fits its own checksum is a whole checkpoint.
//
//   {"format": "lockstep-checkpoint", "version": 1, "step": 10, "model": {"layers": 2, ...}, "layout": {...},
//    "integers": {...}, "reals": {...}, "tensors": {"master.wte.weight": [256, 64], ...},
//    "files": [{"name": "rank-00000.safetensors", "bytes": 123, "crc32": "0123abcd",
//               "runs": {"master.wte.weight": [[begin, count], [begin, count, stride, times], ...], ...}}, ...],
//    "crc32": "89abcdef"}            of all bytes before this last line
//
// For each tensor that it names, a file has the concatenated elements of the runs, as F32.

using Integers = std::map<std::string, std::int64_t>;

// Facts that a trainer stores and reads back.
struct Manifest {
  std::int64_t step = 0;  // number of steps done
  Integers model = {};    // must be equal to continue the run
  std::map<std::string, std::string> layout =
      {};                                    // layout of the writers, for information only: any layout can read it
  Integers integers = {};                    // tokens seen, seed, position in the data, ...
  std::map<std::string, double> reals = {};  // finite
};

struct FileEntry {
  std::string name;
  FileSum sum = {};
  std::map<std::string, std::vector<Interval>> runs = {};  // by tensor
};

struct Contents {
  Manifest manifest;
  std::map<std::string, Shape> tensors = {};
  std::vector<FileEntry> files = {};
};

std::string contents_text(const Contents& contents);
// Throws an Error that begins with `file`: wrong_data, or a usage Error for another format or version.
Contents parse_contents(std::string_view text, const std::string& file);

// Throws an Error(wrong_data) that begins with `file` unless every element of every tensor is in exactly one file.
void check_whole(const Contents& contents, const std::string& file);

// The tensors and files of one rank as text, which the rank sends to the others.
std::string part_text(const Contents& part);
Contents parse_part(std::string_view text);

// The folder of a run's checkpoints:
//   step-00000010/           a complete checkpoint: it gets this name once it is completely on disk
//   step-00000020.partial/   one being written or removed, now or when its writer was killed
//   latest                   name of the last one written, and the CRC-32 of that name: "step-00000010 0123abcd"

std::string checkpoint_name(std::int64_t step);  // "step-00000010"
std::string partial_folder(const std::string& folder, std::int64_t step);

// ---- for the one rank that does this
// Removes leftovers of writers that were killed, and makes an empty partial folder (and the folder itself if needed).
void begin_checkpoint(const std::string& folder, std::int64_t step);
// Turns the partial folder into the checkpoint, replacing an older one of the same step, and points `latest` to it. Of
// the others, all but the `keep` - 1 written last are removed. A kill at any moment leaves `latest` naming a complete
// one.
void publish_checkpoint(const std::string& folder, std::int64_t step, std::int32_t keep);
void abandon_checkpoint(const std::string& folder, std::int64_t step);

// ---- for all readers
// Returns the checkpoint at a path: itself, or the latest in the folder; nothing if the folder does not exist or has
// none. Throws an Error if `latest` is damaged or names a checkpoint that does not exist.
std::optional<std::string> find_checkpoint(const std::string& path);

}  // namespace lockstep::trainer
