#include "bench/tuned_files.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/error.h"
#include "testing/core/thrown.h"

namespace lockstep::tuned_files {
namespace {

using collectives::Kind;
using tuning::Entry;

std::vector<Entry> nccl_points() {
  return {{"nccl", Kind::all_reduce, 8, 1024, "library:algo=tree:proto=ll"},
          {"nccl", Kind::all_reduce, 8, 4096, "library:algo=tree:proto=ll"},
          {"nccl", Kind::all_reduce, 8, 65536, "library:algo=ring:proto=ll128"},
          {"nccl", Kind::all_gather, 16, 1024, "library:algo=collnetdirect:proto=simple", 2},
          {"nccl", Kind::all_to_all, 8, 1024, "library"},
          {"mpi", Kind::all_reduce, 8, 1024, "library:algorithm=ring"}};
}

TEST(Ranges, MeetAtGeometricMeansAndEndHalfAStepBeyondTheOutermostSizes) {
  const std::vector<Entry> points{{"mpi", Kind::all_reduce, 4, 65536, "b"},
                                  {"mpi", Kind::all_reduce, 4, 1024, "a"},
                                  {"mpi", Kind::all_reduce, 4, 4096, "a"}};
  EXPECT_EQ(ranges_of(points), (std::vector<Range>{{724, 16383, "a"}, {16384, 92682, "b"}}));
  EXPECT_TRUE(ranges_of({}).empty());
}

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.front() != '#') rows.push_back(line);
  }
  return rows;
}

// The plugin reads lines of at most 255 characters, without spaces, with 10 fields.
TEST(NcclTunerFile, HasARowForEachRangeAndNamesWhatNcclCannotTune) {
  const TunedFile file = nccl_tuner_file(nccl_points(), 16);
  EXPECT_EQ(rows_of(file.text), (std::vector<std::string>{"allreduce,724,16383,tree,ll,16,1,8,-1,-1",
                                                          "allreduce,16384,92682,ring,ll128,16,1,8,-1,-1",
                                                          "allgather,724,1448,collnet_direct,simple,16,2,16,-1,-1"}));
  EXPECT_EQ(file.rules, 3);
  EXPECT_EQ(file.left_out, (std::vector<std::string>{"all_to_all: NCCL's tuner has no choice for it"}));
}

std::optional<int> id_of(Kind /*kind*/, std::string_view name) {
  if (name == "recursive_doubling") return 3;
  if (name == "ring") return 4;
  return std::nullopt;
}

// Reads numbers as Open MPI 4.1 does: white space and comments from # on are skipped.
std::vector<long> numbers_of(const std::string& text) {
  std::vector<long> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (long number = 0; words >> number;) numbers.push_back(number);
  }
  return numbers;
}

TEST(OpenMpiRules, BeginAtZeroAndLeaveWhatWasNotMeasuredToOpenMpi) {
  const std::vector<Entry> points{{"mpi", Kind::all_reduce, 4, 1024, "library:algorithm=recursive_doubling"},
                                  {"mpi", Kind::all_reduce, 4, 4096, "library"},
                                  {"mpi", Kind::all_reduce, 4, 65536, "library:algorithm=ring"},
                                  {"mpi", Kind::all_to_all_v, 4, 1024, "library"}};
  const TunedFile file = openmpi_rules_file(points, id_of);
  const std::vector<long> expected{1,     2, 3,                                            // all_reduce, 3 sizes
                                   0,     1, 0, 0, 0,     0,                               // up to 3 ranks
                                   4,     5, 0, 0, 0,     0, 724, 3, 4, 0, 2048, 0, 0, 0,  // 4 ranks
                                   16384, 4, 4, 0, 92683, 0, 0,   0,                       //
                                   5,     1, 0, 0, 0,     0};                              // more ranks
  EXPECT_EQ(numbers_of(file.text), expected);
  EXPECT_EQ(file.rules, 2);
  EXPECT_EQ(file.left_out,
            (std::vector<std::string>{"all_to_all_v: Open MPI's rules cannot choose its algorithm by size"}));
}

TEST(OpenMpiRules, OfNeighbouringNumbersOfRanksKeepBoth) {
  const std::vector<Entry> points{{"mpi", Kind::broadcast, 2, 64, "library:algorithm=ring"},
                                  {"mpi", Kind::broadcast, 3, 64, "library:algorithm=recursive_doubling"}};
  EXPECT_EQ(numbers_of(openmpi_rules_file(points, id_of).text),
            (std::vector<long>{1, 7, 4,                                     //
                               0, 1, 0, 0, 0, 0,                            //
                               2, 3, 0, 0, 0, 0, 45, 4, 4, 0, 92, 0, 0, 0,  //
                               3, 3, 0, 0, 0, 0, 45, 3, 4, 0, 92, 0, 0, 0,  //
                               4, 1, 0, 0, 0, 0}));
}

TEST(OpenMpiRules, RefuseAnAlgorithmThatTheLibraryLacks) {
  const std::vector<Entry> points{{"mpi", Kind::all_reduce, 4, 64, "library:algorithm=gone"}};
  EXPECT_EQ(core::refusal_of([&] { openmpi_rules_file(points, id_of); }),
            "library:algorithm=gone: the MPI library has no all_reduce of that name; run tune again with this library");
}

}  // namespace
}  // namespace lockstep::tuned_files
