#include "trainer/checkpoint/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/crc32.h"
#include "trainer/checkpoint/input_file.h"

namespace lockstep::trainer {
namespace {

core::Error damaged(const std::string& file, const std::string& why) {
  return {core::Failure::wrong_data, file + " is damaged: " + why};
}

std::string found(const std::string& path) {
  const std::optional<std::string> checkpoint = find_checkpoint(path);
  if (checkpoint) return *checkpoint;
  throw core::usage_error("no checkpoint in " + path + "; allowed: a folder step-N, or one that has such folders");
}

void check_bytes(const InputFile& file, const FileEntry& entry) {
  if (file.bytes() == entry.sum.bytes) return;
  throw damaged(file.path(), "it has " + std::to_string(file.bytes()) + " bytes, its manifest says " +
                                 std::to_string(entry.sum.bytes));
}

// A manifest may only name files in its own folder.
void check_name(const std::string& manifest, const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos && name.front() != '.') return;
  throw damaged(manifest, "it names the file \"" + name + "\"");
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(found(path)) {
  const std::string manifest = path_ + "/manifest.json";
  contents_ = parse_contents(read_text(manifest), manifest);
  check_whole(contents_, manifest);
  for (const FileEntry& entry : contents_.files) {
    check_name(manifest, entry.name);
    check_bytes(InputFile(path_ + "/" + entry.name), entry);
  }
  files_.resize(contents_.files.size());
  locate();
}

void Checkpoint::locate() {
  for (std::size_t f = 0; f < contents_.files.size(); ++f) {
    for (const auto& [tensor, runs] : contents_.files[f].runs) {
      std::int64_t file_begin = 0;
      for (const Interval& run : runs) {
        runs_[tensor].push_back({run, f, file_begin});
        file_begin += run.count;
      }
    }
  }
  for (auto& [tensor, runs] : runs_) {
    std::sort(runs.begin(), runs.end(), [](const Located& a, const Located& b) { return a.run.begin < b.run.begin; });
  }
}

const std::vector<Checkpoint::Located>& Checkpoint::runs_of(const WholeTensor& tensor) const {
  const auto there = contents_.tensors.find(tensor.name);
  if (there == contents_.tensors.end()) throw core::usage_error(path_ + " has no tensor \"" + tensor.name + "\"");
  if (there->second == tensor.shape) return runs_.at(tensor.name);
  throw core::usage_error(path_ + ": tensor \"" + tensor.name + "\" is " + shape_text(there->second) +
                          ", the model's is " + shape_text(tensor.shape));
}

SafetensorsFile& Checkpoint::verified(std::size_t file) {
  if (files_[file]) return *files_[file];
  const FileEntry& entry = contents_.files[file];
  const InputFile bytes(path_ + "/" + entry.name);
  check_bytes(bytes, entry);
  const std::uint32_t crc32 = crc32_of(bytes);
  if (crc32 != entry.sum.crc32) {
    throw damaged(bytes.path(),
                  "its checksum is " + crc32_text(crc32) + ", its manifest says " + crc32_text(entry.sum.crc32));
  }
  auto opened = std::make_unique<SafetensorsFile>(bytes.path());
  check_header(*opened, entry);
  files_[file] = std::move(opened);
  return *files_[file];
}

void Checkpoint::check_header(const SafetensorsFile& file, const FileEntry& entry) const {
  for (const auto& [tensor, runs] : entry.runs) {
    std::int64_t elems = 0;
    for (const Interval& run : runs) elems += run.count;
    const TensorInfo* const info = file.find(tensor);
    if (info != nullptr && info->dtype == "F32" && info->elems() == elems) continue;
    throw damaged(file.path(), "it lacks the " + std::to_string(elems) + " F32 elements of tensor \"" + tensor +
                                   "\" that its manifest names");
  }
}

void Checkpoint::read(std::span<const WholeTensor> tensors, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (piece.count == 0) continue;
    const WholeTensor& tensor = tensors[piece.tensor];
    const std::vector<Located>& runs = runs_of(tensor);
    LOCKSTEP_CHECK(0 <= piece.whole_begin && piece.whole_begin + piece.count <= elems_of(tensor.shape),
                   "a piece of " + tensor.name);
    read(tensor.name, runs, piece);
  }
}

// The runs leave no gap, so the piece lies in the run that contains its begin and in those after it.
void Checkpoint::read(const std::string& tensor, const std::vector<Located>& runs, const Piece& piece) {
  const std::int64_t end = piece.whole_begin + piece.count;
  auto run = std::upper_bound(runs.begin(), runs.end(), piece.whole_begin,
                              [](std::int64_t begin, const Located& r) { return begin < r.run.begin; });
  --run;
  for (std::int64_t begin = piece.whole_begin; begin < end; ++run) {
    const std::int64_t skipped = begin - run->run.begin;
    const std::int64_t count = std::min(end - begin, run->run.count - skipped);
    const SafetensorsFile& file = verified(run->file);
    file.read(*file.find(tensor), run->file_begin + skipped,
              std::span(piece.data + (begin - piece.whole_begin), static_cast<std::size_t>(count)));
    begin += count;
  }
}

void require_same(const std::string& what, const Integers& found, const Integers& wanted) {
  Integers all = wanted;
  all.insert(found.begin(), found.end());
  const auto text = [](const Integers& values, const std::string& name) {
    const auto value = values.find(name);
    return value == values.end() ? "nothing" : std::to_string(value->second);
  };
  for (const auto& [name, value] : all) {
    const std::string have = text(found, name);
    const std::string want = text(wanted, name);
    if (have != want) throw core::usage_error(fmt::format("{}: {} is {}, the model's is {}", what, name, have, want));
  }
}

}  // namespace lockstep::trainer
