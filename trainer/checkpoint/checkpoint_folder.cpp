#include "trainer/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "core/atomic_file.h"
#include "core/error.h"
#include "trainer/checkpoint/crc32.h"
#include "trainer/checkpoint/input_file.h"

namespace lockstep::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::size_t kDigits = 8;

// Returns the step if the name is that of a checkpoint.
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
