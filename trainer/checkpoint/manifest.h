// The run that a checkpoint is of, and the tensors in each of its files. Written last, as manifest.json: a folder with
// a manifest that fits its own checksum is a whole checkpoint.
//
//   {"format": "lockstep-checkpoint", "version": 1, "step": 10, "model": {"layers": 2, ...}, "layout": {...},
//    "integers": {...}, "reals": {...}, "tensors": {"master.wte.weight": [256, 64], ...},
//    "files": [{"name": "rank-00000.safetensors", "bytes": 123, "crc32": "0123abcd",
//               "runs": {"master.wte.weight": [[begin, count], [begin, count, stride, times], ...], ...}}, ...],
//    "crc32": "89abcdef"}            of all bytes before this last line
//
// A file has, of each tensor that it names, the elements of the runs one after the other, as F32.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/pieces.h"
#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {

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

}  // namespace lockstep::trainer
