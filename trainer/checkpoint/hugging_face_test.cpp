#include "trainer/checkpoint/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "core/dtype.h"
#include "core/error.h"
#include "testing/core/fixtures.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "workload/layout.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
namespace {

HuggingFaceNames gpt2() {
  return HuggingFaceNames(workload::parse_model("layers=2,hidden=4,heads=2,vocabulary=7,sequence=5,dropout=no"));
}

// A GPT-2 of two layers: 7 words, 5 positions, 4 hidden.
std::vector<WholeTensor> small_gpt2() {
  std::vector<WholeTensor> all = {{"wte.weight", {7, 4}}, {"wpe.weight", {5, 4}}};
  for (const std::string layer : {"h.0.", "h.1."}) {
    const std::vector<WholeTensor> of_layer = {{"ln_1.weight", {4}},
                                               {"ln_1.bias", {4}},
                                               {"attn.c_attn.weight", {12, 4}},
                                               {"attn.c_attn.bias", {12}},
                                               {"attn.c_proj.weight", {4, 4}},
                                               {"attn.c_proj.bias", {4}},
                                               {"ln_2.weight", {4}},
                                               {"ln_2.bias", {4}},
                                               {"mlp.c_fc.weight", {16, 4}},
                                               {"mlp.c_fc.bias", {16}},
                                               {"mlp.c_proj.weight", {4, 16}},
                                               {"mlp.c_proj.bias", {4}}};
    for (const WholeTensor& tensor : of_layer) all.push_back({layer + tensor.name, tensor.shape});
  }
  all.push_back({"ln_f.weight", {4}});
  all.push_back({"ln_f.bias", {4}});
  return all;
}

// `first`: number of the first tensor among all.
void write_known(const HuggingFaceNames& names, const std::string& path, const std::vector<WholeTensor>& tensors,
                 std::size_t first = 0) {
  write_hugging_face(names, path, tensors, [first](std::size_t tensor, std::span<float> values) {
    std::int64_t k = 0;
    for (float& value : values) value = known_value(first + tensor, k++, 0);
  });
}

// A copy of an F32 file with names changed, tensors added and another dtype.
void rewrite(const std::string& from, const std::string& to, const std::string& prefix,
             const std::map<std::string, std::vector<float>>& more, const std::string& dtype = "F32") {
  const WeightFiles file(from);
  std::vector<TensorInfo> infos;
  for (const TensorInfo& tensor : file.tensors()) infos.push_back({prefix + tensor.name, dtype, tensor.shape});
  for (const auto& [name, values] : more) {
    infos.push_back({name, "F32", {static_cast<std::int64_t>(values.size()) / 4, 4}});
  }
  SafetensorsWriter writer(to, infos, {});
  for (const TensorInfo& tensor : file.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elems()));
    file.read(tensor, 0, values);
    std::vector<std::uint16_t> narrow;
    for (const float x : values)
      narrow.push_back(dtype == "BF16" ? core::to_bfloat16(x).bits : core::to_float16(x).bits);
    writer.write(dtype == "F32" ? std::as_bytes(std::span(values)) : std::as_bytes(std::span(narrow)));
  }
  for (const auto& [name, values] : more) writer.write(std::as_bytes(std::span(values)));
  writer.commit();
}

TEST(Gpt2File, MatricesOfConv1DAreTransposedAndOthersAreNot) {
  const TemporaryFolder folder;
  const auto tensors = small_gpt2();
  write_known(gpt2(), folder / "m", tensors);
  const WeightFiles file(folder / "m");
  EXPECT_EQ(SafetensorsFile(folder / "m").metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.find("h.0.attn.c_attn.weight")->shape, (Shape{4, 12}));
  EXPECT_EQ(file.find("h.1.mlp.c_proj.weight")->shape, (Shape{16, 4}));
  EXPECT_EQ(file.find("wte.weight")->shape, (Shape{7, 4}));
  const auto at = [&](const std::string& name) {
    return static_cast<std::size_t>(
        std::find_if(tensors.begin(), tensors.end(), [&](auto& t) { return t.name == name; }) - tensors.begin());
  };
  std::vector<float> theirs(48);
  file.read(*file.find("h.0.attn.c_attn.weight"), 0, theirs);
  for (std::int64_t output = 0; output < 12; ++output) {
    for (std::int64_t input = 0; input < 4; ++input) {
      EXPECT_EQ(theirs[static_cast<std::size_t>(input * 12 + output)],
                known_value(at("h.0.attn.c_attn.weight"), output * 4 + input, 0));
    }
  }
  std::vector<float> words(28);
  file.read(*file.find("wte.weight"), 0, words);
  for (std::size_t k = 0; k < 28; ++k) EXPECT_EQ(words[k], known_value(0, static_cast<std::int64_t>(k), 0));
}

TEST(Gpt2File, PiecesOfAnyRanksAreReadFromAnyDtypeAndNames) {
  const TemporaryFolder folder;
  const auto tensors = small_gpt2();
  core::Random random(6);
  write_known(gpt2(), folder / "f32", tensors);
  for (const std::string dtype : {"F32", "BF16", "F16"}) {
    rewrite(folder / "f32", folder / "plain", "", {}, dtype);
    rewrite(folder / "f32", folder / "prefixed", "transformer.", {}, dtype);
    for (const char* name : {"plain", "prefixed"}) {
      const WeightFiles file(folder / name);
      EXPECT_EQ(gpt2().sizes_in(file), (Integers{{"layers", 2}, {"hidden", 4}, {"vocabulary", 7}, {"length", 5}}));
      for (Share& share : random_shares(tensors, 3, random)) {
        read_hugging_face(gpt2(), file, tensors, share.pieces);
        for (const Piece& piece : share.pieces) {
          for (std::int64_t k = 0; k < piece.count; ++k) {
            const float x = known_value(piece.tensor, piece.whole_begin + k, 0);
            const float expected = dtype == "F32"    ? x
                                   : dtype == "BF16" ? core::to_float(core::to_bfloat16(x))
                                                     : core::to_float(core::to_float16(x));
            ASSERT_EQ(piece.data[k], expected);
          }
        }
      }
    }
  }
}

TEST(Gpt2File, AHeadThatIsTheWordEmbeddingIsFineAndAnotherIsRefused) {
  const TemporaryFolder folder;
  const auto tensors = small_gpt2();
  write_known(gpt2(), folder / "m", tensors);
  std::vector<float> words(28);
  for (std::size_t k = 0; k < 28; ++k) words[k] = known_value(0, static_cast<std::int64_t>(k), 0);
  rewrite(folder / "m", folder / "tied", "transformer.", {{"lm_head.weight", words}});
  Share share = whole_share(tensors);
  read_hugging_face(gpt2(), WeightFiles(folder / "tied"), tensors, share.pieces);
  EXPECT_EQ(share.wrong(0), 0);
  words[5] += 1;
  rewrite(folder / "m", folder / "untied", "transformer.", {{"lm_head.weight", words}});
  EXPECT_EQ(error_of([&] { read_hugging_face(gpt2(), WeightFiles(folder / "untied"), tensors, share.pieces); }),
            folder / "untied" +
                ": lm_head.weight is not transformer.wte.weight; allowed: a model whose head is the word embedding");
}

TEST(Gpt2File, WhatDoesNotFitTheModelIsRefused) {
  const TemporaryFolder folder;
  auto tensors = small_gpt2();
  write_known(gpt2(), folder / "m", tensors);
  const WeightFiles file(folder / "m");
  tensors[0].shape = {8, 4};
  Share share = whole_share(tensors);
  EXPECT_EQ(error_of([&] { read_hugging_face(gpt2(), file, tensors, share.pieces); }),
            folder / "m" + ": tensor \"wte.weight\" is [7, 4], the model's is [8, 4]");
  tensors[0] = {"h.2.ln_1.bias", {4}};
  share = whole_share(tensors);
  EXPECT_EQ(error_of([&] { read_hugging_face(gpt2(), file, tensors, share.pieces); }),
            folder / "m" + " has no tensor \"h.2.ln_1.bias\" or \"transformer.h.2.ln_1.bias\"");
}

// A checkpoint of three ranks, exported and read back.
TEST(Gpt2File, ACheckpointsMasterWeightsAreExported) {
  const TemporaryFolder folder;
  const auto tensors = small_gpt2();
  std::vector<WholeTensor> state;
  for (const char* prefix : {"master.", "first_moment."}) {
    for (const WholeTensor& tensor : tensors) state.push_back({prefix + tensor.name, tensor.shape});
  }
  core::Random random(2);
  std::vector<Share> shares = random_shares(state, 3, random);
  for (Share& share : shares) share.fill(0);
  const auto errors = run_writers(3, [&](const CheckpointRanks& ranks) {
    save_checkpoint(folder / "run", {.step = 1}, state, shares[static_cast<std::size_t>(ranks.rank)].pieces, ranks, 1);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  Checkpoint checkpoint(folder / "run");
  export_hugging_face(gpt2(), checkpoint, folder / "m");
  Share share = whole_share(tensors);
  read_hugging_face(gpt2(), WeightFiles(folder / "m"), tensors, share.pieces);
  EXPECT_EQ(share.wrong(0), 0);
  EXPECT_EQ(WeightFiles(folder / "m").tensors().size(), tensors.size());
}

// ---- Llama

// Two layers: 7 words, 4 hidden, two heads of queries and one of keys, 2 columns each, an MLP of 6.
workload::Model small_llama(const char* changes = "") {
  return workload::parse_model(std::string("layers=2,hidden=4,heads=2,kv_heads=1,ffn_hidden=6,vocabulary=7,sequence=5,"
                                           "dropout=no,gated=yes,norm=rms,biases=no,learned_positions=no") +
                               changes);
}

std::vector<WholeTensor> tensors_of_llama(bool tied) {
  std::vector<WholeTensor> all = {{"wte.weight", {7, 4}}};
  for (const std::string layer : {"h.0.", "h.1."}) {
    const std::vector<WholeTensor> of_layer = {{"ln_1.weight", {4}},           {"attn.c_attn.weight", {8, 4}},
                                               {"attn.c_proj.weight", {4, 4}}, {"ln_2.weight", {4}},
                                               {"mlp.c_fc.weight", {12, 4}},   {"mlp.c_proj.weight", {4, 6}}};
    for (const WholeTensor& tensor : of_layer) all.push_back({layer + tensor.name, tensor.shape});
  }
  all.push_back({"ln_f.weight", {4}});
  if (!tied) all.push_back({"lm_head.weight", {7, 4}});
  return all;
}

TEST(LlamaFile, NamesAndPartsAreHuggingFaces) {
  const TemporaryFolder folder;
  const auto tensors = tensors_of_llama(false);
  const HuggingFaceNames names(small_llama(",tied_embeddings=no"));
  write_known(names, folder / "m", tensors);
  const WeightFiles file(folder / "m");
  EXPECT_EQ(file.tensors().size(), 1 + 2 * 9 + 2U);
  EXPECT_EQ(names.sizes_in(file), (Integers{{"layers", 2}, {"hidden", 4}, {"vocabulary", 7}}));
  // Queries, keys and values are the rows 0 to 3, 4 and 5, 6 and 7 of ours; gate and up 0 to 5 and 6 to 11.
  const auto expect_rows = [&](const std::string& name, std::size_t tensor, std::int64_t first_row, std::int64_t rows) {
    const TensorInfo* const found = file.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->shape, (Shape{rows, 4})) << name;
    std::vector<float> values(static_cast<std::size_t>(rows * 4));
    file.read(*found, 0, values);
    for (std::int64_t k = 0; k < rows * 4; ++k) {
      EXPECT_EQ(values[static_cast<std::size_t>(k)], known_value(tensor, first_row * 4 + k, 0)) << name;
    }
  };
  expect_rows("model.embed_tokens.weight", 0, 0, 7);
  expect_rows("model.layers.0.self_attn.q_proj.weight", 2, 0, 4);
  expect_rows("model.layers.0.self_attn.k_proj.weight", 2, 4, 2);
  expect_rows("model.layers.0.self_attn.v_proj.weight", 2, 6, 2);
  expect_rows("model.layers.1.self_attn.o_proj.weight", 9, 0, 4);
  expect_rows("model.layers.1.mlp.gate_proj.weight", 11, 0, 6);
  expect_rows("model.layers.1.mlp.up_proj.weight", 11, 6, 6);
  expect_rows("lm_head.weight", 14, 0, 7);
  EXPECT_EQ(file.find("model.layers.1.mlp.down_proj.weight")->shape, (Shape{4, 6}));
  for (const char* norm : {"model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
                           "model.norm.weight"}) {
    EXPECT_NE(file.find(norm), nullptr) << norm;
  }
  Share share = whole_share(tensors);
  read_hugging_face(names, file, tensors, share.pieces);
  EXPECT_EQ(share.wrong(0), 0);
}

TEST(LlamaFile, ATiedHeadIsNotWrittenAndMayBeThere) {
  const TemporaryFolder folder;
  const HuggingFaceNames tied(small_llama());
  const HuggingFaceNames untied(small_llama(",tied_embeddings=no"));
  const auto tensors = tensors_of_llama(true);
  write_known(tied, folder / "tied", tensors);
  const WeightFiles file(folder / "tied");
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  Share share = whole_share(tensors_of_llama(false));
  EXPECT_EQ(error_of([&] { read_hugging_face(untied, file, tensors_of_llama(false), share.pieces); }),
            folder / "tied" + " has no tensor \"lm_head.weight\" or \"model.lm_head.weight\"");
  write_known(untied, folder / "untied", tensors_of_llama(false));
  share = whole_share(tensors);
  EXPECT_NE(error_of([&] {
              read_hugging_face(tied, WeightFiles(folder / "untied"), tensors, share.pieces);
            }).find("lm_head.weight is not model.embed_tokens.weight"),
            std::string::npos);
}

TEST(WeightFiles, OfAnIndexAreOneModel) {
  const TemporaryFolder folder;
  const auto tensors = small_gpt2();
  const std::vector<WholeTensor> first(tensors.begin(), tensors.begin() + 5);
  const std::vector<WholeTensor> second(tensors.begin() + 5, tensors.end());
  write_known(gpt2(), folder / "model-00001-of-00002.safetensors", first);
  write_known(gpt2(), folder / "model-00002-of-00002.safetensors", second, 5);
  const auto write_index = [&](const std::string& of_second) {
    std::string map;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::string file = t < 5 ? "model-00001-of-00002.safetensors" : of_second;
      map += (t == 0 ? "\"" : ",\"") + tensors[t].name + "\":\"" + file + "\"";
    }
    std::ofstream(folder / "model.safetensors.index.json") << R"({"metadata":{},"weight_map":{)" << map << "}}";
  };
  write_index("model-00002-of-00002.safetensors");
  for (const std::string& path : {folder / "", folder / "model.safetensors.index.json"}) {
    const WeightFiles files(path);
    EXPECT_EQ(files.tensors().size(), tensors.size());
    Share share = whole_share(tensors);
    read_hugging_face(gpt2(), files, tensors, share.pieces);
    EXPECT_EQ(share.wrong(0), 0);
  }
  const auto refusal = [&] { return error_of([&] { WeightFiles files(folder / ""); }); };
  write_index("model-00003-of-00002.safetensors");
  EXPECT_NE(refusal().find("model-00003-of-00002.safetensors"), std::string::npos);
  write_index("model-00001-of-00002.safetensors");
  EXPECT_NE(refusal().find("is not in model-00001-of-00002.safetensors"), std::string::npos);
  write_index("../elsewhere.safetensors");
  EXPECT_NE(refusal().find("allowed: names of files in its folder"), std::string::npos);
  write_index(R"(model-\n.safetensors)");
  EXPECT_NE(refusal().find(R"(is "model-\n.safetensors"; allowed: names of files)"), std::string::npos) << refusal();
  std::ofstream(folder / "model.safetensors.index.json") << R"({"weight_map":{"\nw":"model.safetensors"}})";
  EXPECT_NE(refusal().find(R"(name "\nw"; allowed: names without control characters)"), std::string::npos) << refusal();
  std::ofstream(folder / "model.safetensors.index.json") << "{}";
  EXPECT_NE(refusal().find("is not an index of weights"), std::string::npos);
}

TEST(LlamaFile, OtherArchitecturesAreRefused) {
  workload::Model other = small_llama();
  other.norm = workload::Norm::layer;
  EXPECT_NE(error_of([&] { HuggingFaceNames names(other); }).find("neither Hugging Face's GPT-2"), std::string::npos);
  EXPECT_NE(error_of([] { HuggingFaceNames names(small_llama(",rope_pairs=neighbours")); }).find("of halves"),
            std::string::npos);
}

// A file with all tensors of a model, and of more.
class ModelFolder : public testing::Test {
 protected:
  void write(const workload::Model& model, const std::vector<TensorInfo>& more = {}, const std::string& without = "",
             const std::string& name = "model.safetensors") const {
    const HuggingFaceNames names(model);
    std::vector<TensorInfo> infos;
    for (const auto& ours : workload::parameters_of(model, {}, workload::slice_of(model, {}, 1, 0))) {
      for (const FileTensor& part : names.tensors_of({ours.name, ours.shape})) {
        if (part.name != without) infos.push_back({part.name, "F32", part.shape});
      }
    }
    infos.insert(infos.end(), more.begin(), more.end());
    SafetensorsWriter writer(folder_ / name, infos, {});
    for (const TensorInfo& tensor : infos) {
      const std::vector<float> values(static_cast<std::size_t>(tensor.elems()), 0.5F);
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.commit();
  }
  std::string found(const workload::Model& model) const {
    return error_of([&] { note_ = check_model_folder(WeightFiles(folder_ / ""), model); });
  }
  std::string file() const { return folder_ / "model.safetensors"; }

  core::TemporaryFolder folder_;
  mutable std::string note_;
};

TEST_F(ModelFolder, TensorsThatNobodyAskedForAreNamedAndCounted) {
  const workload::Model model = small_llama();
  const auto bias = [](const std::string& name) { return TensorInfo{name, "F32", {4}}; };
  write(model, {bias("model.layers.0.self_attn.q_proj.bias"), bias("model.layers.1.self_attn.q_proj.bias"),
                bias("model.layers.0.self_attn.k_norm.weight"), bias("norm.weight")});  // the last: twice
  std::ofstream(folder_ / "config.json") << R"({"model_type": "qwen2", "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
  EXPECT_EQ(found(model),
            folder_ / "config.json" + ": model_type is \"qwen2\", the trainer runs [\"llama\",\"mistral\",null]; " +
                file() +
                ": 4 tensors have no place in the model: model.layers.*.self_attn.k_norm.weight (1), "
                "model.layers.*.self_attn.q_proj.bias (2), norm.weight (1); allowed: weights of the same model");
}

TEST_F(ModelFolder, BuffersOfPublishedModelsAreNoWeights) {
  write(small_llama(), {{"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}},
                        {"model.rotary_emb.inv_freq", "F32", {1}},
                        {"model.layers.1.self_attn.rotary_emb.cos_cached", "F32", {1, 1, 5, 2}}});
  EXPECT_EQ(found(small_llama()), "");
  const workload::Model gpt2 = workload::parse_model("layers=2,hidden=4,heads=2,vocabulary=7,sequence=5,dropout=no");
  write(gpt2, {{"transformer.h.0.attn.bias", "F32", {1, 1, 5, 5}}, {"h.1.attn.masked_bias", "F32", {}}});
  EXPECT_EQ(found(gpt2), "");
  write(gpt2, {{"h.0.attn.bias", "F32", {4}}});
  EXPECT_NE(found(gpt2).find("1 tensors have no place in the model: h.*.attn.bias (1)"), std::string::npos);
}

TEST_F(ModelFolder, ATiedMatrixHasEitherName) {
  const TensorInfo head{"lm_head.weight", "F32", {7, 4}};
  write(small_llama(), {head}, "model.embed_tokens.weight");
  EXPECT_EQ(found(small_llama()), "");
  const workload::Model gpt2 = workload::parse_model("layers=2,hidden=4,heads=2,vocabulary=7,sequence=5,dropout=no");
  write(gpt2, {head}, "wte.weight");
  EXPECT_EQ(found(gpt2), "");
  std::vector<float> values(28);
  const std::vector<Piece> piece{{0, 0, 28, values.data()}};
  read_hugging_face(HuggingFaceNames(gpt2), WeightFiles(file()), std::vector<WholeTensor>{{"wte.weight", {7, 4}}},
                    piece);
  EXPECT_EQ(values, std::vector<float>(28, 0.5F));
  EXPECT_NE(found(small_llama(",tied_embeddings=no")).find("has no tensor"), std::string::npos);
}

TEST_F(ModelFolder, UntiedGpt2AndBiasedLlamaAreTaken) {
  const workload::Model untied =
      workload::parse_model("layers=2,hidden=4,heads=2,vocabulary=7,sequence=5,dropout=no,tied_embeddings=no");
  write(untied);
  EXPECT_NE(WeightFiles(file()).find("lm_head.weight"), nullptr);
  EXPECT_EQ(found(untied), "");
  workload::Model biased = small_llama();
  biased.biases = true;
  write(biased);
  EXPECT_EQ(WeightFiles(file()).find("model.layers.1.mlp.up_proj.bias")->shape, Shape{6});
  EXPECT_EQ(WeightFiles(file()).find("model.layers.0.self_attn.k_proj.bias")->shape, Shape{2});
  EXPECT_EQ(found(biased), "");
  EXPECT_NE(found(small_llama()).find("14 tensors have no place"), std::string::npos);
}

TEST_F(ModelFolder, UnknownSettingsAreANoteAndMissingTensorsAreRefused) {
  write(small_llama());
  std::ofstream(folder_ / "config.json")
      << R"({"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "next": 5, "year": {"a": 1}, "empty": null})";
  EXPECT_EQ(found(small_llama()), "");
  EXPECT_EQ(note_, folder_ / "config.json" + ": 2 unknown settings are not used: next, year");
  write(small_llama(), {}, "model.layers.1.mlp.up_proj.weight");
  EXPECT_NE(found(small_llama()).find("has no tensor \"model.layers.1.mlp.up_proj.weight\""), std::string::npos);
}

TEST_F(ModelFolder, ATensorInTwoFilesOfAnIndexIsRefused) {
  write(small_llama(), {}, "", "a.safetensors");
  write(small_llama(), {}, "", "b.safetensors");
  std::ofstream(folder_ / "model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "a.safetensors", "model.embed_tokens.weight": "b.safetensors"}})";
  EXPECT_NE(found(small_llama()).find("b.safetensors, too; allowed: each tensor in one file"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
