#include "trainer/checkpoint/checkpoint.h"

#include <sys/wait.h>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "collectives/transports/local_world.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "trainer/checkpoint/manifest.h"

namespace lockstep::trainer {
namespace {

std::string text_of(int rank, int size) {
  return std::string(static_cast<std::size_t>(size), static_cast<char>('a' + rank));
}

TEST(GatherText, TextsOfAnyLengthComeInTheOrderOfRanks) {
  for (const int ranks : {1, 2, 4}) {
    transports::LocalGroup group({.num_ranks = ranks});
    group.run([&](transports::LocalWorld& world) {
      for (const int unit : {0, 1, 700, 5000}) {  // a board takes 1024 bytes at once: more and fewer
        const std::vector<std::string> all = gather_text(world, text_of(world.rank(), unit * world.rank()));
        ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text_of(r, unit * r));
      }
    });
  }
}

// As a trainer calls it: ranks of a world write one checkpoint.
TEST(GatherText, RanksOfAWorldSave) {
  const TemporaryFolder folder;
  const std::vector<WholeTensor> tensors = {{"w", {4, 6}}};
  transports::LocalGroup group({.num_ranks = 3});
  group.run([&](transports::LocalWorld& world) {
    Share share;
    share.pieces = {{0, std::int64_t{8} * world.rank(), 8}};
    share.place();
    share.fill(5);
    const auto gather = [&world](const std::string& mine) { return gather_text(world, mine); };
    save_checkpoint(folder.path(), {.step = 5}, tensors, share.pieces, {world.rank(), gather}, 1);
  });
  Share share;
  share.pieces = {{0, 0, 24}};
  share.place();
  Checkpoint(folder.path()).read(tensors, share.pieces);
  EXPECT_EQ(share.wrong(5), 0);
}

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

// Saves known values from this many ranks.
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

// ---- a rank that fails: all ranks report it, and what was there stays

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

// kill -9 of a process that writes checkpoints, at any moment: the latest is always whole.

const std::vector<WholeTensor> kTensorsOfKills = {{"w", {100, 64}}, {"b", {64}}};

// Saves step after step until it is killed, each step twice, as a run that went on from an older step does.
[[noreturn]] void save_for_ever(const std::string& folder, std::int64_t step) {
  Share share = whole_share(kTensorsOfKills);
  for (;; ++step) {
    share.fill(step);
    for (int again = 0; again < 2; ++again) {
      save_checkpoint(folder, {.step = step}, kTensorsOfKills, share.pieces, {}, 2);
    }
  }
}

// The step of the latest checkpoint, all of whose elements are right; 0 if there is none.
std::int64_t check_latest(const std::string& folder) {
  if (!find_checkpoint(folder)) return 0;
  Checkpoint checkpoint(folder);
  Share share = whole_share(kTensorsOfKills);
  checkpoint.read(kTensorsOfKills, share.pieces);
  EXPECT_EQ(share.wrong(checkpoint.manifest().step), 0);
  return checkpoint.manifest().step;
}

TEST(Kill, LeavesTheLastGoodCheckpoint) {
  const TemporaryFolder folder;
  core::Random random(3);
  std::int64_t step = 0;
  int cut = 0;  // kills that found a checkpoint half written or half removed
  // More than 40 kills only on a machine so busy that a child does not get to write in time.
  for (int trial = 0; trial < 40 || (trial < 400 && (step == 0 || cut == 0)); ++trial) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder.path(), step + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random.below(40'000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const std::int64_t latest = check_latest(folder.path());
    EXPECT_GE(latest, step);  // nothing that was there has gone
    step = latest;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (entry.path().extension() == ".partial") ++cut;
    }
  }
  EXPECT_GT(step, 0);
  EXPECT_GT(cut, 0);
  // The next writer removes what the killed ones have left.
  Share share = whole_share(kTensorsOfKills);
  share.fill(step + 1);
  save_checkpoint(folder.path(), {.step = step + 1}, kTensorsOfKills, share.pieces, {}, 1);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", checkpoint_name(step + 1)}));
}

}  // namespace
}  // namespace lockstep::trainer
