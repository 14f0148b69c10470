#include "trainer/checkpoint/weight_files.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

using nlohmann::json;

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string in_folder(const std::filesystem::path& folder) {
  for (const char* const name : {kFile, kIndex}) {
    if (std::filesystem::exists(folder / name)) return (folder / name).string();
  }
  throw core::usage_error(folder.string() + " has no weights; allowed: a folder with " + kFile + " or " + kIndex);
}

bool is_index(const std::string& path) {
  return std::filesystem::path(path).extension() == ".json";
}

// [tensor] -> file
std::map<std::string, std::string> weight_map_of(const std::string& index) {
  std::ifstream in(index, std::ios::binary);
  const json whole = json::parse(in, nullptr, false);
  const auto map = whole.is_object() ? whole.find("weight_map") : whole.end();
  if (!whole.is_object() || map == whole.end() || !map->is_object() || map->empty()) {
    throw core::usage_error(index + " is not an index of weights; allowed: a JSON object with \"weight_map\"");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const bool is_name = file.is_string() && !std::filesystem::path(file.get<std::string>()).has_parent_path();
    if (!is_name) {
      throw core::usage_error(
          fmt::format("{}: weight_map of \"{}\" is {}; allowed: names of files beside it", index, tensor, file.dump()));
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace

WeightFiles::WeightFiles(const std::string& path)
    : path_(std::filesystem::is_directory(path) ? in_folder(path) : path) {
  is_index(path_) ? open_all_of(path_) : open(path_);
}

void WeightFiles::open(const std::string& file) {
  files_.push_back(std::make_unique<SafetensorsFile>(file));
  for (const TensorInfo& tensor : files_.back()->tensors()) {
    locations_[tensor.name] = {tensors_.size(), files_.size() - 1};
    tensors_.push_back(tensor);
  }
}

void WeightFiles::open_all_of(const std::string& index) {
  const std::filesystem::path folder = std::filesystem::path(index).parent_path();
  const std::map<std::string, std::string> files = weight_map_of(index);
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, name] : files) {
    if (opened.try_emplace(name, files_.size()).second) open((folder / name).string());
    const auto found = locations_.find(tensor);
    if (found != locations_.end() && found->second.file == opened.at(name)) continue;
    throw core::usage_error(fmt::format("{}: tensor \"{}\" is not in {}", index, tensor, name));
  }
}

const TensorInfo* WeightFiles::find(std::string_view name) const {
  const auto found = locations_.find(name);
  return found == locations_.end() ? nullptr : &tensors_[found->second.tensor];
}

const SafetensorsFile& WeightFiles::holder_of(const TensorInfo& tensor) const {
  return *files_[locations_.at(tensor.name).file];
}

const std::string& WeightFiles::file_of(const TensorInfo& tensor) const {
  return holder_of(tensor).path();
}

void WeightFiles::read(const TensorInfo& tensor, std::int64_t begin, std::span<float> into) const {
  holder_of(tensor).read(tensor, begin, into);
}

}  // namespace lockstep::trainer
