#include "workload/parameter.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::workload {
namespace {

using Shape = std::vector<std::int64_t>;

// The whole parameter's index of each element of a share, -1 for padding.
std::vector<std::int64_t> share_of(const Parameter& parameter, TensorPlace place) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(elems_of_share(parameter, place.ranks)), -1);
  std::int64_t next = 0;
  for_each_run(parameter, place, [&](std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count) {
    EXPECT_GE(share_begin, next) << "runs ascend in the share";
    EXPECT_GT(count, 0);
    next = share_begin + count;
    for (std::int64_t i = 0; i < count; ++i) share.at(static_cast<std::size_t>(share_begin + i)) = whole_begin + i;
  });
  return share;
}

TEST(Parameter, UnsplitIsWholeOnEachRank) {
  const Parameter norm{.name = "ln_f.weight", .shape = {5}};
  EXPECT_EQ(shape_of_share(norm, 4), Shape({5}));
  EXPECT_EQ(share_of(norm, {4, 2}), std::vector<std::int64_t>({0, 1, 2, 3, 4}));
}

TEST(Parameter, RowsOfBlocksAreSharedOutBlockByBlock) {
  // Q, K and V of two heads, one row each; two columns.
  const Parameter attention{.name = "attn", .shape = {6, 2}, .split = Split::rows, .blocks = {2, 2, 2}};
  EXPECT_EQ(shape_of_share(attention, 2), Shape({3, 2}));
  EXPECT_EQ(share_of(attention, {2, 0}), std::vector<std::int64_t>({0, 1, 4, 5, 8, 9}));
  EXPECT_EQ(share_of(attention, {2, 1}), std::vector<std::int64_t>({2, 3, 6, 7, 10, 11}));
}

// Four heads of queries and two of keys and values, one row each: a rank has a head of keys and the two that read it.
TEST(Parameter, QueriesGoWithTheKeysThatTheyRead) {
  const Parameter grouped{.name = "attn", .shape = {8}, .split = Split::rows, .blocks = {4, 2, 2}};
  EXPECT_EQ(share_of(grouped, {2, 0}), std::vector<std::int64_t>({0, 1, 4, 6}));
  EXPECT_EQ(share_of(grouped, {2, 1}), std::vector<std::int64_t>({2, 3, 5, 7}));
}

TEST(Parameter, RowsOfAVocabularyArePadded) {
  const Parameter words{.name = "wte", .shape = {7, 2}, .split = Split::rows};
  EXPECT_EQ(shape_of_share(words, 4), Shape({2, 2}));
  EXPECT_EQ(share_of(words, {4, 3}), std::vector<std::int64_t>({12, 13, -1, -1}));
  const Parameter few{.name = "wte", .shape = {2, 1}, .split = Split::rows};
  EXPECT_EQ(share_of(few, {4, 3}), std::vector<std::int64_t>({-1}));
}

TEST(Parameter, ColumnsAreARunARow) {
  const Parameter projection{.name = "proj", .shape = {2, 4}, .split = Split::columns};
  EXPECT_EQ(shape_of_share(projection, 2), Shape({2, 2}));
  EXPECT_EQ(share_of(projection, {2, 1}), std::vector<std::int64_t>({2, 3, 6, 7}));
  int runs = 0;
  for_each_run(projection, {1, 0}, [&](std::int64_t, std::int64_t, std::int64_t count) {
    ++runs;
    EXPECT_EQ(count, 8);
  });
  EXPECT_EQ(runs, 1) << "runs that lie side by side are one";
}

TEST(Parameter, EachWholeElementIsOnOneRank) {
  const std::vector<Parameter> parameters = {
      {.name = "wte", .shape = {11, 3}, .split = Split::rows},
      {.name = "qkv", .shape = {24, 5}, .split = Split::rows, .blocks = {8, 8, 8}},
      {.name = "qkv.bias", .shape = {24}, .split = Split::rows, .blocks = {8, 8, 8}},
      {.name = "proj", .shape = {3, 8}, .split = Split::columns},
      {.name = "two blocks", .shape = {2, 16}, .split = Split::columns, .blocks = {8, 8}},
      {.name = "qkv of few keys", .shape = {24, 5}, .split = Split::rows, .blocks = {16, 4, 4}},
  };
  for (const Parameter& parameter : parameters) {
    for (const std::int32_t ranks : {1, 2, 4}) {
      std::vector<int> seen(static_cast<std::size_t>(parameter.elems()));
      for (std::int32_t index = 0; index < ranks; ++index) {
        for (const std::int64_t whole : share_of(parameter, {ranks, index})) {
          if (whole >= 0) ++seen.at(static_cast<std::size_t>(whole));
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << parameter.name << " over " << ranks;
    }
  }
}

TEST(Parameter, WhatRanksDoNotDivideIsABug) {
  const Parameter blocks{.name = "qkv", .shape = {9, 2}, .split = Split::rows, .blocks = {3, 3, 3}};
  EXPECT_THROW(shape_of_share(blocks, 2), core::Error);
  const Parameter columns{.name = "proj", .shape = {2, 5}, .split = Split::columns};
  EXPECT_THROW(elems_of_share(columns, 2), core::Error);
  const Parameter line{.name = "bias", .shape = {4}, .split = Split::columns};
  EXPECT_THROW(elems_of_share(line, 2), core::Error);
}

}  // namespace
}  // namespace lockstep::workload
