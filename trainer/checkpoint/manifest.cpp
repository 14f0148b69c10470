#include "trainer/checkpoint/manifest.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "trainer/checkpoint/crc32.h"

namespace lockstep::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep-checkpoint";
constexpr std::int64_t kVersion = 1;
// Between what the checksum is of and the checksum; behind it stands kEnd.
constexpr std::string_view kBeforeSum = ",\n\"crc32\": \"";
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kSumChars = 8;

core::Error damaged(const std::string& file, const std::string& why) {
  return {core::Failure::wrong_data, file + " is damaged: " + why};
}

Json runs_json(const std::vector<Interval>& intervals) {
  Json rows = Json::array();
  for (const IntervalRow& row : fold(intervals)) {
    Json numbers = {row.first.begin, row.first.count};
    if (row.times > 1) numbers.insert(numbers.end(), {row.stride, row.times});
    rows.push_back(std::move(numbers));
  }
  return rows;
}

std::vector<Interval> parse_runs(const Json& json) {
  std::vector<IntervalRow> rows;
  for (const Json& row : json) {
    rows.push_back({{row.at(0).get<std::int64_t>(), row.at(1).get<std::int64_t>()}});
    if (row.size() == 2) continue;
    rows.back().stride = row.at(2).get<std::int64_t>();
    rows.back().times = row.at(3).get<std::int64_t>();
  }
  return unfold(rows);
}

Json file_json(const FileEntry& file) {
  Json runs = Json::object();
  for (const auto& [tensor, intervals] : file.runs) runs[tensor] = runs_json(intervals);
  return {
      {"name", file.name}, {"bytes", file.sum.bytes}, {"crc32", crc32_text(file.sum.crc32)}, {"runs", std::move(runs)}};
}

FileEntry parse_file(const Json& json) {
  FileEntry file;
  file.name = json.at("name").get<std::string>();
  file.sum.bytes = json.at("bytes").get<std::int64_t>();
  file.sum.crc32 = parse_crc32(json.at("crc32").get<std::string>()).value();
  for (const auto& [tensor, runs] : json.at("runs").items()) file.runs[tensor] = parse_runs(runs);
  return file;
}

Json files_json(const std::vector<FileEntry>& files) {
  Json all = Json::array();
  for (const FileEntry& file : files) all.push_back(file_json(file));
  return all;
}

void parse_tensors_and_files(const Json& json, Contents& contents) {
  contents.tensors = json.at("tensors").get<std::map<std::string, Shape>>();
  for (const Json& file : json.at("files")) contents.files.push_back(parse_file(file));
}

// The JSON without its last line, which must fit it.
std::string_view checked(std::string_view text, const std::string& file) {
  const std::size_t tail = kBeforeSum.size() + kSumChars + kEnd.size();
  const auto refuse = [&] { return damaged(file, "it does not end in its checksum, as if it were truncated"); };
  if (text.size() < tail) throw refuse();
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view last = text.substr(body.size());
  const std::string_view sum = last.substr(kBeforeSum.size(), kSumChars);
  const bool is_tail = last.substr(0, kBeforeSum.size()) == kBeforeSum && last.substr(tail - kEnd.size()) == kEnd;
  if (!is_tail || !parse_crc32(sum)) throw refuse();
  if (parse_crc32(sum) == crc32_of(body)) return body;
  throw damaged(file, "its checksum is " + std::string(sum) + ", that of its text " + crc32_text(crc32_of(body)));
}

void check_format(const Json& json, const std::string& file) {
  if (json.at("format") != kFormat) throw core::usage_error(file + " is no manifest of a checkpoint");
  const auto version = json.at("version").get<std::int64_t>();
  if (version == kVersion) return;
  throw core::usage_error(file + " is of format version " + std::to_string(version) +
                          "; allowed: " + std::to_string(kVersion));
}

Contents parse_checked(const Json& json, const std::string& file) {
  check_format(json, file);
  Contents contents;
  Manifest& manifest = contents.manifest;
  manifest.step = json.at("step").get<std::int64_t>();
  manifest.model = json.at("model").get<Integers>();
  manifest.layout = json.at("layout").get<std::map<std::string, std::string>>();
  manifest.integers = json.at("integers").get<Integers>();
  manifest.reals = json.at("reals").get<std::map<std::string, double>>();
  parse_tensors_and_files(json, contents);
  return contents;
}

}  // namespace

std::string contents_text(const Contents& contents) {
  const Manifest& manifest = contents.manifest;
  for (const auto& [name, value] : manifest.reals) LOCKSTEP_CHECK(std::isfinite(value), name + " is not finite");
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"step", manifest.step},
                     {"model", Json(manifest.model)},
                     {"layout", Json(manifest.layout)},
                     {"integers", Json(manifest.integers)},
                     {"reals", Json(manifest.reals)},
                     {"tensors", Json(contents.tensors)},
                     {"files", files_json(contents.files)}};
  std::string text = "{";
  for (const auto& [name, value] : json.items()) {  // a line for each, so that people can read it
    text += (text.size() > 1 ? ",\n\"" : "\"") + name + "\": " + value.dump();
  }
  const std::string sum = crc32_text(crc32_of(text));
  return text.append(kBeforeSum).append(sum).append(kEnd);
}

Contents parse_contents(std::string_view text, const std::string& file) {
  const std::string_view body = checked(text, file);
  try {
    return parse_checked(Json::parse(std::string(body) + "}"), file);
  } catch (const Json::exception& error) {
    throw damaged(file, error.what());
  } catch (const std::bad_optional_access&) {
    throw damaged(file, "a file's checksum is not eight hexadecimal digits");
  }
}

void check_whole(const Contents& contents, const std::string& file) {
  std::map<std::string, std::vector<Interval>> runs;
  for (const FileEntry& entry : contents.files) {
    for (const auto& [tensor, intervals] : entry.runs) {
      if (contents.tensors.count(tensor) == 0) throw damaged(file, "tensor \"" + tensor + "\" has runs and no shape");
      std::vector<Interval>& all = runs[tensor];
      all.insert(all.end(), intervals.begin(), intervals.end());
    }
  }
  for (const auto& [tensor, shape] : contents.tensors) {
    const std::string why = why_not_whole(std::move(runs[tensor]), elems_of(shape));
    if (!why.empty()) throw damaged(file, fmt::format("of tensor \"{}\" {}, {}", tensor, shape_text(shape), why));
  }
}

std::string part_text(const Contents& part) {
  return Json({{"tensors", Json(part.tensors)}, {"files", files_json(part.files)}}).dump();
}

Contents parse_part(std::string_view text) {
  Contents part;
  parse_tensors_and_files(Json::parse(text), part);
  return part;
}

}  // namespace lockstep::trainer
