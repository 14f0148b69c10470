// The bytes of Chakra's files: the part of protobuf's wire format that they use.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/record_json.h"
#include "schedules/step/traces.h"

namespace lockstep::schedules {
namespace {

constexpr std::string_view kVersion = "0.0.4";

// Numbers of the fields in et_def.proto.
namespace field {
constexpr std::uint32_t kVersion = 1, kMetadataAttribute = 2;
constexpr std::uint32_t kId = 1, kName = 2, kType = 3, kControl = 4, kData = 5, kStart = 6, kDuration = 7, kInputs = 8,
                        kAttribute = 10;
constexpr std::uint32_t kValues = 1;  // a field in IOInfo, and in lists
constexpr std::uint32_t kAttributeName = 1, kDescription = 2, kDouble = 3, kFloat = 5, kInt32 = 7, kInt64 = 9,
                        kSint32 = 15, kSint64 = 17, kSfixed32 = 23, kBool = 27, kBoolList = 28, kString = 29;
}  // namespace field

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

class MessageWriter {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3U | static_cast<std::uint32_t>(Wire::varint));
    varint(value);
  }
  void text(std::uint32_t field, std::string_view value) {
    varint(field << 3U | static_cast<std::uint32_t>(Wire::bytes));
    delimited(value);
  }
  void delimited(std::string_view value) {
    varint(value.size());
    bytes_ += value;
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>((value & 0x7fU) | 0x80U);
    bytes_ += static_cast<char>(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Chakra's own tools read these attributes with these types; all others are int64.
std::uint32_t type_of_number(const std::string& name) {
  if (name == "is_cpu_op") return field::kBool;
  if (name == "comm_src" || name == "comm_dst" || name == "comm_tag" || name == "comm_priority") return field::kInt32;
  return field::kInt64;
}

std::string to_message(const ChakraNode& node) {
  MessageWriter message;
  message.number(field::kId, node.id);
  message.text(field::kName, node.name);
  message.number(field::kType, static_cast<std::uint64_t>(node.type));
  MessageWriter packed;
  for (const std::uint64_t node_id : node.dependencies) packed.varint(node_id);
  if (!node.dependencies.empty()) message.text(field::kData, packed.bytes());
  if (node.duration_us > 0) message.number(field::kDuration, static_cast<std::uint64_t>(node.duration_us));
  for (const auto& [name, value] : node.numbers) {
    MessageWriter attribute;
    attribute.text(field::kAttributeName, name);
    attribute.number(type_of_number(name), static_cast<std::uint64_t>(value));
    message.text(field::kAttribute, attribute.bytes());
  }
  for (const auto& [name, value] : node.texts) {
    MessageWriter attribute;
    attribute.text(field::kAttributeName, name);
    attribute.text(field::kString, value);
    message.text(field::kAttribute, attribute.bytes());
  }
  return message.bytes();
}

struct ProtobufField {
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;  // varint, fixed32 and fixed64
  std::string_view bytes;   // length-delimited
};

// Takes a message apart, field by field. Throws a usage Error that begins with `where`.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  std::optional<ProtobufField> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t key = varint();
    const auto number = static_cast<std::uint32_t>(key >> 3U);
    const auto wire = static_cast<Wire>(key & 7U);
    if (wire == Wire::varint) return ProtobufField{number, wire, varint(), {}};
    if (wire == Wire::fixed64) return ProtobufField{number, wire, fixed(8), {}};
    if (wire == Wire::fixed32) return ProtobufField{number, wire, fixed(4), {}};
    if (wire == Wire::bytes) return ProtobufField{number, wire, 0, delimited()};
    throw broken("has a field of an unknown wire type");
  }

  bool empty() const { return rest_.empty(); }
  std::string_view delimited() { return taken(varint()); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (std::uint32_t shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(taken(1).front());
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) return value;
    }
    throw broken("has a number of more than 64 bits");
  }

 private:
  std::uint64_t fixed(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view bytes = taken(size);
    for (std::size_t i = size; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string_view taken(std::uint64_t size) {
    if (size > rest_.size()) throw broken("ends within a message");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  core::Error broken(const std::string& what) const {
    return core::usage_error(where_ + ": " + what + "; allowed: a Chakra execution trace (protobuf, not compressed)");
  }

  std::string_view rest_;
  const std::string& where_;
};

std::optional<std::int64_t> whole(double value) {
  const bool fits = value >= -0x1p62 && value <= 0x1p62 && std::nearbyint(value) == value;
  return fits ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;
}

// Repeated numbers of one field, packed or not.
template <class Add>
void for_numbers(const ProtobufField& field, const std::string& where, const Add& add) {
  if (field.wire == Wire::varint) return add(field.value);
  MessageReader packed(field.bytes, where);
  while (!packed.empty()) add(packed.varint());
}

std::optional<std::int64_t> number_of(const ProtobufField& field) {
  const bool is_list = field.number % 2 == 0;  // a list has the number after its type's
  if (is_list || field.number < field::kDouble || field.number > field::kBool) return std::nullopt;
  if (field.number == field::kDouble) return whole(std::bit_cast<double>(field.value));
  if (field.number == field::kFloat) return whole(std::bit_cast<float>(static_cast<std::uint32_t>(field.value)));
  if (field.number == field::kSfixed32) return static_cast<std::int32_t>(static_cast<std::uint32_t>(field.value));
  const bool is_zigzag = field.number == field::kSint32 || field.number == field::kSint64;
  return static_cast<std::int64_t>(is_zigzag ? field.value >> 1U ^ (~(field.value & 1U) + 1U) : field.value);
}

void add_attribute(ChakraNode& node, std::string_view bytes, const std::string& where) {
  MessageReader message(bytes, where);
  std::string name;
  std::optional<std::int64_t> number;
  std::optional<std::string> text;
  std::vector<bool> flags;
  while (const auto entry = message.next()) {
    if (entry->number == field::kAttributeName) {
      name = entry->bytes;
    } else if (entry->number == field::kString) {
      text = std::string(entry->bytes);
    } else if (entry->number == field::kBoolList) {
      MessageReader list(entry->bytes, where);
      while (const auto values = list.next()) {
        if (values->number == field::kValues)
          for_numbers(*values, where, [&](std::uint64_t value) { flags.push_back(value != 0); });
      }
    } else if (entry->number != field::kDescription) {
      number = number_of(*entry);
    }
  }
  if (number) node.numbers[name] = *number;
  if (text) node.texts[name] = *text;
  if (name == "involved_dim") node.involved_dim = flags;
  if (!number && !text && (name != "involved_dim" || flags.empty())) node.unread.push_back(name);
}

ChakraType type_of(std::uint64_t value, const std::string& where) {
  if (value <= static_cast<std::uint64_t>(ChakraType::comm_coll)) return static_cast<ChakraType>(value);
  constexpr std::array<std::string_view, 3> kLater{"STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE"};
  const std::uint64_t later = value - 1 - static_cast<std::uint64_t>(ChakraType::comm_coll);
  const std::string name(later < kLater.size() ? kLater[later] : "a type of a newer schema");
  throw core::usage_error(where + ": node type " + std::to_string(value) + " (" + name +
                          ") is not read; allowed: compute, memory, communication and metadata nodes (0 to 7)");
}

ChakraNode to_node(std::string_view bytes, const std::string& file) {
  ChakraNode node;
  std::string where = file;
  node.type = ChakraType::invalid;
  MessageReader message(bytes, where);
  while (const auto entry = message.next()) {
    if (entry->number > field::kAttribute || (entry->number == field::kStart && entry->wire != Wire::varint)) {
      throw core::usage_error(fmt::format(
          "{}: field {} is not one of schema {} (traces of 2023 have attributes in field 11, and later ones storage); "
          "allowed: fields 1 to 10",
          where, entry->number, kVersion));
    }
    if (entry->number == field::kId) {
      node.id = entry->value;
      where = file + ", node " + std::to_string(node.id);
    }
    if (entry->number == field::kName) node.name = entry->bytes;
    if (entry->number == field::kType) node.type = type_of(entry->value, where);
    if (entry->number == field::kControl || entry->number == field::kData) {
      for_numbers(*entry, where, [&](std::uint64_t id) { node.dependencies.push_back(id); });
    }
    if (entry->number == field::kStart && entry->value > 0) node.unread.emplace_back("start_time_micros");
    if (entry->number == field::kDuration) node.duration_us = static_cast<std::int64_t>(entry->value);
    if (entry->number == field::kAttribute) add_attribute(node, entry->bytes, where);
    if (entry->number != field::kInputs) continue;  // outputs are names of tensors, as the rest of the inputs
    MessageReader inputs(entry->bytes, where);
    while (const auto value = inputs.next()) {
      if (value->number == field::kValues) node.input_values = value->bytes;
    }
  }
  return node;
}

// The version is a field, or the end of the attribute `schema`: "1.1.1-chakra.0.0.4" in traces made from PyTorch's. The
// first files with today's fields (2024) have no version, and attributes in its place; Chakra's text converter called
// the same fields 1.0.0 there.
void check_metadata(std::string_view bytes, const std::string& file) {
  MessageReader message(bytes, file);
  std::string version;
  ChakraNode attributes;
  while (const auto entry = message.next()) {
    if (entry->number == field::kVersion && entry->wire == Wire::varint) {
      throw core::usage_error(file + ": begins without Chakra's GlobalMetadata; allowed: schema version " +
                              std::string(kVersion));
    }
    const bool is_attribute = entry->bytes.starts_with('\n');  // the key of its name
    if (entry->number == field::kVersion && !is_attribute) version = entry->bytes;
    if (entry->number <= field::kMetadataAttribute && is_attribute) add_attribute(attributes, entry->bytes, file);
  }
  constexpr std::string_view kMark = "-chakra.";
  const std::string& schema = attributes.texts["schema"];
  if (const std::size_t mark = schema.find(kMark); mark != std::string::npos && version.empty()) {
    version = schema.substr(mark + kMark.size());
    if (version == "1.0.0") return;
  }
  if (version.empty() || version == kVersion) return;
  throw core::usage_error(file + ": is of Chakra's schema version " +
                          nlohmann::json(version).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                          "; allowed: " + std::string(kVersion));
}

}  // namespace

std::string to_chakra_file(const std::vector<ChakraNode>& nodes) {
  MessageWriter metadata;
  metadata.text(field::kVersion, kVersion);
  MessageWriter file;
  file.delimited(metadata.bytes());
  for (const ChakraNode& node : nodes) file.delimited(to_message(node));
  return file.bytes();
}

std::vector<ChakraNode> parse_chakra_file(std::string_view bytes, const std::string& file) {
  MessageReader messages(bytes, file);
  check_metadata(messages.delimited(), file);
  std::vector<ChakraNode> nodes;
  while (!messages.empty()) nodes.push_back(to_node(messages.delimited(), file));
  return nodes;
}

std::string to_chakra_groups(const ChakraGroups& groups) {
  std::string text = "{";
  for (const auto& [name, ranks] : groups) {
    text += (text.size() > 1 ? ",\n" : "\n") + nlohmann::json(name).dump() + ": " + nlohmann::json(ranks).dump();
  }
  return text + "\n}\n";
}

ChakraGroups parse_chakra_groups(const std::string& text, const std::string& file) {
  constexpr const char* kAllowed = "; allowed: a JSON object of lists of ranks, such as {\"1\": [0, 1]}";
  nlohmann::json json;
  try {
    json = core::parse_json(text, file);
  } catch (const core::Error& error) {
    throw core::usage_error(error.what() + std::string(kAllowed));
  }
  if (!json.is_object()) throw core::usage_error(file + ": not a file of communicator groups" + kAllowed);
  ChakraGroups groups;
  for (const auto& [name, ranks] : json.items()) {
    const auto is_rank = [](const nlohmann::json& value) {
      return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
    };
    if (!ranks.is_array() || ranks.empty() || !std::all_of(ranks.begin(), ranks.end(), is_rank)) {
      throw core::usage_error(fmt::format("{}: group {} is not a list of ranks{}", file, name, kAllowed));
    }
    groups[name] = ranks.get<std::vector<std::int32_t>>();
  }
  return groups;
}

std::string chakra_file_name(const std::string& prefix, std::size_t rank) {
  return prefix + "." + std::to_string(rank) + ".et";
}

}  // namespace lockstep::schedules
