#include "bench/kernels/record_lines.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/folder_for_tests.h"

namespace lockstep::kernel_bench {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

core::CeilingRecord ceiling(const std::string& name) {
  core::CeilingRecord record;
  record.name = name;
  return record;
}

TEST(RecordLines, EachRecordIsThereAsSoonAsItIsWritten) {
  const core::TemporaryFolder folder;
  RecordLines lines(folder / "r.jsonl");
  lines.write(ceiling("copy"));
  const std::string first = core::to_json(ceiling("copy")) + "\n";
  EXPECT_EQ(text_of(folder / "r.jsonl"), first);
  lines.write(ceiling("read"));
  EXPECT_EQ(text_of(folder / "r.jsonl"), first + core::to_json(ceiling("read")) + "\n");
}

TEST(RecordLines, AnEarlierFileStaysUntilTheFirstRecord) {
  const core::TemporaryFolder folder;
  const std::string path = folder / "r.jsonl";
  std::ofstream(path) << "earlier\n";
  RecordLines lines(path);
  EXPECT_EQ(text_of(path), "earlier\n");
  lines.write(ceiling("copy"));
  EXPECT_EQ(text_of(path), core::to_json(ceiling("copy")) + "\n");
}

TEST(RecordLines, WhatCannotBeWrittenIsNamed) {
  const core::TemporaryFolder folder;
  EXPECT_THROW(RecordLines(folder / "none/r.jsonl"), core::Error);
  EXPECT_THROW(RecordLines(folder.path()), core::Error) << "a folder";
}

}  // namespace
}  // namespace lockstep::kernel_bench
