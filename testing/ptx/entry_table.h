// The table of entries and the cases that run them: "entry<tab>case", a line for each case; the first of an entry is
// the cheapest.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "testing/ptx/apart.h"
#include "testing/ptx/device_cases.h"

namespace lockstep::ptx {

using Table = std::map<std::string, std::vector<std::string>>;  // cases, by entry

// Throws a usage Error if the file cannot be read or a line is not of that form.
Table read_table(const std::string& path);
void write_table(const std::string& path, const Table& table);

// A case that was right, with the instructions that its warps executed.
struct RightCase {
  std::string name;
  std::uint64_t instructions = 0;
};

// Cases in which mistakes of an entry are looked for, the cheapest first.
std::vector<std::string> cases_for(std::vector<RightCase> all);

// Device cases by name.
class NamedCases {
 public:
  explicit NamedCases(std::vector<DeviceCase> all);
  // Throws a usage Error if there is none.
  const DeviceCase& at(const std::string& name) const;

 private:
  std::map<std::string, DeviceCase> cases_;
};

void print_result(const std::string& name, const Result& result);

}  // namespace lockstep::ptx
