#include "bench/kernels/record_lines.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.h"

namespace lockstep::kernel_bench {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("record_lines_test-" + core::new_run_id());
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
};

core::CeilingRecord ceiling(const std::string& name) {
  core::CeilingRecord record;
  record.name = name;
  return record;
}

TEST(RecordLines, EachRecordIsThereAsSoonAsItIsWritten) {
  const Folder folder;
  RecordLines lines((folder.path / "r.jsonl").string());
  lines.write(ceiling("copy"));
  const std::string first = core::to_json(ceiling("copy")) + "\n";
  EXPECT_EQ(text_of(folder.path / "r.jsonl"), first);
  lines.write(ceiling("read"));
  EXPECT_EQ(text_of(folder.path / "r.jsonl"), first + core::to_json(ceiling("read")) + "\n");
}

TEST(RecordLines, AnEarlierFileStaysUntilTheFirstRecord) {
  const Folder folder;
  const fs::path path = folder.path / "r.jsonl";
  std::ofstream(path) << "earlier\n";
  RecordLines lines(path.string());
  EXPECT_EQ(text_of(path), "earlier\n");
  lines.write(ceiling("copy"));
  EXPECT_EQ(text_of(path), core::to_json(ceiling("copy")) + "\n");
}

TEST(RecordLines, WhatCannotBeWrittenIsNamed) {
  const Folder folder;
  EXPECT_THROW(RecordLines((folder.path / "none" / "r.jsonl").string()), core::Error);
  EXPECT_THROW(RecordLines(folder.path.string()), core::Error) << "a folder";
}

}  // namespace
}  // namespace lockstep::kernel_bench
