// The line of progress with a clock and a terminal of the test, and what an interrupted program keeps.
#include "bench/program/progress.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "core/output_file.h"

namespace lockstep::program {
namespace {

namespace fs = std::filesystem;

struct Shown {
  bool is_terminal = true;
  double seconds = 100;
  std::string text;

  Progress::Terminal terminal() {
    return {is_terminal, [this] { return seconds; }, [this](const std::string& part) { text += part; }};
  }
};

TEST(Progress, IsOneLineWithDoneElapsedAndLeft) {
  Shown shown;
  {
    Progress progress("rows", 40, shown.terminal());
    progress.one_done();
    shown.seconds += 4.9;
    progress.show();
    EXPECT_EQ(shown.text, "") << "short work needs no line";
    for (int i = 0; i < 9; ++i) progress.one_done();
    shown.seconds = 130;
    progress.show();
    EXPECT_EQ(shown.text, "\r\033[K10 of 40 rows, 30 s, about 90 s left");
    progress.done(1, 21, "all_reduce 4 MiB");
    progress.show();
    EXPECT_TRUE(shown.text.ends_with("\r\033[K1 of 21 rows, 30 s, about 10 min left: all_reduce 4 MiB"));
    progress.done(20, 30, std::string(100, 'x'));
    progress.show();
    EXPECT_EQ(shown.text.substr(shown.text.rfind('\r')).substr(0, 40), "\r\033[K20 of 30 rows, 30 s, about 15 s left");
    EXPECT_EQ(shown.text.size() - shown.text.rfind('\r'), 4U + 79U);
  }
  EXPECT_TRUE(shown.text.ends_with("\r\033[K")) << "no text remains";
}

TEST(Progress, MakesRoomForOutput) {
  Shown shown;
  Progress progress("rows", 2, shown.terminal());
  const Print print = progress.around([&](const std::string& text) { shown.text += text; });
  print("first\n");
  EXPECT_EQ(shown.text, "first\n");
  shown.seconds += 10;
  progress.show();
  shown.text.clear();
  print("second\n");
  EXPECT_EQ(shown.text, "\r\033[Ksecond\n\r\033[K0 of 2 rows, 10 s");
}

TEST(Progress, IsSilentWithoutATerminal) {
  Shown shown;
  shown.is_terminal = false;
  {
    Progress progress("rows", 2, shown.terminal());
    shown.seconds += 1000;
    progress.one_done();
    progress.show();
  }
  EXPECT_EQ(shown.text, "");
}

class Interrupted : public testing::Test {
 protected:
  Interrupted() : folder_(fs::path(testing::TempDir()) / ("interrupted_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Interrupted() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(Interrupted, KeepsRecordsWithResultsAndNamesThem) {
  EXPECT_EQ(kept_text(), "");
  core::RecordFile rows(path("rows.jsonl"));
  rows.write_line("{run}");
  core::RecordFile empty(path("empty.jsonl"));
  empty.write_line("{run}");
  std::ofstream(path("other.partial.txt")) << "not ours\n";
  rows.write_line("{row}");
  EXPECT_EQ(kept_text(), path("rows.partial.jsonl") + " (2 lines)");
  EXPECT_TRUE(fs::exists(path("rows.partial.jsonl")));
  EXPECT_FALSE(fs::exists(path("empty.partial.jsonl")));
  EXPECT_TRUE(fs::exists(path("other.partial.txt")));
}

TEST_F(Interrupted, KeepsWhatIsCompleteInItsFolders) {
  const core::FolderLock lock("--checkpoints", path("checkpoints"));
  const core::FolderLock nothing("--checkpoints", path("nothing"));
  fs::create_directories(path("checkpoints/step_10"));
  fs::create_directories(path("checkpoints/step_20.partial"));
  std::ofstream(path("checkpoints/step_20.partial/weights")) << "half";
  EXPECT_EQ(kept_text(), path("checkpoints") + " (1 files or folders)");
  EXPECT_FALSE(fs::exists(path("checkpoints/step_20.partial")));
  EXPECT_FALSE(fs::exists(path("nothing")));
}

TEST_F(Interrupted, EndsWithTheStatusOfTheSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Interruption interruption("sweep");
        kill(getpid(), SIGINT);
        for (;;) pause();
      },
      testing::ExitedWithCode(130), "sweep: interrupted; nothing was kept");
}

TEST_F(Interrupted, EndsWithItsScope) {
  { const Interruption interruption("sweep"); }
  SUCCEED() << "the thread ends";
}

}  // namespace
}  // namespace lockstep::program
