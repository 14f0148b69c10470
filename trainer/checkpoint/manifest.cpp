#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "core/error.h"
#include "core/output_file.h"
#include "core/record_json.h"
#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {
namespace {

// True if the interval continues a row, whose stride may still be undefined.
bool continues(const IntervalRow& row, const Interval& next) {
  if (next.count != row.first.count) return false;
  const std::int64_t stride = next.begin - (row.first.begin + (row.times - 1) * row.stride);
  return row.times == 1 ? stride >= next.count : stride == row.stride;
}

}  // namespace

std::int64_t elems_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

std::vector<IntervalRow> fold(const std::vector<Interval>& intervals) {
  std::vector<IntervalRow> rows;
  for (const Interval& interval : intervals) {
    if (!rows.empty() && continues(rows.back(), interval)) {
      IntervalRow& row = rows.back();
      if (row.times == 1) row.stride = interval.begin - row.first.begin;
      ++row.times;
    } else {
      rows.push_back({interval});
    }
  }
  return rows;
}

std::vector<Interval> unfold(const std::vector<IntervalRow>& rows) {
  std::vector<Interval> intervals;
  for (const IntervalRow& row : rows) {
    for (std::int64_t k = 0; k < row.times; ++k) {
      intervals.push_back({row.first.begin + k * row.stride, row.first.count});
    }
  }
  return intervals;
}

std::vector<Interval> IntervalSet::add(const Interval& interval) {
  std::vector<Interval> added;
  std::int64_t begin = interval.begin;
  std::int64_t end = interval.begin + interval.count;
  std::int64_t open = begin;  // nothing from here on has been checked yet
  auto there = end_by_begin_.upper_bound(begin);
  if (there != end_by_begin_.begin() && std::prev(there)->second >= begin) --there;
  while (there != end_by_begin_.end() && there->first <= end) {
    if (open < there->first) added.push_back({open, there->first - open});
    open = std::max(open, there->second);
    begin = std::min(begin, there->first);
    end = std::max(end, there->second);
    there = end_by_begin_.erase(there);
  }
  const std::int64_t asked_end = interval.begin + interval.count;
  if (open < asked_end) added.push_back({open, asked_end - open});
  if (begin < end) end_by_begin_[begin] = end;
  return added;
}

std::string why_not_whole(std::vector<Interval> intervals, std::int64_t elems) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return std::pair(a.begin, a.count) < std::pair(b.begin, b.count);
  });
  std::int64_t end = 0;
  for (const Interval& interval : intervals) {
    if (interval.begin < end) return "element " + std::to_string(interval.begin) + " is there twice";
    if (interval.begin > end) break;
    end += interval.count;
  }
  if (end < elems) return "element " + std::to_string(end) + " is missing";
  return end > elems ? "there are " + std::to_string(end) + " elements instead of " + std::to_string(elems) : "";
}

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep-checkpoint";
constexpr std::int64_t kVersion = 1;
// Between the text that the checksum covers and the checksum, which kEnd follows.
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

// More elements than any tensor has, and intervals than any manifest: larger values in a manifest would overflow,
// or use up the memory.
constexpr std::int64_t kMostElems = std::int64_t{1} << 60;
constexpr std::int64_t kMostIntervals = std::int64_t{1} << 24;

core::Error not_allowed(const std::string& why) {
  return {core::Failure::wrong_data, why};
}

std::int64_t number_of(const Json& json, std::int64_t min = 0, std::int64_t max = kMostElems) {
  const std::optional<std::int64_t> number = core::integer_in(json, min, max);
  if (!number) throw not_allowed(fmt::format("{} is not a whole number from {} to {}", json.dump(), min, max));
  return *number;
}

Integers integers_of(const Json& json) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  Integers integers;
  for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) integers[name] = number_of(value, kMin, kMax);
  return integers;
}

IntervalRow row_of(const Json& json) {
  IntervalRow row{{number_of(json.at(0)), number_of(json.at(1))}};
  if (json.size() == 2) return row;
  row.stride = number_of(json.at(2));
  row.times = number_of(json.at(3), 1, kMostIntervals);
  if (row.stride <= (kMostElems - row.first.begin) / row.times) return row;
  throw not_allowed(json.dump() + " goes beyond any tensor");
}

// `left`: how many more intervals the manifest may have.
std::vector<Interval> parse_runs(const Json& json, std::int64_t& left) {
  std::vector<IntervalRow> rows;
  for (const Json& row : json) {
    rows.push_back(row_of(row));
    left -= rows.back().times;
    if (left < 0) throw not_allowed(fmt::format("it has more than {} runs", kMostIntervals));
  }
  return unfold(rows);
}

Shape shape_of(const Json& json) {
  Shape shape;
  std::int64_t elems = 1;
  for (const Json& size : json) {
    shape.push_back(number_of(size));
    if (__builtin_mul_overflow(elems, shape.back(), &elems) || elems > kMostElems) {
      throw not_allowed("the shape " + json.dump() + " has too many elements");
    }
  }
  return shape;
}

Json file_json(const FileEntry& file) {
  Json runs = Json::object();
  for (const auto& [tensor, intervals] : file.runs) runs[tensor] = runs_json(intervals);
  return {
      {"name", file.name}, {"bytes", file.sum.bytes}, {"crc32", crc32_text(file.sum.crc32)}, {"runs", std::move(runs)}};
}

FileEntry parse_file(const Json& json, std::int64_t& left) {
  FileEntry file;
  file.name = json.at("name").get<std::string>();
  file.sum.bytes = number_of(json.at("bytes"));
  file.sum.crc32 = parse_crc32(json.at("crc32").get<std::string>()).value();
  for (const auto& [tensor, runs] : json.at("runs").items()) file.runs[tensor] = parse_runs(runs, left);
  return file;
}

Json files_json(const std::vector<FileEntry>& files) {
  Json all = Json::array();
  for (const FileEntry& file : files) all.push_back(file_json(file));
  return all;
}

void parse_tensors_and_files(const Json& json, Contents& contents) {
  for (const auto& [tensor, shape] : json.at("tensors").items()) contents.tensors[tensor] = shape_of(shape);
  std::int64_t left = kMostIntervals;
  for (const Json& file : json.at("files")) contents.files.push_back(parse_file(file, left));
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
  throw damaged(file, "its checksum is " + std::string(sum) + ", its text's is " + crc32_text(crc32_of(body)));
}

Json json_of(const std::string& text) {
  try {
    return core::parse_json<Json>(text, "its text");
  } catch (const core::Error& error) {
    throw core::Error(core::Failure::wrong_data, error.what());
  }
}

void check_format(const Json& json, const std::string& file) {
  if (json.at("format") != kFormat) throw core::usage_error(file + " is no manifest of a checkpoint");
  const std::int64_t version = number_of(json.at("version"));
  if (version == kVersion) return;
  throw core::usage_error(file + " is of format version " + std::to_string(version) +
                          "; allowed: " + std::to_string(kVersion));
}

Contents parse_checked(const Json& json, const std::string& file) {
  check_format(json, file);
  Contents contents;
  Manifest& manifest = contents.manifest;
  manifest.step = number_of(json.at("step"));
  manifest.model = integers_of(json.at("model"));
  manifest.layout = json.at("layout").get<std::map<std::string, std::string>>();
  manifest.integers = integers_of(json.at("integers"));
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
    return parse_checked(json_of(std::string(body) + "}"), file);
  } catch (const Json::exception& error) {
    throw damaged(file, core::reason_of(error));
  } catch (const core::Error& error) {
    if (error.failure() == core::Failure::wrong_data) throw damaged(file, error.what());
    throw;
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

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::size_t kDigits = 8;

// Returns the step if the name belongs to a checkpoint.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t step = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (result.ec != std::errc() || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

// True for folders step-N.partial, and for the file that AtomicFile may leave between its last two calls.
bool is_leftover(const std::string& name) {
  if (name.rfind("latest.partial-", 0) == 0) return name.find_first_not_of("0123456789", 15) == std::string::npos;
  const std::size_t stem = name.size() - std::min(name.size(), kPartial.size());
  return name.substr(stem) == kPartial && step_of(std::string_view(name).substr(0, stem)).has_value();
}

// Linux's rename with flags: RENAME_EXCHANGE swaps two names atomically, which not every file system supports.
void rename_folder(const fs::path& from, const fs::path& to, unsigned int flags) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0) return;
  throw fs::filesystem_error("cannot rename", from, to, std::error_code(errno, std::generic_category()));
}

// An older checkpoint of the same step stays until the new one exists, and then takes the partial name. If the file
// system cannot exchange names, the old one is removed first, starting with its manifest.
void take_name(const fs::path& partial, const fs::path& final) {
  if (!fs::exists(final)) return rename_folder(partial, final, 0);
  try {
    rename_folder(partial, final, RENAME_EXCHANGE);
  } catch (const fs::filesystem_error&) {
    fs::remove(final / "manifest.json");
    fs::remove_all(final);
    rename_folder(partial, final, 0);
  }
}

// The folder loses its name before its files, because everything with that name must be complete.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path partial = checkpoint.string().append(kPartial);
  fs::remove_all(partial);
  rename_folder(checkpoint, partial, 0);
  fs::remove_all(partial);
}

// Newest first, by the time of their manifests: a run that continues from an older step rewrites later steps.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  using Entry = std::tuple<fs::file_time_type, std::int64_t, fs::path>;
  std::vector<Entry> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::optional<std::int64_t> step = step_of(entry.path().filename().string());
    const fs::path manifest = entry.path() / "manifest.json";
    if (step && fs::exists(manifest)) found.emplace_back(fs::last_write_time(manifest), *step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (const Entry& entry : found) paths.push_back(std::get<fs::path>(entry));
  return paths;
}

void remove_old(const fs::path& folder, const fs::path& newest, std::int32_t keep) {
  std::int32_t kept = 1;
  for (const fs::path& checkpoint : checkpoints_in(folder)) {
    if (checkpoint == newest) continue;
    if (++kept > keep) remove_checkpoint(checkpoint);
  }
}

std::string pointer_text(const std::string& name) {
  return name + " " + crc32_text(crc32_of(name)) + "\n";
}

std::string follow(const std::string& folder, const std::string& pointer) {
  const std::string text = read_text(pointer);
  const std::string name = text.substr(0, text.find(' '));
  if (!step_of(name) || text != pointer_text(name)) {
    throw core::Error(core::Failure::wrong_data, pointer + " is damaged; name a checkpoint in " + folder + " instead");
  }
  if (fs::exists(fs::path(folder) / name / "manifest.json")) return folder + "/" + name;
  throw core::usage_error(pointer + " names " + name + ", which is not there; name another checkpoint in " + folder +
                          " instead");
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kPrefix).append(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

std::string partial_folder(const std::string& folder, std::int64_t step) {
  return folder + "/" + checkpoint_name(step).append(kPartial);
}

void begin_checkpoint(const std::string& folder, std::int64_t step) {
  LOCKSTEP_CHECK(step >= 0, "steps count from 0");
  fs::create_directories(folder);
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_leftover(entry.path().filename().string())) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover);
  fs::create_directory(partial_folder(folder, step));
}

void publish_checkpoint(const std::string& folder, std::int64_t step, std::int32_t keep) {
  LOCKSTEP_CHECK(keep >= 1, "the new checkpoint is kept");
  const fs::path partial = partial_folder(folder, step);
  const fs::path final = fs::path(folder) / checkpoint_name(step);
  take_name(partial, final);
  core::sync_folder(folder);
  core::AtomicFile latest(folder + "/latest");
  latest.write(pointer_text(checkpoint_name(step)));
  latest.commit();
  fs::remove_all(partial);
  remove_old(folder, final, keep);
}

void abandon_checkpoint(const std::string& folder, std::int64_t step) {
  std::error_code nobody_asks;  // leftovers that cannot be removed now are removed by the next writer
  fs::remove_all(partial_folder(folder, step), nobody_asks);
}

std::optional<std::string> find_checkpoint(const std::string& path) {
  if (fs::exists(fs::path(path) / "manifest.json")) return path;
  const std::string pointer = path + "/latest";
  if (fs::exists(pointer)) return follow(path, pointer);
  if (!fs::is_directory(path)) return std::nullopt;
  const std::vector<fs::path> all = checkpoints_in(path);  // its writer was killed before it wrote the first `latest`
  return all.empty() ? std::nullopt : std::optional(all.front().string());
}

}  // namespace lockstep::trainer
