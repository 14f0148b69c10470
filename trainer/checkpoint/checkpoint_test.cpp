#include "trainer/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/ranks_for_tests.h"
#include "trainer/checkpoint/save_checkpoint.h"

namespace lockstep::trainer {
namespace {

namespace fs = std::filesystem;

const std::vector<WholeTensor> kTensors = {{"master.wte.weight", {48, 12}},
                                           {"first_moment.wte.weight", {48, 12}},
                                           {"master.h.0.mlp.c_proj.weight", {12, 48}},
                                           {"master.ln_f.bias", {12}},
                                           {"one", {1}}};

Manifest manifest_of(std::int64_t step) {
  return {.step = step,
          .model = {{"layers", 2}, {"hidden", 12}},
          .layout = {{"dp", "2"}, {"schedule", "1f1b"}},
          .integers = {{"tokens_seen", step * 4096}, {"seed", -7}},
          .reals = {{"loss_scale", 65536}, {"tenth", 0.1}}};
}

// Saves known values from so many ranks.
void save(const std::string& folder, std::int64_t step, std::vector<Share>& shares, std::int32_t keep = 3) {
  for (Share& share : shares) share.fill(step);
  const auto errors = run_writers(static_cast<std::int32_t>(shares.size()), [&](const CheckpointRanks& ranks) {
    save_checkpoint(folder, manifest_of(step), kTensors, shares[static_cast<std::size_t>(ranks.rank)].pieces, ranks,
                    keep);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void save(const std::string& folder, std::int64_t step, std::int32_t keep = 3) {
  core::Random random(static_cast<std::uint64_t>(step));
  std::vector<Share> shares = random_shares(kTensors, 2, random);
  save(folder, step, shares, keep);
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(Checkpoint, AnyRanksReadWhatAnyRanksWrote) {
  core::Random random(4);
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    const TemporaryFolder folder;
    std::vector<Share> written = random_shares(kTensors, 1 + static_cast<std::int32_t>(random.below(6)), random);
    save(folder.path(), trial, written);
    std::vector<Share> read = random_shares(kTensors, 1 + static_cast<std::int32_t>(random.below(6)), random);
    for (Share& share : read) {
      Checkpoint checkpoint(folder.path());
      checkpoint.read(kTensors, share.pieces);
      EXPECT_EQ(share.wrong(trial), 0);
    }
  }
}

TEST(Checkpoint, TheManifestComesBack) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.path(), folder / "step-00000010");
  const Manifest& manifest = checkpoint.manifest();
  EXPECT_EQ(manifest.step, 10);
  EXPECT_EQ(manifest.model, manifest_of(10).model);
  EXPECT_EQ(manifest.layout, manifest_of(10).layout);
  EXPECT_EQ(manifest.integers, manifest_of(10).integers);
  EXPECT_EQ(manifest.reals, manifest_of(10).reals);
  EXPECT_EQ(checkpoint.tensors().at("master.wte.weight"), (Shape{48, 12}));
}

// Replicas, whole or in other pieces, and a tensor that one rank has twice: all is written once.
TEST(Checkpoint, WhatSeveralRanksHaveIsWrittenOnce) {
  core::Random random(12);
  std::int64_t elems = 0;
  for (const WholeTensor& tensor : kTensors) elems += elems_of(tensor.shape);
  for (int trial = 0; trial < 10; ++trial) {
    const TemporaryFolder folder;
    std::vector<Share> shares = random_shares(kTensors, 2, random);
    for (Share& share : random_shares(kTensors, 3, random)) shares.push_back(std::move(share));
    for (Share& share : shares) {
      const std::vector<Piece> again = share.pieces;
      share.pieces.insert(share.pieces.end(), again.begin(), again.end());
      share.place();
    }
    save(folder.path(), trial, shares);
    std::int64_t written = 0;
    for (const auto& entry : fs::directory_iterator(folder / checkpoint_name(trial))) {
      if (entry.path().extension() != ".safetensors") continue;
      const SafetensorsFile file(entry.path().string());
      for (const TensorInfo& tensor : file.tensors()) written += tensor.elems();
    }
    EXPECT_EQ(written, elems);
    Share read = whole_share(kTensors);
    Checkpoint(folder.path()).read(kTensors, read.pieces);
    EXPECT_EQ(read.wrong(trial), 0);
  }
}

// Ranks without pieces write no file.
TEST(Checkpoint, RanksMayHaveNothingToWrite) {
  const TemporaryFolder folder;
  std::vector<Share> shares(1);
  shares[0] = whole_share(kTensors);
  shares.resize(3);
  save(folder.path(), 1, shares);
  EXPECT_EQ(names_in(folder / "step-00000001"), (std::set<std::string>{"manifest.json", "rank-00000.safetensors"}));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-00000001"}));
}

TEST(Checkpoint, TheNewestAreKeptAndTheLatestIsRead) {
  const TemporaryFolder folder;
  for (std::int64_t step = 1; step <= 5; ++step) save(folder.path(), step, 2);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-00000004", "step-00000005"}));
  EXPECT_EQ(Checkpoint(folder.path()).manifest().step, 5);
  EXPECT_EQ(Checkpoint(folder / "step-00000004").manifest().step, 4);
  save(folder.path(), 2, 2);  // a run that went on from an older step: newest is what was written last
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-00000002", "step-00000005"}));
  EXPECT_EQ(Checkpoint(folder.path()).manifest().step, 2);
  save(folder.path(), 7, 1);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-00000007"}));
}

TEST(Checkpoint, TheSameStepAgainTakesThePlaceOfTheOld) {
  const TemporaryFolder folder;
  save(folder.path(), 3);
  std::vector<Share> shares(1);
  shares[0] = whole_share(kTensors);
  save(folder.path(), 3, shares);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-00000003"}));
  Checkpoint checkpoint(folder.path());
  Share read = whole_share(kTensors);
  checkpoint.read(kTensors, read.pieces);
  EXPECT_EQ(read.wrong(3), 0);
  EXPECT_EQ(names_in(checkpoint.path()).size(), 2u);
}

TEST(Checkpoint, OnlyLeftoversOfOurNamesAreRemoved) {
  const TemporaryFolder folder;
  const std::set<std::string> theirs = {"step-1.partial",   "notes.partial", "step-00000001x",
                                        "latest.partial-x", "data",          "step-00000001.partial.txt"};
  for (const std::string& name : theirs) write_bytes(folder / name, "mine");
  fs::create_directories(folder / "step-00000009.partial");
  write_bytes(folder / "step-00000009.partial/rank-00000.safetensors", "half");
  write_bytes(folder / "latest.partial-123", "half");
  save(folder.path(), 10);
  std::set<std::string> expected = theirs;
  expected.insert({"latest", "step-00000010"});
  EXPECT_EQ(names_in(folder.path()), expected);
}

TEST(Checkpoint, WithoutAPointerTheNewestIsFound) {
  const TemporaryFolder folder;
  EXPECT_EQ(find_checkpoint(folder.path()), std::nullopt);
  EXPECT_EQ(find_checkpoint(folder / "none"), std::nullopt);
  save(folder.path(), 1);
  save(folder.path(), 2);
  fs::remove(folder / "latest");
  EXPECT_EQ(find_checkpoint(folder.path()), folder / "step-00000002");
}

TEST(Checkpoint, NamesOfStepsSortAndGrow) {
  EXPECT_EQ(checkpoint_name(0), "step-00000000");
  EXPECT_EQ(checkpoint_name(123456789012), "step-123456789012");
}

// ---- a rank that fails: all ranks hear of it, and what was there stays

TEST(SaveCheckpoint, WhatDoesNotMakeUpTheWholeIsRefusedOnAllRanks) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  std::vector<Share> shares(1);
  shares[0] = whole_share(kTensors);
  shares.resize(2);
  --shares[0].pieces[2].count;
  const auto errors = run_writers(2, [&](const CheckpointRanks& ranks) {
    save_checkpoint(folder.path(), manifest_of(2), kTensors, shares[static_cast<std::size_t>(ranks.rank)].pieces, ranks,
                    3);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "cannot save a checkpoint in " + folder.path() + ": rank 0: " + folder.path() +
                         "/step-00000002.partial/manifest.json is damaged: of tensor \"master.h.0.mlp.c_proj.weight\" "
                         "[12, 48], element 575 is missing");
  }
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-00000001"}));
}

TEST(SaveCheckpoint, AFolderThatCannotBeMadeIsRefusedOnAllRanks) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", "x");
  const auto errors = run_writers(3, [&](const CheckpointRanks& ranks) {
    save_checkpoint(folder / "file", manifest_of(2), kTensors, {}, ranks, 3);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.rfind("cannot save a checkpoint in " + folder / "file" + ": rank 0: ", 0), 0u) << error;
  }
}

// ---- what does not fit the model

TEST(Checkpoint, AnotherModelIsRefusedByTheFirstField) {
  const Integers model = {{"hidden", 12}, {"layers", 2}};
  EXPECT_EQ(error_of([&] { require_same("c", model, model); }), "");
  EXPECT_EQ(error_of([&] {
              require_same("c", model, {{"hidden", 16}, {"layers", 2}});
            }),
            "c: hidden is 12, the model's is 16");
  EXPECT_EQ(error_of([&] { require_same("c", model, {{"hidden", 12}}); }), "c: layers is 2, the model's is nothing");
  EXPECT_EQ(error_of([&] { require_same("c", {{"hidden", 12}}, model); }), "c: layers is nothing, the model's is 2");
}

TEST(Checkpoint, MissingTensorsAndOtherShapesAreRefused) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  Checkpoint checkpoint(folder.path());
  float value = 0;
  const std::vector<Piece> piece = {{0, 0, 1, &value}};
  EXPECT_EQ(error_of([&] {
              checkpoint.read(std::vector<WholeTensor>{{"other", {1}}}, piece);
            }),
            folder / "step-00000001" + " has no tensor \"other\"");
  EXPECT_EQ(error_of([&] {
              checkpoint.read(std::vector<WholeTensor>{{"one", {2, 3}}}, piece);
            }),
            folder / "step-00000001" + ": tensor \"one\" is [1], the model's is [2, 3]");
}

TEST(Checkpoint, NothingThereIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { const Checkpoint checkpoint(folder.path()); }),
            "no checkpoint in " + folder.path() + "; allowed: a folder step-N, or one that has such folders");
}

}  // namespace
}  // namespace lockstep::trainer
