#include "trainer/checkpoint/gpt2_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/narrow_float.h"
#include "trainer/checkpoint/ranks_for_tests.h"

namespace lockstep::trainer {
namespace {

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

void write_known(const std::string& path, const std::vector<WholeTensor>& tensors, core::DType dtype) {
  write_gpt2(path, tensors, dtype, [](std::size_t tensor, std::span<float> values) {
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = known_value(tensor, static_cast<std::int64_t>(k), 0);
  });
}

// A copy of a file with names changed and tensors added.
void rewrite(const std::string& from, const std::string& to, const std::string& prefix,
             const std::map<std::string, std::vector<float>>& more) {
  const SafetensorsFile file(from);
  std::vector<TensorInfo> infos;
  for (const TensorInfo& tensor : file.tensors()) infos.push_back({prefix + tensor.name, "F32", tensor.shape});
  for (const auto& [name, values] : more) {
    infos.push_back({name, "F32", {static_cast<std::int64_t>(values.size()) / 4, 4}});
  }
  SafetensorsWriter writer(to, infos, {});
  for (const TensorInfo& tensor : file.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elems()));
    file.read(tensor, 0, values);
    writer.write(std::as_bytes(std::span(values)));
  }
  for (const auto& [name, values] : more) writer.write(std::as_bytes(std::span(values)));
  writer.commit();
}

TEST(Gpt2File, MatricesOfConv1DAreTransposedAndOthersAreNot) {
  const TemporaryFolder folder;
  const auto tensors = small_gpt2();
  write_known(folder / "m", tensors, core::DType::f32);
  const SafetensorsFile file(folder / "m");
  EXPECT_EQ(file.metadata().at("format"), "pt");
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
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
    write_known(folder / "plain", tensors, dtype);
    rewrite(folder / "plain", folder / "prefixed", "transformer.", {});
    for (const char* name : {"plain", "prefixed"}) {
      const SafetensorsFile file(folder / name);
      EXPECT_EQ(gpt2_sizes(file), (Integers{{"layers", 2}, {"hidden", 4}, {"vocabulary", 7}, {"length", 5}}));
      for (Share& share : random_shares(tensors, 3, random)) {
        read_gpt2(file, tensors, share.pieces);
        for (const Piece& piece : share.pieces) {
          for (std::int64_t k = 0; k < piece.count; ++k) {
            const float x = known_value(piece.tensor, piece.whole_begin + k, 0);
            const float expected = dtype == core::DType::f32    ? x
                                   : dtype == core::DType::bf16 ? core::to_float(core::to_bfloat16(x))
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
  write_known(folder / "m", tensors, core::DType::f32);
  std::vector<float> words(28);
  for (std::size_t k = 0; k < 28; ++k) words[k] = known_value(0, static_cast<std::int64_t>(k), 0);
  rewrite(folder / "m", folder / "tied", "transformer.", {{"lm_head.weight", words}});
  Share share = whole_share(tensors);
  read_gpt2(SafetensorsFile(folder / "tied"), tensors, share.pieces);
  EXPECT_EQ(share.wrong(0), 0);
  words[5] += 1;
  rewrite(folder / "m", folder / "untied", "transformer.", {{"lm_head.weight", words}});
  EXPECT_EQ(error_of([&] { read_gpt2(SafetensorsFile(folder / "untied"), tensors, share.pieces); }),
            folder / "untied" +
                ": lm_head.weight is not transformer.wte.weight; allowed: a model whose head is the word embedding");
}

TEST(Gpt2File, WhatDoesNotFitTheModelIsRefused) {
  const TemporaryFolder folder;
  auto tensors = small_gpt2();
  write_known(folder / "m", tensors, core::DType::f32);
  const SafetensorsFile file(folder / "m");
  tensors[0].shape = {8, 4};
  Share share = whole_share(tensors);
  EXPECT_EQ(error_of([&] { read_gpt2(file, tensors, share.pieces); }),
            folder / "m" + ": tensor \"wte.weight\" is [7, 4], the model's is [8, 4]");
  tensors[0] = {"h.2.ln_1.bias", {4}};
  share = whole_share(tensors);
  EXPECT_EQ(error_of([&] { read_gpt2(file, tensors, share.pieces); }),
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
  export_gpt2(checkpoint, folder / "m", core::DType::f32);
  Share share = whole_share(tensors);
  read_gpt2(SafetensorsFile(folder / "m"), tensors, share.pieces);
  EXPECT_EQ(share.wrong(0), 0);
  EXPECT_EQ(SafetensorsFile(folder / "m").tensors().size(), tensors.size());
}

}  // namespace
}  // namespace lockstep::trainer
