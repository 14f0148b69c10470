// Weights as Hugging Face's hub has them: one safetensors file, or several with an index that says which tensor is in
// which (huggingface_hub, serialization: "weight_map").
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
  // `path`: a safetensors file, a model.safetensors.index.json, or a folder with the one or the other. Throws a usage
  // Error that names the file if the index is none, or if a file that it names is missing or has not what it says.
  explicit WeightFiles(const std::string& path);

  const std::string& path() const { return path_; }            // of the file, or of the index
  const std::string& file_of(const TensorInfo& tensor) const;  // that it is in
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;  // nullptr if there is none
  // As SafetensorsFile::read().
  void read(const TensorInfo& tensor, std::int64_t begin, std::span<float> into) const;

 private:
  void open(const std::string& file);
  void open_all_of(const std::string& index);
  const SafetensorsFile& holder_of(const TensorInfo& tensor) const;

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorInfo> tensors_;
  struct Place {
    std::size_t tensor, file;
  };
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace lockstep::trainer
