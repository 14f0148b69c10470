// Safetensors files with checksums: header, reading, writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/input_file.h"
#include "core/output_file.h"

namespace lockstep::trainer {

// CRC-32 (ISO 3309, as in zlib and PNG): detects every changed bit and every burst of up to 32 bits, and misses other
// damage once in 2^32. It is not a signature: it does not protect against deliberate changes.

class Crc32 {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint32_t value() const { return value_; }

 private:
  std::uint32_t value_ = 0;
};

std::uint32_t crc32_of(std::string_view text);

// Eight lower-case hexadecimal digits.
std::string crc32_text(std::uint32_t value);
std::optional<std::uint32_t> parse_crc32(std::string_view text);

using core::InputFile;

std::string read_text(const std::string& path);
std::uint32_t crc32_of(const InputFile& file);

// The header of a safetensors file (https://github.com/huggingface/safetensors, "Format"):
//   8 bytes      N, unsigned, little-endian
//   N bytes      JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//                "__metadata__": {"any": "text"}}; begins with {, may end in spaces
//   the rest     tensors, row-major, little-endian; offsets count from here, and leave no holes

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

// Sets the position of each tensor: contiguous, in the order of the list.
void place_tensors(std::vector<TensorInfo>& tensors);

// N and the JSON, padded with spaces so that the data begin at a multiple of 8.
std::string header_text(const SafetensorsHeader& header);

inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

// Parses only the JSON. Every rule of the format is checked; throws an Error(wrong_data) that begins with `file`.
SafetensorsHeader parse_header(std::string_view json, std::int64_t data_bytes, const std::string& file);

// Files of named tensors in the safetensors format: written sequentially, read at any position.

struct FileSum {
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;
};

// The file gets its name with commit(), once it is completely on disk.
class SafetensorsWriter {
 public:
  // Sets the positions of the tensors: contiguous.
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                    std::map<std::string, std::string> metadata);
  // Writes the bytes of all tensors in their order, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  FileSum commit();  // once, when all bytes have been written

 private:
  void put(std::string_view text);
  void flush();

  core::AtomicFile file_;
  std::string waiting_;  // buffer, so that small pieces need no system calls of their own
  std::int64_t missing_bytes_ = 0;
  std::int64_t bytes_ = 0;
  Crc32 crc_;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;  // nullptr if there is none
  // Reads elements [begin, begin + into.size()) as f32. Throws a usage Error for dtypes other than F32, F16 and BF16.
  void read(const TensorInfo& tensor, std::int64_t begin, std::span<float> into) const;

 private:
  InputFile file_;
  SafetensorsHeader header_;
  std::int64_t data_begin_ = 0;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace lockstep::trainer
