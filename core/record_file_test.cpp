#include "core/record_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/folder_for_tests.h"

namespace lockstep::core {
namespace {

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
  EXPECT_THROW(RecordFile(folder / "r.jsonl"), Error) << "two programs, one file";
}

}  // namespace
}  // namespace lockstep::core
