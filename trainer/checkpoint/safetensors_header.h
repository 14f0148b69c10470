// The header of a safetensors file (https://github.com/huggingface/safetensors, "Format"):
//   8 bytes      N, unsigned, little-endian
//   N bytes      JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//                "__metadata__": {"any": "text"}}; begins with {, may end in spaces
//   the rest     tensors, row-major, little-endian; offsets count from here, and leave no holes
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::trainer {

struct TensorInfo {
  std::string name;
  std::string dtype;  // as the format spells it: "F32", "F16", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // first byte in the data
  std::int64_t end = 0;    // one past the last byte

  std::int64_t elems() const;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of the data, which has no gaps
  std::map<std::string, std::string> metadata;
};

// Sets the position of each tensor: one after the other in the order of the list.
void place_tensors(std::vector<TensorInfo>& tensors);

// N and the JSON, padded with spaces so that the data begin at a multiple of 8.
std::string header_text(const SafetensorsHeader& header);

inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

// Parses only the JSON. Every rule of the format is checked; throws an Error(wrong_data) that begins with `file`.
SafetensorsHeader parse_header(std::string_view json, std::int64_t data_bytes, const std::string& file);

}  // namespace lockstep::trainer
