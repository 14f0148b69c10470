#include "trainer/checkpoint/gpt2_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/narrow_float.h"

namespace lockstep::trainer {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kMaster = "master.";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

Shape shape_in_file(const WholeTensor& tensor) {
  return is_conv1d(tensor.name) ? Shape(tensor.shape.rbegin(), tensor.shape.rend()) : tensor.shape;
}

const TensorInfo* find(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* const found = file.find(name);
  return found != nullptr ? found : file.find(std::string(kPrefix) + name);
}

const TensorInfo& require(const SafetensorsFile& file, const std::string& name) {
  if (const TensorInfo* const found = find(file, name)) return *found;
  throw core::usage_error(fmt::format("{} has no tensor \"{}\" or \"{}{}\"", file.path(), name, kPrefix, name));
}

std::vector<float> read_all(const SafetensorsFile& file, const TensorInfo& info) {
  std::vector<float> values(static_cast<std::size_t>(info.elems()));
  file.read(info, 0, values);
  return values;
}

// A tensor in our layout.
std::vector<float> read_ours(const SafetensorsFile& file, const WholeTensor& tensor) {
  const TensorInfo& info = require(file, tensor.name);
  const Shape expected = shape_in_file(tensor);
  if (info.shape != expected) {
    throw core::usage_error(fmt::format("{}: tensor \"{}\" is {}, the model's is {}", file.path(), info.name,
                                        shape_text(info.shape), shape_text(expected)));
  }
  std::vector<float> values = read_all(file, info);
  return is_conv1d(tensor.name) ? transposed(values, expected[0], expected[1]) : values;
}

void check_head(const SafetensorsFile& file) {
  const TensorInfo* const head = file.find("lm_head.weight");
  if (head == nullptr) return;
  const TensorInfo& words = require(file, "wte.weight");
  if (head->shape == words.shape && read_all(file, *head) == read_all(file, words)) return;
  throw core::usage_error(file.path() + ": lm_head.weight is not " + words.name +
                          "; allowed: a model whose head is the word embedding");
}

struct FileDType {
  core::DType dtype;
  std::string_view name;
};
constexpr std::array<FileDType, 3> kFileDTypes = {
    {{core::DType::f32, "F32"}, {core::DType::bf16, "BF16"}, {core::DType::f16, "F16"}}};

std::string name_in_file(core::DType dtype) {
  const auto* const found =
      std::find_if(kFileDTypes.begin(), kFileDTypes.end(), [&](const FileDType& d) { return d.dtype == dtype; });
  LOCKSTEP_CHECK(found != kFileDTypes.end(), "weights are written as f32, bf16 or f16");
  return std::string(found->name);
}

template <class Narrow>
void write_narrow(SafetensorsWriter& writer, std::span<const float> values, Narrow (*narrow)(float)) {
  std::vector<Narrow> narrowed(values.size());
  std::transform(values.begin(), values.end(), narrowed.begin(), narrow);
  writer.write(std::as_bytes(std::span(narrowed)));
}

void write_values(SafetensorsWriter& writer, std::span<const float> values, core::DType dtype) {
  if (dtype == core::DType::bf16) return write_narrow(writer, values, core::to_bfloat16);
  if (dtype == core::DType::f16) return write_narrow(writer, values, core::to_float16);
  writer.write(std::as_bytes(values));
}

// One more than the largest i of names "h.i....".
std::int64_t num_layers(const SafetensorsFile& file) {
  std::int64_t layers = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    std::string_view name = tensor.name;
    if (name.substr(0, kPrefix.size()) == kPrefix) name.remove_prefix(kPrefix.size());
    if (name.substr(0, 2) != "h.") continue;
    std::int64_t layer = -1;
    std::from_chars(name.data() + 2, name.data() + name.size(), layer);
    layers = std::max(layers, layer + 1);
  }
  return layers;
}

}  // namespace

bool is_conv1d(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEnds = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                     ".mlp.c_proj.weight"};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return ends_with(name, end); });
}

std::vector<float> transposed(std::span<const float> matrix, std::int64_t rows, std::int64_t columns) {
  LOCKSTEP_CHECK(static_cast<std::int64_t>(matrix.size()) == rows * columns, "a matrix of that shape");
  std::vector<float> result(matrix.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      result[static_cast<std::size_t>(column * rows + row)] = matrix[static_cast<std::size_t>(row * columns + column)];
    }
  }
  return result;
}

void write_gpt2(const std::string& path, std::span<const WholeTensor> tensors, core::DType dtype,
                const std::function<void(std::size_t tensor, std::span<float> values)>& whole) {
  std::vector<TensorInfo> infos;
  for (const WholeTensor& tensor : tensors) {
    infos.push_back({.name = tensor.name, .dtype = name_in_file(dtype), .shape = shape_in_file(tensor)});
  }
  SafetensorsWriter writer(path, std::move(infos), {{"format", "pt"}});  // without which transformers refuses it
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<float> values(static_cast<std::size_t>(elems_of(tensors[t].shape)));
    whole(t, values);
    if (is_conv1d(tensors[t].name)) values = transposed(values, tensors[t].shape[0], tensors[t].shape[1]);
    write_values(writer, values, dtype);
  }
  writer.commit();
}

void export_gpt2(Checkpoint& checkpoint, const std::string& path, core::DType dtype) {
  std::vector<WholeTensor> ours;    // "master.wte.weight"
  std::vector<WholeTensor> theirs;  // "wte.weight"
  for (const auto& [name, shape] : checkpoint.tensors()) {
    if (name.rfind(kMaster, 0) != 0) continue;
    ours.push_back({name, shape});
    theirs.push_back({name.substr(kMaster.size()), shape});
  }
  write_gpt2(path, theirs, dtype, [&](std::size_t tensor, std::span<float> values) {
    const std::array<Piece, 1> whole = {{{tensor, 0, static_cast<std::int64_t>(values.size()), values.data()}}};
    checkpoint.read(ours, whole);
  });
}

Integers gpt2_sizes(const SafetensorsFile& file) {
  const TensorInfo& words = require(file, "wte.weight");
  const TensorInfo& positions = require(file, "wpe.weight");
  if (words.shape.size() != 2 || positions.shape.size() != 2) {
    throw core::usage_error(file.path() + " is no GPT-2: its embeddings are no matrices");
  }
  return {{"layers", num_layers(file)},
          {"hidden", words.shape[1]},
          {"vocabulary", words.shape[0]},
          {"length", positions.shape[0]}};
}

void read_gpt2(const SafetensorsFile& file, std::span<const WholeTensor> tensors, std::span<const Piece> pieces) {
  check_head(file);
  std::map<std::size_t, std::vector<Piece>> by_tensor;
  for (const Piece& piece : pieces) by_tensor[piece.tensor].push_back(piece);
  for (const auto& [tensor, list] : by_tensor) {
    const std::vector<float> values = read_ours(file, tensors[tensor]);
    for (const Piece& piece : list) std::copy_n(values.begin() + piece.whole_begin, piece.count, piece.data);
  }
}

}  // namespace lockstep::trainer
