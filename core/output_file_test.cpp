#include "core/output_file.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "core/error.h"
#include "testing/core/fixtures.h"
#include "testing/core/thrown.h"

namespace lockstep::core {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const std::string target_ = temporary_ / "records.jsonl";
};

// Runs the action in a child process and returns the action's text, or "killed".
std::string in_child(const std::function<std::string()>& action) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = action();
    const bool all = ::write(pipe_ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(all ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(pipe_ends[0], text.data(), text.size());
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return WIFEXITED(status) ? text : "killed";
}

TEST_F(AtomicFileTest, IsThereOnlyAfterCommit) {
  AtomicFile file(target_);
  file.write("one\n");
  file.write("two\n");
  EXPECT_FALSE(fs::exists(target_));
  file.commit();
  EXPECT_EQ(content(target_), "one\ntwo\n");
  EXPECT_EQ(files(), 1);
  EXPECT_THROW(file.write("three"), Error);
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  std::ofstream(target_) << "old";
  {
    AtomicFile file(target_);
    file.write("new");
  }
  EXPECT_EQ(content(target_), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, CommitReplacesWhatWasThere) {
  std::ofstream(target_) << "old and longer";
  AtomicFile file(target_);
  file.write("new");
  file.commit();
  EXPECT_EQ(content(target_), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, AFolderThatIsNotThereIsRefusedAtOnce) {
  const std::string path = (folder_ / "missing" / "r.jsonl").string();
  EXPECT_EQ(error_text([&] { AtomicFile file(path); }),
            "cannot write " + path + ": No such file or directory; allowed: a file in an existing, writable folder");
}

TEST_F(AtomicFileTest, DevicesAndFoldersAreRefused) {
  EXPECT_EQ(error_text([] { AtomicFile file("/dev/full"); }),
            "cannot write /dev/full: it exists and is not a regular file; allowed: a new file's name");
  EXPECT_TRUE(has(error_text([&] { AtomicFile file(folder_.string()); }), "not a regular file"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(AtomicFileTest, AFileThatGrowsPastTheLimitLeavesNothing) {
  const std::string text = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    return error_text([&] {
      AtomicFile file(target_);
      for (int k = 0; k < 100; ++k) file.write(std::string(1000, 'x'));
      file.commit();
    });
  });
  EXPECT_EQ(text, "cannot write " + target_ + ": File too large; the partial file was removed");
  EXPECT_EQ(files(), 0);
}

TEST_F(AtomicFileTest, AFullDiskLeavesNothing) {
  const std::string text = in_child([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
      return "skip";
    }
    const std::string error = error_text([&] {
      AtomicFile file(target_);
      for (int k = 0; k < 1000; ++k) file.write(std::string(1000, 'x'));
      file.commit();
    });
    return error + " " + std::to_string(files());
  });
  if (text == "skip") GTEST_SKIP() << "a small file system can be mounted by root only";
  EXPECT_EQ(text, "cannot write " + target_ + ": No space left on device; the partial file was removed 0");
}

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RecordFile, ThePartialNameKeepsTheExtension) {
  EXPECT_EQ(partial_path("out/a.b/rows.jsonl"), "out/a.b/rows.partial.jsonl");
  EXPECT_EQ(partial_path("rows"), "rows.partial");
}

TEST(RecordFile, EachLineIsThereAtOnceAndTheNameWhenItIsWhole) {
  const TemporaryFolder folder;
  RecordFile file(folder / "r.jsonl");
  file.write_line("run");
  EXPECT_EQ(text_of(folder / "r.partial.jsonl"), "run\n");
  file.write_line("row");
  EXPECT_EQ(text_of(folder / "r.partial.jsonl"), "run\nrow\n");
  EXPECT_FALSE(fs::exists(folder / "r.jsonl"));
  file.commit();
  EXPECT_FALSE(fs::exists(folder / "r.partial.jsonl"));
  EXPECT_EQ(text_of(folder / "r.jsonl"), "run\nrow\n");
}

TEST(RecordFile, WhatWasNotCommittedStaysIfItHasResults) {
  const TemporaryFolder folder;
  { const RecordFile none(folder / "none.jsonl"); }
  RecordFile(folder / "one.jsonl").write_line("run");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  {
    RecordFile file(folder / "two.jsonl");
    file.write_line("run");
    file.write_line("row");
  }
  EXPECT_EQ(text_of(folder / "two.partial.jsonl"), "run\nrow\n");
}

TEST(RecordFile, EarlierFilesStayUntilTheyAreReplaced) {
  const TemporaryFolder folder;
  std::ofstream(folder / "r.jsonl") << "earlier\n";
  std::ofstream(folder / "r.partial.jsonl") << "stopped\n";
  { const RecordFile refused(folder / "r.jsonl"); }
  EXPECT_EQ(text_of(folder / "r.partial.jsonl"), "stopped\n");
  RecordFile file(folder / "r.jsonl");
  file.write_line("run");
  EXPECT_EQ(text_of(folder / "r.partial.jsonl"), "run\n");
  EXPECT_EQ(text_of(folder / "r.jsonl"), "earlier\n");
  file.commit();
  EXPECT_EQ(text_of(folder / "r.jsonl"), "run\n");
}

TEST(RecordFile, TheLastLineCanBeWrittenAnew) {
  const TemporaryFolder folder;
  RecordFile file(folder / "r.jsonl");
  file.write_line("run");
  for (const char* line : {"training of one step", "training of two steps", "short"}) {
    line == std::string("training of one step") ? file.write_line(line) : file.rewrite_line(line);
    EXPECT_EQ(text_of(folder / "r.partial.jsonl"), std::string("run\n") + line + "\n");
  }
  file.write_line("end");
  EXPECT_EQ(text_of(folder / "r.partial.jsonl"), "run\nshort\nend\n");
}

TEST(RecordFile, WhatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THROW(RecordFile(folder / "none/r.jsonl"), Error);
  EXPECT_THROW(RecordFile(folder.path()), Error) << "a folder";
  const RecordFile first(folder / "r.jsonl");
  EXPECT_EQ(error_text([&] { const RecordFile second(folder / "r.jsonl"); }),
            "cannot write " + folder / "r.jsonl" + ": process " + std::to_string(getpid()) +
                " is writing it; allowed: another name");
}

// ---- folders with one writer

TEST(FolderLock, AnotherProcessIsNamedAndKeepsTheFolderUntilItEnds) {
  const TemporaryFolder folder;
  const std::string place = folder / "new/records";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock("--out", place);
    const bool sent = ::write(ends[1], "x", 1) == 1;
    while (sent) pause();
    _exit(1);
  }
  char taken = 0;
  ASSERT_EQ(read(ends[0], &taken, 1), 1);
  EXPECT_EQ(error_text([&] { const FolderLock lock("--out", place); }),
            "--out " + place + ": process " + std::to_string(child) +
                " is writing to it; allowed: another folder, or this one when it has ended");
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(error_text([&] { const FolderLock lock("--out", place); }), "");
  EXPECT_EQ(error_text([&] { const FolderLock again("--out", place); }), "") << "a lock ends with its owner";
  EXPECT_TRUE(fs::is_empty(place));
}

TEST(FolderLock, AFolderThatCannotBeMadeIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_EQ(error_text([&] { const FolderLock lock("--out", folder / "file/records"); }),
            "--out " + folder / "file/records" + ": cannot be made: Not a directory");
}

}  // namespace
}  // namespace lockstep::core
