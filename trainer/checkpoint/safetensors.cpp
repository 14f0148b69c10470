#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <zlib.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/record_json.h"

namespace lockstep::trainer {

void Crc32::add(std::span<const std::byte> bytes) {
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  value_ = static_cast<std::uint32_t>(crc32_z(value_, data, bytes.size()));
}

std::uint32_t crc32_of(std::string_view text) {
  Crc32 crc;
  crc.add(std::as_bytes(std::span(text)));
  return crc.value();
}

std::string crc32_text(std::uint32_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(8, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 4) *digit = kDigits[value & 15];
  return text;
}

std::optional<std::uint32_t> parse_crc32(std::string_view text) {
  std::uint32_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (result.ec != std::errc() || crc32_text(value) != text) return std::nullopt;  // only one spelling is valid
  return value;
}

std::string read_text(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::uint32_t crc32_of(const InputFile& file) {
  constexpr std::int64_t kBlockBytes = 1 << 20;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kBlockBytes, file.bytes())));
  Crc32 crc;
  for (std::int64_t begin = 0; begin < file.bytes(); begin += kBlockBytes) {
    const std::span part =
        std::span(block).first(static_cast<std::size_t>(std::min(kBlockBytes, file.bytes() - begin)));
    file.read(begin, part);
    crc.add(part);
  }
  return crc.value();
}

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMetadata = "__metadata__";

struct DTypeBits {
  std::string_view name;
  std::int64_t bits;
};
// The dtypes of safetensors 0.8.
constexpr std::array<DTypeBits, 22> kDTypes = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},      {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},        {"U64", 64},
}};

std::int64_t bits_of(std::string_view dtype) {
  const auto* const found = std::find_if(kDTypes.begin(), kDTypes.end(), [&](auto& d) { return d.name == dtype; });
  return found == kDTypes.end() ? 0 : found->bits;
}

std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

// Returns nothing if there are too many bits to count.
std::optional<std::int64_t> bits_of(const TensorInfo& tensor) {
  std::optional<std::int64_t> bits = bits_of(tensor.dtype);
  for (const std::int64_t n : tensor.shape) {
    if (bits) bits = product(*bits, n);
  }
  return bits;
}

// Reads one header. Error messages begin with the file.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  SafetensorsHeader read(std::string_view text, std::int64_t data_bytes) {
    if (text.empty() || text.front() != '{') refuse("its header does not begin with {");
    if (text.find('\0') != std::string_view::npos)
      refuse("its header has a byte 0");  // the parser takes it for the end
    const Json json = parse(text);
    SafetensorsHeader header;
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadata) {
        header.metadata = metadata(value);
      } else {
        header.tensors.push_back(tensor(name, value));
      }
    }
    check_places(header.tensors, data_bytes);
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw core::Error(core::Failure::wrong_data, file_ + " is not a complete safetensors file: " + why);
  }

  // The format allows each name once, but JSON parsers commonly take the last one.
  Json parse(std::string_view text) {
    std::vector<std::set<std::string>> names;  // names in the objects that are open
    const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > core::kDeepestJson) refuse("its header is nested too deeply");
      if (event == Json::parse_event_t::object_start) names.emplace_back();
      if (event == Json::parse_event_t::object_end) names.pop_back();
      if (event != Json::parse_event_t::key) return true;
      const auto& name = parsed.get_ref<const std::string&>();
      if (core::has_control_character(name))
        refuse("its header has the name " + parsed.dump() + ", a control character");
      if (!names.back().insert(name).second) refuse("its header has \"" + name + "\" twice");
      return true;
    };
    try {
      return Json::parse(text, check);
    } catch (const Json::parse_error& error) {  // its own text would show bytes that may not be text
      refuse("its header is not JSON from byte " + std::to_string(error.byte) + " on");
    } catch (const Json::exception& error) {
      refuse("its header is not JSON: " + core::reason_of(error));
    }
  }

  std::map<std::string, std::string> metadata(const Json& json) const {
    std::map<std::string, std::string> texts;
    if (json.is_null()) return texts;
    if (!json.is_object()) refuse("its metadata is not an object");
    for (const auto& [name, value] : json.items()) {
      if (!value.is_string()) refuse("its metadata have \"" + name + "\", which is not text");
      texts[name] = value.get<std::string>();
    }
    return texts;
  }

  std::vector<std::int64_t> numbers(const std::string& tensor, const Json& json, const char* field) const {
    const auto found = json.find(field);
    const bool is_list = found != json.end() && found->is_array();
    if (!is_list) refuse("tensor \"" + tensor + "\" has no list \"" + field + "\"");
    std::vector<std::int64_t> all;
    for (const Json& value : *found) {
      const bool fits = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
      if (!fits) refuse("tensor \"" + tensor + "\" has " + value.dump() + " in \"" + field + "\"; allowed: 0, 1, ...");
      all.push_back(value.get<std::int64_t>());
    }
    return all;
  }

  TensorInfo tensor(const std::string& name, const Json& json) const {
    if (!json.is_object()) refuse("tensor \"" + name + "\" is not an object");
    const auto dtype = json.find("dtype");
    if (dtype == json.end() || !dtype->is_string()) refuse("tensor \"" + name + "\" has no dtype");
    TensorInfo tensor{.name = name, .dtype = dtype->get<std::string>(), .shape = numbers(name, json, "shape")};
    if (bits_of(std::string_view(tensor.dtype)) == 0) {
      refuse("tensor \"" + name + "\" is of unknown dtype " + dtype->dump());
    }
    const std::vector<std::int64_t> offsets = numbers(name, json, "data_offsets");
    if (offsets.size() != 2) refuse("tensor \"" + name + "\" has " + std::to_string(offsets.size()) + " data_offsets");
    tensor.begin = offsets[0];
    tensor.end = offsets[1];
    check_size(tensor);
    return tensor;
  }

  void check_size(const TensorInfo& tensor) const {
    const std::optional<std::int64_t> bits = bits_of(tensor);
    const bool fits = bits && *bits % 8 == 0 && tensor.begin <= tensor.end && tensor.end - tensor.begin == *bits / 8;
    if (!fits) refuse("the data_offsets of tensor \"" + tensor.name + "\" do not fit its shape and dtype");
  }

  void check_places(std::vector<TensorInfo>& tensors, std::int64_t data_bytes) const {
    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::int64_t end = 0;
    for (const TensorInfo& tensor : tensors) {
      if (tensor.begin != end) {
        refuse("tensor \"" + tensor.name + "\" begins at byte " + std::to_string(tensor.begin) +
               " of the data, the one before it ends at " + std::to_string(end));
      }
      end = tensor.end;
    }
    if (end == data_bytes) return;
    refuse("it has " + std::to_string(data_bytes) + " bytes of data, its header has " + std::to_string(end));
  }

  const std::string& file_;
};

}  // namespace

std::int64_t TensorInfo::elems() const {
  std::int64_t all = 1;
  for (const std::int64_t n : shape) all *= n;
  return all;
}

void place_tensors(std::vector<TensorInfo>& tensors) {
  std::int64_t end = 0;
  for (TensorInfo& tensor : tensors) {
    const std::int64_t bits = bits_of(tensor).value_or(0);
    LOCKSTEP_CHECK(bits_of(std::string_view(tensor.dtype)) != 0 && bits % 8 == 0, "a dtype of safetensors");
    tensor.begin = end;
    tensor.end = end + bits / 8;
    end = tensor.end;
  }
}

std::string header_text(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const TensorInfo& t : header.tensors) {
    LOCKSTEP_CHECK(t.name != kMetadata && !json.contains(t.name), "a tensor's name is there once");
    json[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (std::uint64_t n = text.size(), k = 0; k < 8; ++k, n >>= 8) length += static_cast<char>(n & 255);
  return length + text;
}

SafetensorsHeader parse_header(std::string_view json, std::int64_t data_bytes, const std::string& file) {
  return HeaderReader(file).read(json, data_bytes);
}

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
