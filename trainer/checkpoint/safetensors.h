// Files of named tensors in the safetensors format (safetensors_header.h): written sequentially, read at any position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/atomic_file.h"
#include "trainer/checkpoint/crc32.h"
#include "trainer/checkpoint/input_file.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace lockstep::trainer {

struct FileSum {
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;
};

// The file gets its name with commit(), once all of it is on disk.
class SafetensorsWriter {
 public:
  // Sets the positions of the tensors: one after the other.
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
