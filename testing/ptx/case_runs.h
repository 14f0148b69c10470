// Runs of all cases, and the table of entries that follows from them.
#pragma once

#include <vector>

#include "testing/ptx/apart.h"
#include "testing/ptx/commands.h"
#include "testing/ptx/entry_table.h"

namespace lockstep::ptx {

struct CaseRun {
  const DeviceCase* device_case = nullptr;
  Result result = {};
  bool right() const { return result.errors.empty(); }
};

// Prints a line for each. The cases must outlive the result.
std::vector<CaseRun> run_all(Library& library, const std::vector<DeviceCase>& cases, const Settings& settings);

// The entries that right cases have run.
Table table_of(const std::vector<CaseRun>& runs);

// Prints the entries of the kernels that are not in the table; returns how many there are.
std::size_t print_missing(const Library& library, const Table& table);

}  // namespace lockstep::ptx
