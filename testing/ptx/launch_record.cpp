#include "testing/ptx/launch_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>

#include "core/error.h"
#include "core/options.h"
#include "core/record_json.h"

namespace lockstep::ptx {
namespace {

using core::Json;
using Bytes = std::vector<std::byte>;

std::string hex_of(const Bytes& bytes) {
  std::string text;
  for (const std::byte one : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(one));
  return text;
}

Bytes bytes_of_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Bytes bytes_of_text(const std::string& text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

template <class T>
void append(Bytes& bytes, const Json& value) {
  const T number = value.get<T>();
  const auto* const from = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), from, from + sizeof number);
}

// Numbers of a named type: {"f32": 1.5} or {"i64": [1, 2]}. Nothing if the object has none.
std::optional<Bytes> numbers_of(const Json& object) {
  static const std::map<std::string, void (*)(Bytes&, const Json&)> kTypes{
      {"u8", append<std::uint8_t>},  {"i32", append<std::int32_t>},  {"u32", append<std::uint32_t>},
      {"i64", append<std::int64_t>}, {"u64", append<std::uint64_t>}, {"f32", append<float>},
      {"f64", append<double>}};
  for (const auto& [name, append_number] : kTypes) {
    if (!object.contains(name)) continue;
    const Json& value = object.at(name);
    Bytes bytes;
    for (const Json& number : value.is_array() ? value : Json::array({value})) append_number(bytes, number);
    return bytes;
  }
  return std::nullopt;
}

void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Json extent_json(const cuda_stand_in::Extent& extent) {
  return {extent.x, extent.y, extent.z};
}

// A number, or a list of up to three.
cuda_stand_in::Extent extent_of(const Json& record, const char* name) {
  cuda_stand_in::Extent extent;
  if (!record.contains(name)) return extent;
  const Json& value = record.at(name);
  const Json list = value.is_array() ? value : Json::array({value});
  unsigned* const to[] = {&extent.x, &extent.y, &extent.z};
  for (std::size_t i = 0; i < std::min<std::size_t>(3, list.size()); ++i) *to[i] = list[i].get<unsigned>();
  return extent;
}

// Contents: the name of a file in the record's folder, or numbers, which are repeated.
Bytes contents_of(const Json& value, const std::filesystem::path& folder, std::size_t size_bytes) {
  const auto numbers = value.is_object() ? numbers_of(value) : std::nullopt;
  if (!numbers) {
    return bytes_of_text(
        core::bytes_of_file((folder / value.get<std::string>()).string(), "a file of a buffer's bytes"));
  }
  Bytes bytes = *numbers;
  while (!numbers->empty() && bytes.size() < size_bytes) bytes.insert(bytes.end(), numbers->begin(), numbers->end());
  return bytes;
}

LaunchBuffer buffer_of(const std::string& name, const Json& json, const std::filesystem::path& folder) {
  LaunchBuffer buffer{.name = name, .before = Bytes(json.at("bytes").get<std::size_t>()), .initialized = {}};
  const auto filled = [&](const char* what) {
    Bytes bytes = contents_of(json.at(what), folder, buffer.before.size());
    if (bytes.size() != buffer.before.size()) {
      throw core::usage_error(fmt::format("buffer {}: {} has {} bytes; allowed: its {} bytes", name, what, bytes.size(),
                                          buffer.before.size()));
    }
    return bytes;
  };
  if (json.contains("before")) {
    buffer.before = filled("before");
    buffer.initialized = {{0, buffer.before.size()}};
  }
  if (json.contains("initialized")) {
    buffer.initialized = json.at("initialized").get<std::vector<std::pair<std::size_t, std::size_t>>>();
  }
  if (json.contains("after")) buffer.after = filled("after");
  return buffer;
}

// Puts a parameter into its place among the launch's.
void take_parameter(LaunchRecord& record, const cuda_stand_in::Parameter& place, const Json& json) {
  Bytes bytes(place.size_bytes);
  if (json.contains("pointer")) {
    record.pointers.push_back(
        {place.offset_bytes, json.at("pointer").get<std::string>(), json.value("offset", std::size_t{0})});
  } else if (json.contains("hex")) {
    bytes = bytes_of_hex(json.at("hex").get<std::string>());
  } else if (const auto numbers = numbers_of(json)) {
    bytes = *numbers;
  } else {
    throw core::usage_error("parameter " + json.dump() + "; allowed: pointer, hex, u8, i32, u32, i64, u64, f32 or f64");
  }
  if (bytes.size() != place.size_bytes) {
    throw core::usage_error(
        fmt::format("parameter {} has {} bytes; allowed: the entry's {}", json.dump(), bytes.size(), place.size_bytes));
  }
  std::memcpy(&record.launch.parameters[place.offset_bytes], bytes.data(), bytes.size());
  for (const Json& inner : json.value("pointers", Json::array())) {
    record.pointers.push_back({place.offset_bytes + inner.at("at").get<std::size_t>(),
                               inner.at("buffer").get<std::string>(), inner.at("offset").get<std::size_t>()});
  }
}

void take_parameters(LaunchRecord& record, const cuda_stand_in::KernelFacts& facts, const Json& json) {
  if (json.size() != facts.parameters.size()) {
    throw core::usage_error(
        fmt::format("{} parameters; allowed: the entry's {}", json.size(), facts.parameters.size()));
  }
  for (const cuda_stand_in::Parameter& place : facts.parameters) {
    record.launch.parameters.resize(std::max(record.launch.parameters.size(), place.offset_bytes + place.size_bytes));
  }
  record.places = facts.parameters;
  for (std::size_t i = 0; i < json.size(); ++i) take_parameter(record, facts.parameters[i], json[i]);
}

LaunchRecord record_of(const Json& json, const std::filesystem::path& path, Library& library) {
  LaunchRecord record;
  record.launch.number = 1;
  record.launch.kernel = json.at("entry").get<std::string>();
  record.launch.grid = extent_of(json, "grid");
  record.launch.block = extent_of(json, "block");
  record.launch.cluster = extent_of(json, "cluster");
  record.launch.dynamic_shared_bytes = json.value("dynamic_shared_bytes", std::size_t{0});
  record.work = {.kernel = json.value("kernel", record.launch.kernel),
                 .shape = json.value("shape", path.stem().string()),
                 .dtype = json.value("dtype", std::string("f32")),
                 .elems = json.value("elems", std::int64_t{1}),
                 .bytes = json.value("declared_bytes", 0.0),
                 .flops = json.value("flops", 0.0)};
  const auto facts = Interpreter(library, {}).facts_of(record.launch.kernel);
  if (!facts) {
    throw core::usage_error(fmt::format("entry {}: no .ptx file of the folder has it", record.launch.kernel));
  }
  for (const auto& [name, buffer] : json.at("buffers").items()) {
    record.buffers.push_back(buffer_of(name, buffer, path.parent_path()));
  }
  take_parameters(record, *facts, json.at("parameters"));
  return record;
}

// Memory of a record's buffers, at addresses of this process.
class Memory {
 public:
  Memory(const std::vector<LaunchBuffer>& buffers, Interpreter& interpreter) {
    for (const LaunchBuffer& buffer : buffers) {
      auto* const begin = static_cast<std::byte*>(
          ::operator new (std::max<std::size_t>(buffer.before.size(), 1), std::align_val_t{kBufferAlignment}));
      std::copy(buffer.before.begin(), buffer.before.end(), begin);
      begins_[buffer.name] = begin;
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      interpreter.on_allocated(address, buffer.before.size());
      for (const auto& [from, to] : buffer.initialized) interpreter.on_written(address + from, to - from);
    }
  }
  ~Memory() {
    for (const auto& [name, begin] : begins_) ::operator delete (begin, std::align_val_t{kBufferAlignment});
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const std::byte* of(const std::string& buffer) const {
    const auto found = begins_.find(buffer);
    if (found == begins_.end())
      throw core::usage_error(fmt::format("a parameter points to buffer {}; there is none", buffer));
    return found->second;
  }

 private:
  std::map<std::string, std::byte*> begins_;
};

std::string difference(const LaunchBuffer& buffer, const std::byte* now) {
  const auto differs = [&](std::size_t i) { return now[i] != buffer.after[i]; };
  std::size_t count = 0;
  std::size_t first = 0;
  for (std::size_t i = buffer.after.size(); i-- > 0;) {
    if (!differs(i)) continue;
    ++count;
    first = i;
  }
  return count == 0 ? "" : fmt::format("buffer {}: {} bytes differ, the first at {}\n", buffer.name, count, first);
}

}  // namespace

void write_record(const std::string& folder, const std::string& name, const LaunchRecord& record) {
  const cuda_stand_in::Launch& launch = record.launch;
  Json json{{"entry", launch.kernel},
            {"kernel", record.work.kernel},
            {"shape", record.work.shape},
            {"grid", extent_json(launch.grid)},
            {"block", extent_json(launch.block)},
            {"cluster", extent_json(launch.cluster)},
            {"dynamic_shared_bytes", launch.dynamic_shared_bytes},
            {"parameters", Json::array()},
            {"buffers", Json::object()}};
  for (const cuda_stand_in::Parameter& place : record.places) {
    const auto begin = launch.parameters.begin() + static_cast<std::ptrdiff_t>(place.offset_bytes);
    Json parameter{{"hex", hex_of({begin, begin + static_cast<std::ptrdiff_t>(place.size_bytes)})}};
    for (const LaunchPointer& pointer : record.pointers) {
      if (pointer.at < place.offset_bytes || pointer.at >= place.offset_bytes + place.size_bytes) continue;
      parameter["pointers"].push_back(
          {{"at", pointer.at - place.offset_bytes}, {"buffer", pointer.buffer}, {"offset", pointer.offset}});
    }
    json["parameters"].push_back(parameter);
  }
  for (const LaunchBuffer& buffer : record.buffers) {
    const std::string file = fmt::format("{}.{}", name, buffer.name);
    Json& written = json["buffers"][buffer.name];
    written = {{"bytes", buffer.before.size()}, {"before", file + ".before"}, {"initialized", buffer.initialized}};
    write_bytes(fmt::format("{}/{}.before", folder, file), buffer.before);
    if (buffer.after.empty()) continue;
    written["after"] = file + ".after";
    write_bytes(fmt::format("{}/{}.after", folder, file), buffer.after);
  }
  std::ofstream out(fmt::format("{}/{}.json", folder, name));
  out << json.dump(1) << '\n';
  if (!out) throw core::usage_error(folder + ": cannot be written");
}

LaunchRecord read_record(const std::string& path, Library& library) {
  const auto json = core::parse_json<Json>(core::bytes_of_file(path, "a launch's record"), path);
  try {
    return record_of(json, path, library);
  } catch (const nlohmann::json::exception& error) {
    throw core::usage_error(path + ": " + core::reason_of(error));
  } catch (const core::Error& error) {
    throw core::usage_error(path + ": " + error.what());
  }
}

LaunchOutcome run_record(Library& library, const LaunchRecord& record, const Options& options) {
  Interpreter interpreter(library, options);
  const Memory memory(record.buffers, interpreter);
  cuda_stand_in::Launch launch = record.launch;
  for (const LaunchPointer& pointer : record.pointers) {
    const std::byte* const address = memory.of(pointer.buffer) + pointer.offset;
    std::memcpy(&launch.parameters.at(pointer.at), &address, sizeof address);
  }
  interpreter.begin(launch);
  while (interpreter.run().empty()) {
  }
  LaunchOutcome outcome{.errors = "", .runs = interpreter.runs().begin()->second};
  for (const LaunchBuffer& buffer : record.buffers) {
    if (!buffer.after.empty()) outcome.errors += difference(buffer, memory.of(buffer.name));
  }
  return outcome;
}

}  // namespace lockstep::ptx
