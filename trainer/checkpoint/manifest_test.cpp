#include "trainer/checkpoint/manifest.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "core/random.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {
namespace {

TEST(Pieces, ColumnsOfAMatrixAreOneRow) {
  std::vector<Interval> columns;
  for (std::int64_t row = 0; row < 768; ++row) columns.push_back({row * 3072 + 1024, 1024});
  const std::vector<IntervalRow> rows = fold(columns);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0], (IntervalRow{{1024, 1024}, 3072, 768}));
  EXPECT_EQ(unfold(rows), columns);
}

TEST(Pieces, FoldingLosesNothing) {
  core::Random random(1);
  for (int k = 0; k < 500; ++k) {
    std::vector<Interval> intervals;
    std::int64_t begin = 0;
    for (std::uint64_t n = random.below(12); n > 0; --n) {
      begin += static_cast<std::int64_t>(random.below(3));
      const auto count = 1 + static_cast<std::int64_t>(random.below(2));
      intervals.push_back({begin, count});
      begin += count;
    }
    EXPECT_EQ(unfold(fold(intervals)), intervals);
  }
}

// Against a set of elements.
TEST(Pieces, AnIntervalSetGivesWhatIsNew) {
  core::Random random(8);
  for (int k = 0; k < 300; ++k) {
    IntervalSet set;
    std::vector<bool> there(30);
    for (int n = 0; n < 12; ++n) {
      const std::uint64_t begin = random.below(25);
      const std::uint64_t count = random.below(6);
      std::vector<Interval> expected;
      for (std::uint64_t e = begin; e < begin + count; ++e) {
        if (there[e]) continue;
        there[e] = true;
        const auto element = static_cast<std::int64_t>(e);
        if (!expected.empty() && expected.back().begin + expected.back().count == element) {
          ++expected.back().count;
        } else {
          expected.push_back({element, 1});
        }
      }
      EXPECT_EQ(set.add({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count)}), expected);
    }
  }
}

TEST(Pieces, WholeIsEveryElementOnce) {
  EXPECT_EQ(why_not_whole({{0, 4}, {4, 6}}, 10), "");
  EXPECT_EQ(why_not_whole({{4, 6}, {0, 4}}, 10), "");
  EXPECT_EQ(why_not_whole({}, 0), "");
  EXPECT_EQ(why_not_whole({}, 3), "element 0 is missing");
  EXPECT_EQ(why_not_whole({{1, 9}}, 10), "element 0 is missing");
  EXPECT_EQ(why_not_whole({{0, 4}, {5, 5}}, 10), "element 4 is missing");
  EXPECT_EQ(why_not_whole({{0, 4}}, 10), "element 4 is missing");
  EXPECT_EQ(why_not_whole({{0, 6}, {4, 6}}, 10), "element 4 is there twice");
  EXPECT_EQ(why_not_whole({{0, 10}, {0, 10}}, 10), "element 0 is there twice");
  EXPECT_EQ(why_not_whole({{0, 11}}, 10), "there are 11 elements instead of 10");
}

// Against counting each element.
TEST(Pieces, WholeAgreesWithCounting) {
  core::Random random(2);
  int whole = 0;
  for (int k = 0; k < 5000; ++k) {
    std::vector<Interval> intervals;
    std::vector<int> times(12);
    for (std::uint64_t n = random.below(4); n > 0; --n) {
      const std::uint64_t begin = random.below(6);
      const std::uint64_t count = 1 + random.below(6 - begin);
      intervals.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count)});
      for (std::uint64_t e = begin; e < begin + count; ++e) ++times[e];
    }
    bool once = true;
    for (int e = 0; e < 6; ++e) once = once && times[static_cast<std::size_t>(e)] == 1;
    EXPECT_EQ(why_not_whole(intervals, 6).empty(), once);
    whole += once ? 1 : 0;
  }
  EXPECT_GT(whole, 50);
}

// Checkpoints that were cut, changed or mixed up: all are refused, by file and reason.

namespace fs = std::filesystem;

const std::vector<WholeTensor> kTensors = {{"w", {8, 10}}, {"b", {10}}};

class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    core::Random random(9);
    std::vector<Share> shares = random_shares(kTensors, 2, random);
    for (Share& share : shares) share.fill(1);
    const auto errors = run_writers(2, [&](const CheckpointRanks& ranks) {
      save_checkpoint(folder_.path(), {.step = 1, .model = {{"layers", 2}}}, kTensors,
                      shares[static_cast<std::size_t>(ranks.rank)].pieces, ranks, 1);
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
  }

  // Everything that a reader looks at.
  std::string refusal() const {
    return error_of([&] {
      Share share = whole_share(kTensors);
      Checkpoint(folder_.path()).read(kTensors, share.pieces);
    });
  }
  std::string path(const std::string& name) const { return folder_ / ("step-00000001/" + name); }
  // The manifest with a part replaced, and a checksum that fits.
  void forge(const std::string& from, const std::string& to) const {
    std::string text = bytes_of(path("manifest.json"));
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    const std::size_t sum = text.rfind(",\n\"crc32\": \"");
    text = text.substr(0, sum) + ",\n\"crc32\": \"" + crc32_text(crc32_of(text.substr(0, sum))) + "\"}\n";
    write_bytes(path("manifest.json"), text);
  }

  TemporaryFolder folder_;
};

TEST_F(DamageTest, FlippedBitsAreRefusedWhereverTheyAre) {
  ASSERT_EQ(refusal(), "");
  core::Random random(5);
  for (const char* name : {"step-00000001/manifest.json", "step-00000001/rank-00000.safetensors",
                           "step-00000001/rank-00001.safetensors", "latest"}) {
    const std::string file = folder_ / name;
    const std::string whole = bytes_of(file);
    ASSERT_FALSE(whole.empty());
    for (std::size_t k = 0; k < whole.size(); k += 1 + random.below(3)) {
      std::string changed = whole;
      changed[k] = static_cast<char>(changed[k] ^ (1 << random.below(8)));
      write_bytes(file, changed);
      ASSERT_EQ(refusal().rfind(file, 0), 0u) << name << " byte " << k << ": " << refusal();
    }
    write_bytes(file, whole);
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(DamageTest, EveryTruncationIsRefused) {
  for (const char* name : {"step-00000001/manifest.json", "step-00000001/rank-00000.safetensors", "latest"}) {
    const std::string file = folder_ / name;
    const std::string whole = bytes_of(file);
    for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 200) {
      write_bytes(file, whole.substr(0, length));
      ASSERT_EQ(refusal().rfind(file, 0), 0u) << name << " of " << length << " bytes: " << refusal();
    }
    write_bytes(file, whole + "x");
    EXPECT_EQ(refusal().rfind(file, 0), 0u) << refusal();
    write_bytes(file, whole);
  }
}

TEST_F(DamageTest, RefusalsSayWhatIsWrong) {
  const std::string file = path("rank-00001.safetensors");
  std::string bytes = bytes_of(file);
  const std::size_t size = bytes.size();
  const std::string sum = crc32_text(crc32_of(bytes));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(file, bytes);
  EXPECT_EQ(refusal(),
            file + " is damaged: its checksum is " + crc32_text(crc32_of(bytes)) + ", its manifest has " + sum);
  bytes.resize(size - 4);
  write_bytes(file, bytes);
  EXPECT_EQ(refusal(), file + " is damaged: it has " + std::to_string(size - 4) + " bytes, its manifest has " +
                           std::to_string(size));
  fs::remove(file);
  EXPECT_EQ(refusal(), "cannot read " + file + ": No such file or directory");
}

// No element of a damaged file reaches a reader, and a reader that needs others only is served.
TEST_F(DamageTest, NothingIsReadFromADamagedFile) {
  const std::string file = path("rank-00001.safetensors");
  std::string bytes = bytes_of(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(file, bytes);
  Checkpoint checkpoint(folder_.path());
  int served = 0;
  for (std::int64_t k = 0; k < 80; ++k) {
    float value = -1;
    const std::vector<Piece> piece = {{0, k, 1, &value}};
    const std::string error = error_of([&] { checkpoint.read(kTensors, piece); });
    EXPECT_EQ(value, error.empty() ? known_value(0, k, 1) : -1);
    served += error.empty() ? 1 : 0;
  }
  EXPECT_GT(served, 0);
  EXPECT_LT(served, 80);
}

TEST_F(DamageTest, OtherFormatsAndVersionsAreRefused) {
  const std::string manifest = path("manifest.json");
  forge("\"version\": 1", "\"version\": 2");
  EXPECT_EQ(refusal(), manifest + " is of format version 2; allowed: 1");
  forge("lockstep-checkpoint", "other");
  EXPECT_EQ(refusal(), manifest + " is no manifest of a checkpoint");
}

TEST_F(DamageTest, ManifestsThatDoNotFitTheFilesAreRefused) {
  forge("\"w\":[8,10]", "\"w\":[8,11]");
  EXPECT_EQ(refusal(), path("manifest.json") + " is damaged: of tensor \"w\" [8, 11], element 80 is missing");
  forge("\"w\":[8,11]", "\"w\":[8,10],\"v\":[1]");
  EXPECT_EQ(refusal(), path("manifest.json") + " is damaged: of tensor \"v\" [1], element 0 is missing");
  forge("rank-00000.safetensors", "../step-00000001/rank-00000.safetensors");
  EXPECT_EQ(refusal(), path("manifest.json") + " is damaged: of tensor \"v\" [1], element 0 is missing");
  forge(",\"v\":[1]", "");
  EXPECT_EQ(refusal(),
            path("manifest.json") + " is damaged: it names the file \"../step-00000001/rank-00000.safetensors\"");
  forge("\"step\": 1", "\"step\": \"one\"");
  EXPECT_EQ(refusal().rfind(path("manifest.json") + " is damaged: ", 0), 0u);
}

TEST_F(DamageTest, AManifestThatIsNoJsonIsRefused) {
  forge("\"step\": 1", "\"step\" 1");
  EXPECT_EQ(refusal().rfind(path("manifest.json") + " is damaged: ", 0), 0u) << refusal();
  write_bytes(path("manifest.json"), "");
  EXPECT_EQ(refusal(), path("manifest.json") + " is damaged: it does not end in its checksum, as if it were truncated");
}

TEST_F(DamageTest, APointerToNothingIsRefused) {
  fs::rename(folder_ / "step-00000001", folder_ / "step-00000002");
  EXPECT_EQ(refusal(), folder_ / "latest" + " names step-00000001, which is not there; name another checkpoint in " +
                           folder_.path() + " instead");
}

}  // namespace
}  // namespace lockstep::trainer
