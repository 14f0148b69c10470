// Commands of ptx_check, each in a source of its own; they return the program's exit status.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "testing/ptx/device_cases.h"
#include "testing/ptx/interpreter.h"

namespace lockstep::ptx {

struct Settings {
  std::string cases;              // only those whose name contains this
  std::string table;              // file of entries and cases
  std::vector<std::string> also;  // names of cases
  std::string equal;              // file of mistakes that change nothing
  std::uint64_t seed = 1;
  std::size_t count = 300;           // number of mutants
  std::int64_t elems = 200'000;      // at most, in a case's largest operand
  std::int64_t above = 0;            // and at least one more than this
  std::int64_t least_percent = 100;  // share of the mutants that must be found
  int workers = 2;
  std::string json;  // file of records
  std::string out;   // folder
};

int run_cases(Library& library, const Settings& settings);
int run_entries(Library& library, const Settings& settings);
int run_mutants(Library& library, const Settings& settings);
int run_counts(Library& library, const Settings& settings);
int run_dump(Library& library, const Settings& settings);
int run_launches(Library& library, const Settings& settings);

}  // namespace lockstep::ptx
