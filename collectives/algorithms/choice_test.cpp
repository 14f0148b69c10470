#include <gtest/gtest.h>

#include <set>

#include "collectives/algorithms/every_choice.h"
#include "core/error.h"

namespace lockstep::algorithms {
namespace {

using collectives::Kind;

std::string error_of(Kind kind, std::string_view text) {
  try {
    parse_choice(kind, text);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    return error.what();
  }
  return "";
}

TEST(Choice, DefaultsAreFilledInAndLeftOutOfTheLabel) {
  const Choice choice = parse_choice(Kind::all_reduce, "ring");
  EXPECT_EQ(choice.options.at("lanes"), 1);
  EXPECT_EQ(choice.options.at("directions"), 1);
  EXPECT_EQ(choice.label(), "ring");
}

TEST(Choice, LabelParsesBack) {
  for (const Choice& choice : every_choice()) {
    const Choice again = parse_choice(choice.algorithm->kind, choice.label());
    EXPECT_EQ(again.algorithm, choice.algorithm);
    EXPECT_EQ(again.options, choice.options) << choice.label();
  }
  EXPECT_EQ(parse_choice(Kind::all_reduce, "ring:lanes=4:directions=2").label(), "ring:directions=2:lanes=4");
}

TEST(Choice, BadTextIsOneLineThatSaysWhatIsAllowed) {
  EXPECT_EQ(error_of(Kind::send_recv, "ring"), "--algo: send_recv has no algorithm 'ring'; allowed: direct");
  EXPECT_EQ(error_of(Kind::all_reduce, "ring:lanes=9"),
            "--algo: ring:lanes=9: allowed are 1 to 8 (concurrent rings in each direction)");
  EXPECT_EQ(error_of(Kind::all_reduce, "ring:width=2"),
            "--algo: 'width=2' is not an option of ring; options of ring: directions=1..2 lanes=1..8");
  EXPECT_EQ(error_of(Kind::all_reduce, "two_shot:x=1"),
            "--algo: 'x=1' is not an option of two_shot; two_shot has no options");
  for (const char* bad : {"", ":", "ring:", "ring:lanes", "ring:lanes=", "ring:lanes=2x", "ring:lanes=-1", "ring:=2",
                          "ring::lanes=2", "ring:lanes=99999999999", "ring:lanes=2:lanes=3"}) {
    EXPECT_NE(error_of(Kind::all_reduce, bad), "") << "'" << bad << "'";
  }
}

TEST(Choice, RefusalSaysWhatWouldBePossible) {
  EXPECT_EQ(refusal(parse_choice(Kind::all_reduce, "hierarchical:group=3"), 8, 0),
            "group=3 does not divide 8 ranks; possible: 1 2 4 8, or 0 to choose");
  EXPECT_EQ(refusal(parse_choice(Kind::all_reduce, "ring_2d:columns=4"), 12, 0), std::nullopt);
  EXPECT_EQ(refusal(parse_choice(Kind::hypercube, "exchange"), 6, 0),
            "needs a power of two ranks, not 6; nearest: 4 or 8");
  EXPECT_THROW(make_plan(parse_choice(Kind::hypercube, "exchange"), 6, 0), core::Error);
}

TEST(Choice, OnlyWhatIsImpossibleByNatureIsRefused) {
  for (const Algorithm& algorithm : catalogue()) {
    const Choice choice = parse_choice(algorithm.kind, algorithm.name);
    for (int p = 1; p <= 40; ++p) {
      const bool possible = algorithm.kind != Kind::hypercube || (p & (p - 1)) == 0;
      EXPECT_EQ(refusal(choice, p, 0) == std::nullopt, possible) << title(choice) << " " << p;
    }
  }
}

TEST(Choice, PlanCarriesItsLabel) {
  EXPECT_EQ(make_plan(parse_choice(Kind::all_reduce, "tree:radix=4"), 5, 0).algorithm, "tree:radix=4");
  EXPECT_EQ(make_plan(parse_choice(Kind::all_reduce, "tree:radix=4"), 1, 0).algorithm, "tree:radix=4");
}

TEST(Catalogue, EveryCollectiveHasAlgorithmsAndNamesAreUnique) {
  for (const Kind kind : collectives::all_kinds()) {
    std::set<std::string_view> names;
    for (const Algorithm* algorithm : algorithms_of(kind)) {
      EXPECT_TRUE(names.insert(algorithm->name).second) << algorithm->name;
      EXPECT_FALSE(algorithm->idea.empty());
      EXPECT_FALSE(algorithm->source.empty());
    }
    EXPECT_FALSE(names.empty()) << collectives::name_of(kind);
  }
}

TEST(Catalogue, DefaultsAreInRange) {
  for (const Algorithm& algorithm : catalogue()) {
    for (const Option& option : algorithm.options) {
      EXPECT_LE(option.min_value, option.default_value);
      EXPECT_LE(option.default_value, option.max_value);
      EXPECT_FALSE(option.meaning.empty());
    }
  }
}

}  // namespace
TEST(Choice, TunedVariantsAreChoicesThatAreNotTheDefaults) {
  for (const Algorithm& algorithm : catalogue()) {
    for (const std::string& variant : tuned_variants(algorithm.kind)) {
      EXPECT_EQ(parse_choice(algorithm.kind, variant).label(), variant);
    }
  }
  EXPECT_EQ(tuned_variants(Kind::all_reduce),
            (std::vector<std::string>{"ring:lanes=2", "tree:radix=4", "tree:radix=8"}));
}

}  // namespace lockstep::algorithms
