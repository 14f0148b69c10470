// GPT-2 as Hugging Face's transformers has it in one safetensors file (class GPT2LMHeadModel): names are ours, but the
// matrices of attention and MLP are Conv1D's, [inputs, outputs] where ours are [outputs, inputs]
// (https://github.com/huggingface/transformers, pytorch_utils.py, Conv1D). The head is the word embedding; a file may
// say so (lm_head.weight) or leave it out. Names may begin with "transformer.".
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

namespace lockstep::trainer {

bool is_conv1d(std::string_view name);  // "h.0.attn.c_attn.weight"

// [rows, columns] to [columns, rows].
std::vector<float> transposed(std::span<const float> matrix, std::int64_t rows, std::int64_t columns);

// Writes the tensors, which `whole` fills one by one in our layout, as f32, bf16 or f16, without a prefix and without
// lm_head.weight, as the published gpt2 has them.
void write_gpt2(const std::string& path, std::span<const WholeTensor> tensors, core::DType dtype,
                const std::function<void(std::size_t tensor, std::span<float> values)>& whole);
// The master weights of a checkpoint. One tensor at a time is in memory.
void export_gpt2(Checkpoint& checkpoint, const std::string& path, core::DType dtype);

// "layers", "hidden", "vocabulary" and "length", as the shapes in the file have them. (Heads leave no trace in it.)
Integers gpt2_sizes(const SafetensorsFile& file);

// Fills the pieces, from F32, F16 or BF16. Tensors have GPT-2's names and our shapes. Throws a usage Error that names
// the file if a tensor is missing or of another shape, or if the file has a head that is not the word embedding.
void read_gpt2(const SafetensorsFile& file, std::span<const WholeTensor> tensors, std::span<const Piece> pieces);

}  // namespace lockstep::trainer
