// Collective algorithms: each a pure function from integers to the steps of a Plan, listed in one explicit catalogue.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::algorithms {

// Arguments of a generator. `options` are the algorithm's own integers, complete (defaults filled in).
struct Shape {
  int num_ranks;
  int root = 0;
  std::map<std::string, int, std::less<>> options;
  int option(std::string_view name) const;  // LOCKSTEP_CHECK fails if it is not declared
};

// Writes the plan into a builder of the collective, its ranks and its root.
using Generator = void(plan::PlanBuilder& builder, const Shape& shape);

// One integer that a user may set: `--algo ring:lanes=4`.
struct Option {
  std::string_view name;
  int default_value;
  int min_value;
  int max_value;
  std::string_view meaning;
  std::vector<int> also_tuned = {};  // further values that bench/tune tries
};

struct Algorithm {
  collectives::Kind kind;
  std::string_view name;    // "ring", "double_tree", "recursive_doubling", ...
  std::string_view idea;    // one line
  std::string_view source;  // paper and section, or documentation
  std::vector<Option> options;
  // Returns why these integers are impossible, and the possible ones; nothing if they are fine.
  std::optional<std::string> (*refuse)(const Shape&);
  Generator* generate;
};

// All algorithms of all collectives, in the order in which they are shown.
std::span<const Algorithm> catalogue();
std::vector<const Algorithm*> algorithms_of(collectives::Kind kind);

// An algorithm with its options chosen.
struct Choice {
  const Algorithm* algorithm;
  std::map<std::string, int, std::less<>> options;  // complete
  // "ring", "ring:lanes=4": only options that differ from the defaults
  std::string label() const;
};

// Parses "name" or "name:key=value:key=value". Throws a usage Error that lists what is allowed.
Choice parse_choice(collectives::Kind kind, std::string_view text);

// "tree:radix=4", ...: the collective's algorithms with one option at one of its also_tuned values.
std::vector<std::string> tuned_variants(collectives::Kind kind);

// Plan of a choice. Throws a usage Error if the algorithm refuses these integers.
plan::Plan make_plan(const Choice& choice, int num_ranks, int root);
// Returns why make_plan would refuse; nothing if it would not.
std::optional<std::string> refusal(const Choice& choice, int num_ranks, int root);

}  // namespace lockstep::algorithms
