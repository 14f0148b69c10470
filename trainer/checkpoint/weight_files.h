// Weight files as on Hugging Face's hub: one safetensors file, or several with an index that maps each tensor to its
// file (huggingface_hub, serialization: "weight_map").
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {

class WeightFiles {
 public:
  // `path`: a safetensors file, a model.safetensors.index.json, or a folder with either. Throws a usage Error that
  // names the file if the index is invalid, or if a file named by it is missing or lacks a tensor.
  explicit WeightFiles(const std::string& path);

  const std::string& path() const { return path_; }            // the file or the index
  const std::string& file_of(const TensorInfo& tensor) const;  // the file that contains it
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;  // nullptr if there is none
  // See SafetensorsFile::read().
  void read(const TensorInfo& tensor, std::int64_t begin, std::span<float> into) const;

 private:
  void open(const std::string& file);
  void open_all_of(const std::string& index);
  const SafetensorsFile& holder_of(const TensorInfo& tensor) const;

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorInfo> tensors_;
  struct Location {
    std::size_t tensor, file;
  };
  std::map<std::string, Location, std::less<>> locations_;
};

}  // namespace lockstep::trainer
