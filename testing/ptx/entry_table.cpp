#include "testing/ptx/entry_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "core/error.h"
#include "core/options.h"

namespace lockstep::ptx {
namespace {

bool is_shifted(const RightCase& one) {
  return one.name.ends_with(",shifted");
}

}  // namespace

Table read_table(const std::string& path) {
  const std::string text = core::text_of_file(path, "a table of entries and cases", "--table " + path);
  Table table;
  int number = 0;
  for (const std::string_view line : core::split(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      throw core::Error(core::Failure::usage,
                        fmt::format("--table {}:{}: has no tab; allowed: ENTRY<tab>CASE", path, number));
    }
    table[std::string(line.substr(0, tab))].emplace_back(line.substr(tab + 1));
  }
  return table;
}

void write_table(const std::string& path, const Table& table) {
  std::ofstream file(path);
  file << "# Entries of the kernels' PTX and cases that run them; written by ptx_check run --table.\n";
  for (const auto& [entry, cases] : table) {
    for (const std::string& name : cases) file << entry << '\t' << name << '\n';
  }
  if (!file.flush()) throw core::Error(core::Failure::usage, fmt::format("--table {}: cannot be written", path));
}

// By the cheapest case with other alignment, and by larger ones, code runs for which few elements, or operands at any
// address, are no reason; rings of buffers are used again only by large ones.
std::vector<std::string> cases_for(std::vector<RightCase> all) {
  constexpr std::uint64_t kGrowth = 3;        // from one case to the next
  constexpr std::uint64_t kLong = 1'500'000;  // instructions of warps
  constexpr std::size_t kMost = 5;
  std::stable_sort(all.begin(), all.end(),
                   [](const RightCase& a, const RightCase& b) { return a.instructions < b.instructions; });
  std::vector<std::string> names{all.front().name};
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const RightCase& one) { return is_shifted(one) != is_shifted(all.front()); });
  if (other != all.end()) names.push_back(other->name);
  std::uint64_t last = all.front().instructions;
  for (const RightCase& one : all) {
    if (names.size() == kMost || one.instructions > kLong) break;
    if (one.instructions < kGrowth * last || one.name == names.back()) continue;
    names.push_back(one.name);
    last = one.instructions;
  }
  return names;
}

NamedCases::NamedCases(std::vector<DeviceCase> all) {
  for (DeviceCase& one : all) {
    const std::string name = one.name;
    cases_.emplace(name, std::move(one));
  }
}

const DeviceCase& NamedCases::at(const std::string& name) const {
  const auto found = cases_.find(name);
  if (found != cases_.end()) return found->second;
  throw core::Error(core::Failure::usage,
                    fmt::format("case '{}' does not exist; make the table again: ptx_check run --table", name));
}

void print_result(const std::string& name, const Result& result) {
  std::printf("%-8s %6.2f s  %s%s%s\n", result.errors.empty() ? "right" : "WRONG", result.cpu_s, name.c_str(),
              result.errors.empty() ? "" : ": ", result.errors.substr(0, 500).c_str());
  std::fflush(stdout);
}

}  // namespace lockstep::ptx
