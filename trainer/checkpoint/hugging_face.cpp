#include "trainer/checkpoint/hugging_face.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/record_json.h"
#include "workload/layout.h"
#include "workload/parameters.h"

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
  const json whole = core::parse_json(read_text(index), index);
  const auto map = whole.is_object() ? whole.find("weight_map") : whole.end();
  if (!whole.is_object() || map == whole.end() || !map->is_object() || map->empty()) {
    throw core::usage_error(index + " is not an index of weights; allowed: a JSON object with \"weight_map\"");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || core::has_control_character(name) || std::filesystem::path(name).has_parent_path()) {
      throw core::usage_error(fmt::format("{}: weight_map of \"{}\" is {}; allowed: names of files in its folder",
                                          index, tensor, file.dump()));
    }
    files[tensor] = name;
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
    const Location here{tensors_.size(), files_.size() - 1};
    if (const auto [met, is_new] = locations_.try_emplace(tensor.name, here); !is_new) {
      throw core::usage_error(fmt::format("{}: tensor \"{}\" is in {}, too; allowed: each tensor in one file", file,
                                          tensor.name, files_[met->second.file]->path()));
    }
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

namespace {

constexpr std::string_view kMaster = "master.";
constexpr const char* kHead = "lm_head.weight";

// A matrix or a norm of a layer: our name after "h.0.", and theirs after "model.layers.0.". A tensor that corresponds
// to several of theirs has one line for each, in the order of its rows.
struct LlamaName {
  std::string_view ours;
  std::string_view theirs;
};
constexpr std::array<LlamaName, 16> kLlamaNames{{
    {"ln_1.weight", "input_layernorm.weight"},
    {"attn.c_attn.weight", "self_attn.q_proj.weight"},
    {"attn.c_attn.weight", "self_attn.k_proj.weight"},
    {"attn.c_attn.weight", "self_attn.v_proj.weight"},
    {"attn.c_proj.weight", "self_attn.o_proj.weight"},
    {"ln_2.weight", "post_attention_layernorm.weight"},
    {"mlp.c_fc.weight", "mlp.gate_proj.weight"},
    {"mlp.c_fc.weight", "mlp.up_proj.weight"},
    {"mlp.c_proj.weight", "mlp.down_proj.weight"},
    {"attn.c_attn.bias", "self_attn.q_proj.bias"},
    {"attn.c_attn.bias", "self_attn.k_proj.bias"},
    {"attn.c_attn.bias", "self_attn.v_proj.bias"},
    {"attn.c_proj.bias", "self_attn.o_proj.bias"},
    {"mlp.c_fc.bias", "mlp.gate_proj.bias"},
    {"mlp.c_fc.bias", "mlp.up_proj.bias"},
    {"mlp.c_proj.bias", "mlp.down_proj.bias"},
}};

// for example "h.0.attn.c_attn.weight"
bool is_conv1d(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEnds = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                     ".mlp.c_proj.weight"};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return name.ends_with(end); });
}

FileTensor gpt2_tensor(const WholeTensor& ours) {
  const bool transposed = is_conv1d(ours.name);
  return {ours.name, transposed ? Shape(ours.shape.rbegin(), ours.shape.rend()) : ours.shape, transposed};
}

std::int64_t rows_of(const workload::Model& model, std::string_view theirs, const WholeTensor& ours) {
  const std::string_view layer = theirs.substr(0, theirs.rfind('.'));
  if (layer == "self_attn.q_proj") return model.heads * model.head_size;
  if (layer == "self_attn.k_proj" || layer == "self_attn.v_proj") return model.kv_heads * model.head_size;
  if (layer == "mlp.gate_proj" || layer == "mlp.up_proj") return model.ffn_hidden;
  return ours.shape.front();
}

std::vector<FileTensor> llama_tensors(const workload::Model& model, const WholeTensor& ours) {
  if (ours.name == "wte.weight") return {{"model.embed_tokens.weight", ours.shape}};
  if (ours.name == "ln_f.weight") return {{"model.norm.weight", ours.shape}};
  if (ours.name == kHead) return {{kHead, ours.shape}};
  const std::size_t point = ours.name.find('.', 2);  // of "h.12.ln_1.weight"
  LOCKSTEP_CHECK(ours.name.starts_with("h.") && point != std::string::npos, "a tensor of a layer: " + ours.name);
  const std::string layer = "model.layers." + ours.name.substr(2, point - 1);
  std::vector<FileTensor> parts;
  std::int64_t row = 0;
  for (const LlamaName& name : kLlamaNames) {
    if (name.ours != std::string_view(ours.name).substr(point + 1)) continue;
    Shape shape = ours.shape;
    shape.front() = rows_of(model, name.theirs, ours);
    parts.push_back({layer + std::string(name.theirs), shape});
    row += shape.front();
  }
  LOCKSTEP_CHECK(row == ours.shape.front(), "all rows of " + ours.name);
  return parts;
}

bool is_gpt2(const workload::Model& model) {
  return model.experts == 0 && !model.gated && model.biases && model.learned_positions &&
         model.norm == workload::Norm::layer && model.kv_heads == model.heads &&
         model.heads * model.head_size == model.hidden;
}
bool is_llama(const workload::Model& model) {
  return model.experts == 0 && model.gated && !model.learned_positions && model.norm == workload::Norm::rms &&
         model.rope_pairs == workload::RopePairs::halves;
}

const TensorInfo* find(const HuggingFaceNames& names, const WeightFiles& file, const std::string& name) {
  for (const std::string& at : {name, names.other_name(name)}) {
    if (const TensorInfo* const found = file.find(at)) return found;
  }
  // A tied matrix may have the name of either of its uses.
  return names.tied() && name == names.words() ? file.find(kHead) : nullptr;
}

const TensorInfo& require(const HuggingFaceNames& names, const WeightFiles& file, const std::string& name) {
  if (const TensorInfo* const found = find(names, file, name)) return *found;
  throw core::usage_error(fmt::format("{} has no tensor \"{}\" or \"{}\"", file.path(), name, names.other_name(name)));
}

std::vector<float> read_all(const WeightFiles& file, const TensorInfo& info) {
  std::vector<float> values(static_cast<std::size_t>(info.elems()));
  file.read(info, 0, values);
  return values;
}

const TensorInfo& fitting(const HuggingFaceNames& names, const WeightFiles& file, const FileTensor& part) {
  const TensorInfo& info = require(names, file, part.name);
  if (info.shape == part.shape) return info;
  throw core::usage_error(fmt::format("{}: tensor \"{}\" is {}, the model's is {}", file.file_of(info), info.name,
                                      shape_text(info.shape), shape_text(part.shape)));
}

// Reads a tensor in our layout.
std::vector<float> read_ours(const HuggingFaceNames& names, const WeightFiles& file, const WholeTensor& tensor) {
  std::vector<float> all;
  for (const FileTensor& part : names.tensors_of(tensor)) {
    std::vector<float> values = read_all(file, fitting(names, file, part));
    if (part.transposed) values = transposed(values, part.shape[0], part.shape[1]);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void check_head(const HuggingFaceNames& names, const WeightFiles& file) {
  const TensorInfo* const head = file.find(kHead);
  if (head == nullptr || !names.tied()) return;
  const TensorInfo& words = require(names, file, names.words());
  if (head == &words || (head->shape == words.shape && read_all(file, *head) == read_all(file, words))) return;
  throw core::usage_error(file.path() + ": lm_head.weight is not " + words.name +
                          "; allowed: a model whose head is the word embedding");
}

}  // namespace

HuggingFaceNames::HuggingFaceNames(const workload::Model& model)
    : model_(model), llama_(is_llama(model)), words_(llama_ ? "model.embed_tokens.weight" : "wte.weight") {
  if (llama_ || is_gpt2(model)) return;
  throw core::usage_error("model " + model.name +
                          " is neither Hugging Face's GPT-2 nor its Llama, which --init-from and --export take; "
                          "allowed: experts=0, and all of biases, learned positions and norm=layer, or gated=yes, "
                          "norm=rms and rotary positions of halves");
}

std::vector<FileTensor> HuggingFaceNames::tensors_of(const WholeTensor& ours) const {
  if (llama_) return llama_tensors(model_, ours);
  return {gpt2_tensor(ours)};
}

std::string HuggingFaceNames::other_name(const std::string& name) const {
  const std::string prefix = llama_ ? "model." : "transformer.";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : prefix + name;
}

// One more than the largest i of names "h.i....", or "layers.i....".
std::int64_t HuggingFaceNames::layers_in(const WeightFiles& file) const {
  const std::string beginning = llama_ ? "layers." : "h.";
  const std::string prefix = llama_ ? "model." : "transformer.";
  std::int64_t layers = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    std::string_view name = tensor.name;
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    if (!name.starts_with(beginning)) continue;
    std::int64_t layer = -1;
    std::from_chars(name.data() + beginning.size(), name.data() + name.size(), layer);
    layers = std::max(layers, layer + 1);
  }
  return layers;
}

Integers HuggingFaceNames::sizes_in(const WeightFiles& file) const {
  const auto matrix = [&](const std::string& name) {
    const TensorInfo& info = require(*this, file, name);
    if (info.shape.size() == 2) return info.shape;
    throw core::usage_error(file.path() + ": tensor \"" + info.name + "\" is not a matrix");
  };
  const Shape words = matrix(words_);
  Integers sizes{{"layers", layers_in(file)}, {"hidden", words[1]}, {"vocabulary", words[0]}};
  if (!llama_) sizes["length"] = matrix("wpe.weight")[0];
  return sizes;
}

Integers HuggingFaceNames::sizes() const {
  Integers sizes{{"layers", model_.layers}, {"hidden", model_.hidden}, {"vocabulary", model_.vocabulary}};
  if (!llama_) sizes["length"] = model_.positions;
  return sizes;
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

void write_hugging_face(const HuggingFaceNames& names, const std::string& path, std::span<const WholeTensor> tensors,
                        const std::function<void(std::size_t tensor, std::span<float> values)>& whole) {
  std::vector<TensorInfo> infos;
  for (const WholeTensor& tensor : tensors) {
    for (const FileTensor& part : names.tensors_of(tensor)) {
      infos.push_back({.name = part.name, .dtype = "F32", .shape = part.shape});
    }
  }
  SafetensorsWriter writer(path, std::move(infos), {{"format", "pt"}});  // transformers refuses a file without this
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<float> values(static_cast<std::size_t>(elems_of(tensors[t].shape)));
    whole(t, values);
    std::span<const float> left = values;  // the parts together contain the rows in order
    for (const FileTensor& part : names.tensors_of(tensors[t])) {
      const auto of_part = left.first(static_cast<std::size_t>(elems_of(part.shape)));
      left = left.subspan(of_part.size());
      std::vector<float> turned;
      if (part.transposed) turned = transposed(of_part, part.shape[1], part.shape[0]);
      writer.write(std::as_bytes(part.transposed ? std::span<const float>(turned) : of_part));
    }
  }
  writer.commit();
}

void export_hugging_face(const HuggingFaceNames& names, Checkpoint& checkpoint, const std::string& path) {
  std::vector<WholeTensor> ours;    // "master.wte.weight"
  std::vector<WholeTensor> theirs;  // "wte.weight"
  for (const auto& [name, shape] : checkpoint.tensors()) {
    if (!name.starts_with(kMaster)) continue;
    ours.push_back({name, shape});
    theirs.push_back({name.substr(kMaster.size()), shape});
  }
  write_hugging_face(names, path, theirs, [&](std::size_t tensor, std::span<float> values) {
    const std::array<Piece, 1> whole = {{{tensor, 0, static_cast<std::int64_t>(values.size()), values.data()}}};
    checkpoint.read(ours, whole);
  });
}

void read_hugging_face(const HuggingFaceNames& names, const WeightFiles& file, std::span<const WholeTensor> tensors,
                       std::span<const Piece> pieces) {
  check_head(names, file);
  std::map<std::size_t, std::vector<Piece>> by_tensor;
  for (const Piece& piece : pieces) by_tensor[piece.tensor].push_back(piece);
  for (const auto& [tensor, list] : by_tensor) {
    const std::vector<float> values = read_ours(names, file, tensors[tensor]);
    for (const Piece& piece : list) std::copy_n(values.begin() + piece.whole_begin, piece.count, piece.data);
  }
}

namespace {

// Tensors that files of published models have alongside the weights: rotary frequencies, masks and positions, which the
// configuration determines (transformers ignores them: _keys_to_ignore_on_load_unexpected).
constexpr std::array<std::string_view, 6> kBuffers = {"rotary_emb.inv_freq",   "rotary_emb.cos_cached",
                                                      "rotary_emb.sin_cached", ".attn.bias",
                                                      ".attn.masked_bias",     "position_ids"};

bool is_buffer(const TensorInfo& tensor) {
  return std::any_of(kBuffers.begin(), kBuffers.end(), [&](std::string_view end) {
    const bool is_mask = end != ".attn.bias" || tensor.shape.size() == 4;  // a bias has one axis
    return is_mask && tensor.name.ends_with(end);
  });
}

std::vector<FileTensor> file_tensors_of(const HuggingFaceNames& names, const workload::Model& model) {
  std::vector<FileTensor> all;
  for (const workload::Parameter& ours : parameters_of(model, {}, slice_of(model, {}, 1, 0))) {
    for (FileTensor& theirs : names.tensors_of({ours.name, ours.shape})) all.push_back(std::move(theirs));
  }
  return all;
}

// "model.layers.*.mlp.up_proj.bias" of a layer's name.
std::string without_numbers(const std::string& name) {
  std::string kind;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool is_number =
        begin > 0 && end < name.size() && !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    kind.append(begin > 0 ? "." : "").append(is_number ? "*" : part);
    begin = end + 1;
  }
  return kind;
}

// Names and counts the tensors of the file that are neither the model's nor buffers; empty: there are none.
std::string unused_in(const WeightFiles& file, const HuggingFaceNames& names, const workload::Model& model) {
  std::set<const TensorInfo*> used;
  for (const FileTensor& theirs : file_tensors_of(names, model)) used.insert(find(names, file, theirs.name));
  if (names.tied()) used.insert(file.find(kHead));
  std::map<std::string, std::int64_t> kinds;  // "model.layers.*.mlp.up_proj.bias": 2
  std::int64_t count = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (used.count(&tensor) != 0 || is_buffer(tensor)) continue;
    ++kinds[without_numbers(tensor.name)];
    ++count;
  }
  std::string text = fmt::format("{} tensors have no place in the model:", count);
  for (const auto& [kind, times] : kinds) {
    text += &kind == &kinds.begin()->first ? " " : ", ";
    text += fmt::format("{} ({})", kind, times);
  }
  return count == 0 ? "" : text;
}

}  // namespace

std::string check_model_folder(const WeightFiles& file, const workload::Model& model) {
  const HuggingFaceNames names(model);
  const ConfigFindings config = config_for(file.path(), model);
  if (config.problems.empty()) require_same(file.path(), names.sizes_in(file), names.sizes());
  std::vector<std::string> problems;
  if (!config.problems.empty())
    problems.push_back(fmt::format("{}: {}", config.file, fmt::join(config.problems, "; ")));
  const std::string unused = unused_in(file, names, model);
  if (!unused.empty()) problems.push_back(file.path() + ": " + unused);
  if (!problems.empty()) {
    throw core::usage_error(fmt::format("{}; allowed: weights of the same model", fmt::join(problems, "; ")));
  }
  for (const FileTensor& theirs : file_tensors_of(names, model)) fitting(names, file, theirs);
  check_head(names, file);
  if (config.unknown.empty()) return "";
  return fmt::format("{}: {} unknown setting{} not used: {}", config.file, config.unknown.size(),
                     config.unknown.size() == 1 ? " is" : "s are", fmt::join(config.unknown, ", "));
}

}  // namespace lockstep::trainer
