// A model's weights in safetensors files as Hugging Face's transformers names and lays them out.
//   GPT-2 (GPT2LMHeadModel)   names are ours; the matrices of attention and MLP are Conv1D's, [inputs, outputs] where
//   ours
//                             are [outputs, inputs] (https://github.com/huggingface/transformers, pytorch_utils.py)
//   Llama (LlamaForCausalLM)  matrices are as ours, but queries, keys and values, and gate and up, are tensors of their
//                             own; rotary positions turn halves of a head (modeling_llama.py, rotate_half)
// A head that is the word embedding may be in the file (lm_head.weight) or not. The prefix "transformer." of GPT-2 or
// "model." of Llama may be there or not.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/pieces.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/weight_files.h"
#include "workload/model.h"

namespace lockstep::trainer {

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

// Writes tensors, which `whole` fills one by one in our layout, as f32, bf16 or f16. GPT-2 is written without a prefix,
// as in the published gpt2, Llama with one; the head is written only if it is not the word embedding.
void write_hugging_face(const HuggingFaceNames& names, const std::string& path, std::span<const WholeTensor> tensors,
                        core::DType dtype,
                        const std::function<void(std::size_t tensor, std::span<float> values)>& whole);
// Exports the master weights of a checkpoint, with one tensor in memory at a time.
void export_hugging_face(const HuggingFaceNames& names, Checkpoint& checkpoint, const std::string& path,
                         core::DType dtype);

// Fills the pieces, from F32, F16 or BF16. Tensors have our names and shapes. Throws a usage Error that names the file
// if a tensor is missing or of another shape, or if the file has a head that is not the word embedding where the
// model's is.
void read_hugging_face(const HuggingFaceNames& names, const WeightFiles& file, std::span<const WholeTensor> tensors,
                       std::span<const Piece> pieces);

}  // namespace lockstep::trainer
