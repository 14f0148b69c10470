// Mistakes that change nothing that a program could see, and why: lines "KIND | ENTRY | PLACE | WHY" of a file, where
// ENTRY is a part of the mangled name, and PLACE of "left out, bar.sync, PTX line 12, softmax.cu:34".
#pragma once

#include <string>
#include <vector>

namespace lockstep::ptx {

struct Mutant;

struct EqualMutants {
  std::string kind;
  std::string entry;  // empty: any
  std::string place;  // empty: any
  std::string why;

  bool contain(const Mutant& mutant) const;
};

// Throws a usage Error if the file cannot be read or a line is not of that form. `path` may be empty: none.
std::vector<EqualMutants> read_equal_mutants(const std::string& path);

}  // namespace lockstep::ptx
