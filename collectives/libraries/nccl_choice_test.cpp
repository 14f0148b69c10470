#include "collectives/libraries/nccl_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;

std::string refused_text(std::string_view text) {
  try {
    parse_nccl_choice(text);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    return error.what();
  }
  return "";
}

TEST(NcclChoice, ReadsWhatIsGivenAndLeavesTheRestToNccl) {
  EXPECT_EQ(parse_nccl_choice("library"), NcclChoice{});
  EXPECT_EQ(parse_nccl_choice("library:algo=ring:proto=ll128"), (NcclChoice{"ring", "ll128"}));
  EXPECT_EQ(parse_nccl_choice("library:proto=simple:algo=nvls"), (NcclChoice{"nvls", "simple"}));
  EXPECT_EQ(parse_nccl_choice("library:proto=ll"), (NcclChoice{"", "ll"}));
}

TEST(NcclChoice, IsWrittenAsItIsRead) {
  for (const std::string text : {"library", "library:algo=ring:proto=ll128", "library:algo=nvls", "library:proto=ll"})
    EXPECT_EQ(nccl_choice_text(parse_nccl_choice(text)), text);
}

TEST(NcclChoice, RefusesWhatIsNoWordOfNccls) {
  for (const std::string text : {"library:", "library:algo", "library:algo=", "library:algo=butterfly",
                                 "library:proto=ll256", "library:ring", "library:algo=ring:", "library::"}) {
    const std::string why = refused_text(text);
    EXPECT_TRUE(why.starts_with("--algo " + text + ": '")) << text << ": " << why;
    EXPECT_EQ(std::count(why.begin(), why.end(), '\n'), 0) << why;
    EXPECT_NE(why.find("; allowed: algo=ring, tree"), std::string::npos) << why;
  }
}

TEST(NcclChoice, KnowsWhatThereIsInWhichCollective) {
  const auto refusal = [](std::string_view text, Kind kind) {
    return choice_refusal(parse_nccl_choice(text), kind).value_or("");
  };
  EXPECT_EQ(refusal("library", Kind::all_to_all), "");
  EXPECT_EQ(refusal("library:algo=tree:proto=ll", Kind::all_reduce), "");
  EXPECT_EQ(refusal("library:algo=pat", Kind::all_gather), "");
  EXPECT_EQ(refusal("library:proto=ll128", Kind::broadcast), "");
  EXPECT_EQ(refusal("library:algo=tree", Kind::all_gather),
            "NCCL has no all_gather by tree; allowed: ring, nvls, collnetdirect, pat");
  EXPECT_EQ(refusal("library:algo=nvls", Kind::reduce), "NCCL has no reduce by nvls; allowed: ring");
  EXPECT_EQ(refusal("library:algo=pat", Kind::all_reduce),
            "NCCL has no all_reduce by pat; allowed: ring, tree, nvls, nvlstree, collnetdirect, collnetchain");
  EXPECT_EQ(refusal("library:algo=nvls:proto=ll128", Kind::all_reduce),
            "NCCL's nvls has no protocol ll128; allowed: simple");
  EXPECT_EQ(refusal("library:proto=ll", Kind::send_recv), "NCCL has one algorithm for send_recv; allowed: library");
}

}  // namespace
}  // namespace lockstep::libraries
