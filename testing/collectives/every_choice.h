// For tests: every algorithm of the catalogue with several values of its options.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithm.h"

namespace lockstep::algorithms {

// Texts for parse_choice: the defaults first, then each option's small values, then some in combination.
inline std::vector<std::string> choice_texts(const Algorithm& algorithm) {
  std::vector<std::string> texts{std::string(algorithm.name)};
  for (const Option& option : algorithm.options) {
    for (const int value : {1, 2, 3, 4, 8}) {
      const bool is_new = value != option.default_value && value >= option.min_value && value <= option.max_value;
      if (is_new) texts.push_back(texts.front() + ":" + std::string(option.name) + "=" + std::to_string(value));
    }
  }
  if (algorithm.name == "ring") texts.push_back("ring:directions=2:lanes=3");
  if (algorithm.name == "tree") texts.push_back("tree:radix=3:chunks=5");
  if (algorithm.name == "server") texts.push_back("server:servers=3:last=1");
  return texts;
}

inline std::vector<Choice> every_choice() {
  std::vector<Choice> choices;
  for (const Algorithm& algorithm : catalogue()) {
    for (const std::string& text : choice_texts(algorithm)) choices.push_back(parse_choice(algorithm.kind, text));
  }
  return choices;
}

inline std::string title(const Choice& choice) {
  return std::string(collectives::name_of(choice.algorithm->kind)) + " " + choice.label();
}

// All roots up to 8 ranks, the first, second and last above; 0 if the collective has none.
inline std::set<int> roots_to_try(collectives::Kind kind, int num_ranks) {
  if (!collectives::has_root(kind)) return {0};
  if (num_ranks > 8) return {0, 1, num_ranks - 1};
  std::set<int> roots;
  for (int r = 0; r < num_ranks; ++r) roots.insert(r);
  return roots;
}

}  // namespace lockstep::algorithms
