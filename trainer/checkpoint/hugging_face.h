// Weights as on Hugging Face's hub: files, index and configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"
#include "workload/model.h"

namespace lockstep::trainer {

// Weight files as on Hugging Face's hub: one safetensors file, or several with an index that maps each tensor to its
// file (huggingface_hub, serialization: "weight_map").

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

// A model's weights in safetensors files as Hugging Face's transformers names and lays them out.
//   GPT-2 (GPT2LMHeadModel)   names are ours; the matrices of attention and MLP are Conv1D's, [inputs, outputs] where
//   ours
//                             are [outputs, inputs] (https://github.com/huggingface/transformers, pytorch_utils.py)
//   Llama (LlamaForCausalLM)  matrices are as ours, but queries, keys and values, and gate and up, are tensors of their
//                             own; rotary positions turn halves of a head (modeling_llama.py, rotate_half)
// A head that is the word embedding may be in the file (lm_head.weight) or not. The prefix "transformer." of GPT-2 or
// "model." of Llama may be there or not.

// Turns [rows, columns] into [columns, rows].
std::vector<float> transposed(std::span<const float> matrix, std::int64_t rows, std::int64_t columns);

// A tensor of a file that corresponds to some rows of one of ours.
struct FileTensor {
  std::string name;
  Shape shape;  // in the file
  bool transposed = false;
};

class HuggingFaceNames {
 public:
  // Throws a usage Error that names the property of the model that no supported class of transformers has.
  explicit HuggingFaceNames(const workload::Model& model);

  // The tensors of the file that make up one of ours, in the order of its rows.
  std::vector<FileTensor> tensors_of(const WholeTensor& ours) const;
  // The name with the class's prefix added, or removed if it has one.
  std::string other_name(const std::string& name) const;
  const std::string& words() const { return words_; }  // name of the word embedding
  bool tied() const { return model_.tied_embeddings; }
  // "layers", "hidden" and so on, from the shapes in the file, which do not determine the number of heads.
  Integers sizes_in(const WeightFiles& file) const;
  Integers sizes() const;  // the model's

 private:
  std::int64_t layers_in(const WeightFiles& file) const;

  workload::Model model_;
  bool llama_;
  std::string words_;
};

// Writes tensors, each filled by `whole` in our layout, as f32. GPT-2 is written without a prefix, as in the
// published gpt2, Llama with one; the head is written only if it is not the word embedding.
void write_hugging_face(const HuggingFaceNames& names, const std::string& path, std::span<const WholeTensor> tensors,
                        const std::function<void(std::size_t tensor, std::span<float> values)>& whole);
// Exports the master weights of a checkpoint, with one tensor in memory at a time.
void export_hugging_face(const HuggingFaceNames& names, Checkpoint& checkpoint, const std::string& path);

// Fills the pieces, from F32, F16 or BF16. Tensors have our names and shapes. Throws a usage Error that names the file
// if a tensor is missing or of another shape, or if the file has a head that is not the word embedding where the
// model's is.
void read_hugging_face(const HuggingFaceNames& names, const WeightFiles& file, std::span<const WholeTensor> tensors,
                       std::span<const Piece> pieces);

// The config.json in the folder of a weights file, against our model. A setting is compared with the model's; or it may
// only have values that leave the function as it is; or it has no effect on the function of trained weights; or it is
// unknown (tables in hugging_face_config.cpp, after transformers' classes of configurations).
struct ConfigFindings {
  std::string file;
  std::vector<std::string> problems;  // "sliding_window is 4, below the 8 tokens of a sequence"
  std::vector<std::string> unknown;   // names
};
// Without a config.json nothing is found. Throws a usage Error if it is not a JSON object.
ConfigFindings config_for(const std::string& weights_file, const workload::Model& model);

// Checks a model folder before anything is read: the files have every tensor of the model, in its shape, and no other
// than known buffers, and config.json has nothing that our model has not. Throws a usage Error of one line that names
// all that is there in excess. Returns a note, which counts and names unknown settings; empty: there are none.
std::string check_model_folder(const WeightFiles& file, const workload::Model& model);

}  // namespace lockstep::trainer
