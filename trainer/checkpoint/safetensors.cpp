#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "core/error.h"
#include "core/narrow_float.h"

namespace lockstep::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kWriteBytes = 1 << 20;

std::int64_t header_bytes(const InputFile& file) {
  const auto refuse = [&](const std::string& why) -> core::Error {
    return {core::Failure::wrong_data, file.path() + " is not a complete safetensors file: " + why};
  };
  if (file.bytes() < 8) throw refuse("it has " + std::to_string(file.bytes()) + " bytes");
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > std::uint64_t{kMaxHeaderBytes})
    throw refuse("its header would have " + std::to_string(length) + " bytes");
  const auto bytes = static_cast<std::int64_t>(length);
  if (bytes > file.bytes() - 8) {
    throw refuse("its header has " + std::to_string(bytes) + " bytes, the file " + std::to_string(file.bytes()));
  }
  return bytes;
}

SafetensorsHeader read_header(const InputFile& file) {
  std::string json(static_cast<std::size_t>(header_bytes(file)), '\0');
  file.read(8, std::as_writable_bytes(std::span(json)));
  return parse_header(json, file.bytes() - 8 - static_cast<std::int64_t>(json.size()), file.path());
}

// Converts elements of 2 bytes, one block at a time.
template <class Narrow>
void read_narrow(const InputFile& file, std::int64_t begin, std::span<float> into) {
  std::array<Narrow, 4096> block{};
  while (!into.empty()) {
    const std::span part = std::span(block).first(std::min(block.size(), into.size()));
    file.read(begin, std::as_writable_bytes(part));
    std::transform(part.begin(), part.end(), into.begin(), [](Narrow x) { return core::to_float(x); });
    begin += static_cast<std::int64_t>(part.size_bytes());
    into = into.subspan(part.size());
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     std::map<std::string, std::string> metadata)
    : file_(path) {
  place_tensors(tensors);
  missing_bytes_ = tensors.empty() ? 0 : tensors.back().end;
  put(header_text({std::move(tensors), std::move(metadata)}));
}

void SafetensorsWriter::put(std::string_view text) {
  waiting_ += text;
  if (waiting_.size() >= kWriteBytes) flush();
}

void SafetensorsWriter::flush() {
  crc_.add(std::as_bytes(std::span(waiting_)));
  bytes_ += static_cast<std::int64_t>(waiting_.size());
  file_.write(waiting_);
  waiting_.clear();
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  missing_bytes_ -= static_cast<std::int64_t>(bytes.size());
  LOCKSTEP_CHECK(missing_bytes_ >= 0, "more bytes than the tensors have");
  while (!bytes.empty()) {  // a large piece is not copied at once
    const auto part = bytes.first(std::min(bytes.size(), kWriteBytes));
    put({reinterpret_cast<const char*>(part.data()), part.size()});
    bytes = bytes.subspan(part.size());
  }
}

FileSum SafetensorsWriter::commit() {
  LOCKSTEP_CHECK(missing_bytes_ == 0, "fewer bytes than the tensors have");
  flush();
  file_.commit();
  return {bytes_, crc_.value()};
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path), header_(read_header(file_)) {
  const std::int64_t data_bytes = header_.tensors.empty() ? 0 : header_.tensors.back().end;
  data_begin_ = file_.bytes() - data_bytes;
  for (std::size_t k = 0; k < header_.tensors.size(); ++k) by_name_[header_.tensors[k].name] = k;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, std::int64_t begin, std::span<float> into) const {
  LOCKSTEP_CHECK(0 <= begin && begin + static_cast<std::int64_t>(into.size()) <= tensor.elems(), "within the tensor");
  const std::int64_t data = data_begin_ + tensor.begin;
  if (tensor.dtype == "F32") return file_.read(data + 4 * begin, std::as_writable_bytes(into));
  if (tensor.dtype == "F16") return read_narrow<core::Float16>(file_, data + 2 * begin, into);
  if (tensor.dtype == "BF16") return read_narrow<core::BFloat16>(file_, data + 2 * begin, into);
  throw core::usage_error(path() + ": tensor \"" + tensor.name + "\" is of dtype " + tensor.dtype +
                          "; allowed: F32, F16, BF16");
}

}  // namespace lockstep::trainer
