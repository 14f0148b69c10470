// Writes and reads the trainer's files, so that tests/test_checkpoint.py can compare them with the formats.
//   checkpoint_dump write FOLDER     FOLDER/run: a checkpoint of a small GPT-2 by three ranks; FOLDER/model: its
//   export.
//                                    Element k of the t-th parameter is t + k / 1024, of its moments 1000 and 2000
//                                    more.
//   checkpoint_dump read FROM TO     reads a GPT-2 file and writes it again, in f32
//   checkpoint_dump check FILE       reads a safetensors file; prints its number of tensors
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/random.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/hugging_face.h"
#include "trainer/checkpoint/safetensors.h"
#include "workload/parameters.h"

namespace {

namespace core = lockstep::core;
using namespace lockstep::trainer;  // NOLINT(google-build-using-namespace)

const lockstep::workload::Model kConfig =
    lockstep::workload::parse_model("layers=2,hidden=8,heads=2,vocabulary=11,sequence=5,dropout=no");

std::vector<WholeTensor> tensors_of(const std::string& prefix) {
  std::vector<WholeTensor> all;
  for (const auto& parameter : parameters_of(kConfig, {}, slice_of(kConfig, {}, 1, 0))) {
    all.push_back({prefix + parameter.name, parameter.shape});
  }
  return all;
}

void fill(Share& share, std::size_t parameters) {
  for (const Piece& piece : share.pieces) {
    const std::size_t state = piece.tensor / parameters;
    const auto first = static_cast<float>(1000 * state + piece.tensor % parameters);
    for (std::int64_t k = 0; k < piece.count; ++k) {
      piece.data[k] = first + static_cast<float>(piece.whole_begin + k) / 1024;
    }
  }
}

void write(const std::string& folder) {
  std::vector<WholeTensor> state;
  for (const char* prefix : {"master.", "first_moment.", "second_moment."}) {
    for (WholeTensor& tensor : tensors_of(prefix)) state.push_back(std::move(tensor));
  }
  core::Random random(1);
  std::vector<Share> shares = random_shares(state, 3, random);
  for (Share& share : shares) fill(share, state.size() / 3);
  const Manifest manifest{.step = 7,
                          .model = {{"layers", kConfig.layers}},
                          .layout = {{"dp", "3"}},
                          .integers = {{"tokens_seen", 12345}},
                          .reals = {{"loss_scale", 65536}}};
  const auto errors = run_writers(3, [&](const CheckpointRanks& ranks) {
    const Share& share = shares[static_cast<std::size_t>(ranks.rank)];
    save_checkpoint(folder + "/run", manifest, state, share.pieces, ranks, 1);
  });
  for (const std::string& error : errors) {
    if (!error.empty()) throw core::usage_error(error);
  }
  Checkpoint checkpoint(folder + "/run");
  export_hugging_face(HuggingFaceNames(kConfig), checkpoint, folder + "/model");
}

void read(const std::string& from, const std::string& to) {
  const WeightFiles file(from);
  const std::vector<WholeTensor> tensors = tensors_of("");
  const HuggingFaceNames names(kConfig);
  write_hugging_face(names, to, tensors, [&](std::size_t tensor, std::span<float> values) {
    const std::vector<Piece> whole = {{tensor, 0, static_cast<std::int64_t>(values.size()), values.data()}};
    read_hugging_face(names, file, tensors, whole);
  });
}

void run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "write") return write(words[1]);
  if (words.size() == 3 && words[0] == "read") return read(words[1], words[2]);
  if (words.size() == 2 && words[0] == "check") {
    std::printf("%zu\n", SafetensorsFile(words[1]).tensors().size());
    return;
  }
  throw core::usage_error("checkpoint_dump write FOLDER | read FROM TO | check FILE");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
