// Writes results of the stages of GPT-2 and of Llama, so that tests/test_gpt.py can compare them with the same models
// in PyTorch, in f64.
//   gpt_dump FOLDER               a case is a folder in FOLDER with case.json (sizes, loss), tokens and targets of each
//                                 microbatch, and weights/NAME.npy and gradients/NAME.npy
//   gpt_dump MODEL FILE FOLDER    FOLDER/tokens.npy, and FOLDER/logits.npy of a model whose weights are in FILE, in
//                                 Hugging Face's layout
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/base/thread_pool.h"
#include "testing/trainer/model.h"
#include "tests/npy.h"
#include "trainer/checkpoint/hugging_face.h"
#include "trainer/model/gpt_stage.h"

namespace {

namespace fs = std::filesystem;
using lockstep::core::DType;
using lockstep::tests::write_npy;
using lockstep::trainer::GptShape;
using lockstep::trainer::tests::Model;
using lockstep::trainer::tests::ModelOptions;
using lockstep::trainer::tests::random_text;
using lockstep::workload::Recompute;

template <class T>
std::vector<double> in_f64(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

struct Case {
  std::string name;
  ModelOptions options;
};

std::vector<Case> cases() {
  const ModelOptions plain{
      .shape = {.model = lockstep::workload::parse_model(
                    "layers=3,hidden=48,heads=4,vocabulary=97,sequence=24,positions=40,dropout=no"),
                .layout = {.microbatch_size = 2, .early_stop = true, .compute = DType::f32}},
      .microbatches = 2};
  std::vector<Case> all;
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    all.push_back({std::string(lockstep::core::short_name_of(compute)), plain});
    all.back().options.shape.layout.compute = compute;
  }
  Case spread{"f32_spread", plain};
  spread.options.shape.tensor.ranks = 2;
  spread.options.shape.layout.sequence_parallel = true;
  spread.options.shape.layout.recompute = Recompute::full;
  spread.options.stages = 3;
  spread.options.split = true;
  all.push_back(spread);
  Case llama{"llama", plain};
  llama.options.shape.model = lockstep::workload::parse_model(
      "layers=3,hidden=48,heads=4,kv_heads=2,head_size=16,ffn_hidden=112,vocabulary=97,sequence=24,dropout=no,gated="
      "yes,"
      "norm=rms,biases=no,learned_positions=no,tied_embeddings=no,rope_theta=1000");
  all.push_back(llama);
  Case neighbours{"llama_neighbours", llama.options};
  neighbours.options.shape.model.rope_pairs = lockstep::workload::RopePairs::neighbours;
  all.push_back(neighbours);
  Case spread_llama{"llama_spread", spread.options};
  spread_llama.options.shape.model = llama.options.shape.model;
  all.push_back(spread_llama);
  return all;
}

void write_text(const fs::path& folder, const ModelOptions& options) {
  for (std::int32_t m = 0; m < options.microbatches; ++m) {
    const auto text = random_text(options.shape, m);
    write_npy(folder / ("tokens" + std::to_string(m) + ".npy"), in_f64(text.tokens));
    write_npy(folder / ("targets" + std::to_string(m) + ".npy"), in_f64(text.targets));
  }
}

void dump(const fs::path& folder, const Case& one) {
  fs::create_directories(folder / "weights");
  fs::create_directories(folder / "gradients");
  lockstep::kernels::ThreadPool pool(1);
  Model model(pool, one.options);
  const double loss = model.step();
  nlohmann::json parameters = nlohmann::json::object();
  for (const auto& parameter : model.parameters()) {
    parameters[parameter.name] = parameter.shape;
    write_npy(folder / "weights" / (parameter.name + ".npy"), in_f64(model.weight(parameter.name)));
    write_npy(folder / "gradients" / (parameter.name + ".npy"), in_f64(model.gradient(parameter.name)));
  }
  write_text(folder, one.options);
  const GptShape& shape = one.options.shape;
  std::ofstream(folder / "case.json") << nlohmann::json{{"name", one.name},
                                                        {"layers", shape.model.layers},
                                                        {"heads", shape.model.heads},
                                                        {"kv_heads", shape.model.kv_heads},
                                                        {"rope_theta", shape.model.rope_theta},
                                                        {"length", shape.model.sequence},
                                                        {"loss", loss},
                                                        {"microbatches", one.options.microbatches},
                                                        {"parameters", parameters}};
}

void dump_logits(const std::string& model_text, const std::string& path, const fs::path& folder) {
  const ModelOptions options{.shape = {.model = lockstep::workload::parse_model(model_text),
                                       .layout = {.microbatch_size = 2, .compute = DType::f32}}};
  lockstep::kernels::ThreadPool pool(1);
  Model model(pool, options);
  const lockstep::trainer::HuggingFaceNames names(options.shape.model);
  const lockstep::trainer::WeightFiles file(path);
  for (const auto& parameter : model.parameters()) {
    const std::vector<lockstep::trainer::WholeTensor> whole{{parameter.name, parameter.shape}};
    std::vector<float> values(static_cast<std::size_t>(parameter.elems()));
    const std::vector<lockstep::trainer::Piece> piece{{0, 0, parameter.elems(), values.data()}};
    read_hugging_face(names, file, whole, piece);
    model.change_weight(parameter.name, [&](std::int64_t i, float) { return values[static_cast<std::size_t>(i)]; });
  }
  model.step(lockstep::trainer::Mode::generate);
  write_npy(folder / "logits.npy", in_f64(model.logits().front()));
  write_npy(folder / "tokens.npy", in_f64(random_text(options.shape, 0).tokens));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: gpt_dump FOLDER | gpt_dump MODEL FILE FOLDER\n");
    return 6;
  }
  try {
    if (argc == 4) {
      dump_logits(argv[1], argv[2], argv[3]);
      return 0;
    }
    for (const Case& one : cases()) dump(fs::path(argv[1]) / one.name, one);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpt_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
