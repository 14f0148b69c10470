// Deliberate mistakes drawn from all entries, each run until a case shows it.
#pragma once

#include <string>
#include <vector>

#include "testing/ptx/commands.h"
#include "testing/ptx/entry_table.h"
#include "testing/ptx/mutants.h"

namespace lockstep::ptx {

struct Mutant {
  std::string entry;
  Mutation mutation;
  std::string place;  // the original's: "bar.sync, PTX line 12, softmax.cu:34"
};

enum class Verdict {
  found,
  survived,
  not_reached,  // no case of the entry executes the instruction
  equal,        // survived, and equal_mutants.txt says why no case can show it
};

struct TriedMutant {
  Mutant mutant;
  Verdict verdict = Verdict::not_reached;
  std::string in_case;  // that showed it, or the first that ran
  std::string text;     // the fault, or why it is equal
};

// Mutants in the order in which they were drawn: `count` of the settings, of every kind in turn.
std::vector<TriedMutant> try_mutants(Library& library, const NamedCases& cases, const Table& table,
                                     const Settings& settings);

const char* name_of(Verdict verdict);

}  // namespace lockstep::ptx
