// ptx_check report: every case, then mistakes in every kernel, as a page.
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/options.h"
#include "testing/ptx/case_runs.h"
#include "testing/ptx/mutant_runs.h"

namespace lockstep::ptx {
namespace {

// A row of the table: a kernel family, a dtype, and a class of shapes.
using RowName = std::tuple<std::string, std::string, std::string>;

// True if every access can be 16 bytes wide: sizes from 8 on are multiples of 8, and there is one.
bool takes_whole_accesses(std::string_view sizes) {
  bool has_sizes = false;
  for (std::size_t at = 0; (at = sizes.find_first_of("0123456789")) != std::string_view::npos;) {
    std::uint64_t size = 0;
    const char* const end = std::from_chars(sizes.data() + at, sizes.data() + sizes.size(), size).ptr;
    if (size >= 8 && size % 8 != 0) return false;
    has_sizes = has_sizes || size >= 8;
    sizes.remove_prefix(static_cast<std::size_t>(end - sizes.data()));
  }
  return has_sizes;
}

// The class of "R3_C17,shifted": "ragged,shifted".
std::string class_of(std::string_view shape) {
  const std::size_t comma = std::min(shape.find(','), shape.size());
  return (takes_whole_accesses(shape.substr(0, comma)) ? "whole accesses" : "ragged") +
         std::string(shape.substr(comma));
}

RowName row_of(const std::string& case_name) {
  const std::vector<std::string_view> parts = core::split(case_name, '/');
  if (parts.size() < 4) return {case_name, "", ""};
  return {std::string(parts[0]), std::string(parts[2]), class_of(parts[3])};
}

struct Row {
  int cases = 0;
  int wrong = 0;
  std::set<std::string> entries;
  std::map<Verdict, int> mutants;
};

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  std::string result = status == 0 ? text.get() : name;
  for (const std::string_view noise : {"lockstep::", "kernels::", "executors::", "(anonymous namespace)::", "void "}) {
    for (std::size_t at = result.find(noise); at != std::string::npos; at = result.find(noise)) {
      result.erase(at, noise.size());
    }
  }
  const std::size_t end = result.find(">(");
  return result.substr(0, end == std::string::npos ? result.find('(') : end + 1);
}

std::string table_of_rows(const std::map<RowName, Row>& rows) {
  std::string text =
      "| family | dtype | shapes | cases right | entries | mutants found | survived | equal |\n"
      "| --- | --- | --- | --: | --: | --: | --: | --: |\n";
  for (const auto& [name, row] : rows) {
    std::map<Verdict, int> number = row.mutants;
    text += fmt::format("| {} | {} | {} | {} of {} | {} | {} | {} | {} |\n", std::get<0>(name), std::get<1>(name),
                        std::get<2>(name), row.cases - row.wrong, row.cases, row.entries.size(), number[Verdict::found],
                        number[Verdict::survived], number[Verdict::equal]);
  }
  return text;
}

std::string table_of_kinds(const std::vector<TriedMutant>& mutants) {
  std::map<std::string, std::map<Verdict, int>> kinds;
  for (const TriedMutant& one : mutants) ++kinds[one.mutant.mutation.kind][one.verdict];
  std::string text = "| mistake | found | survived | equal | not reached |\n| --- | --: | --: | --: | --: |\n";
  for (auto& [kind, number] : kinds) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", kind, number[Verdict::found], number[Verdict::survived],
                        number[Verdict::equal], number[Verdict::not_reached]);
  }
  return text;
}

std::string list_of(const std::vector<TriedMutant>& mutants, Verdict verdict) {
  std::string text;
  for (const TriedMutant& one : mutants) {
    if (one.verdict != verdict) continue;
    text += fmt::format("- `{}`: {}, {} ({})", demangled(one.mutant.entry), one.mutant.mutation.kind,
                        one.mutant.mutation.what, one.mutant.place);
    text += one.text.empty() ? "\n" : fmt::format(": {}\n", one.text);
  }
  return text.empty() ? "None.\n" : text;
}

std::string page_of(const std::vector<CaseRun>& runs, std::size_t all_entries, std::size_t ran,
                    const std::vector<TriedMutant>& mutants, const Settings& settings) {
  std::map<RowName, Row> rows;
  for (const CaseRun& run : runs) {
    Row& row = rows[row_of(run.device_case->name)];
    ++row.cases;
    if (!run.right()) ++row.wrong;
    for (const auto& [entry, counts] : run.result.counts) row.entries.insert(entry);
  }
  int found = 0;
  int survived = 0;
  for (const TriedMutant& one : mutants) {
    ++rows[row_of(one.in_case)].mutants[one.verdict];
    if (one.verdict == Verdict::found) ++found;
    if (one.verdict == Verdict::survived) ++survived;
  }
  return fmt::format(
      "# Kernels without a GPU: what was executed\n\n"
      "Written by `ptx_check report` ([what it does](gpu.md)); seed {}, {} cases with at most {} elements in an "
      "operand.\n"
      "{} of {} entries of the kernels ran. {} of {} mutants that ran and change something were found.\n\n"
      "A mutant is counted in the row of the case that showed it, or of the first case that ran it. Shapes of whole\n"
      "accesses have sizes of multiples of 8; \"shifted\" operands begin one element past an aligned address.\n\n"
      "{}\n## Mistakes by kind\n\n{}\n## Mutants that survived\n\n{}\n## Mutants that change nothing\n\n{}",
      settings.seed, runs.size(), settings.elems, ran, all_entries, found, found + survived, table_of_rows(rows),
      table_of_kinds(mutants), list_of(mutants, Verdict::survived), list_of(mutants, Verdict::equal));
}

}  // namespace

int run_report(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> cases = device_cases(settings.elems);
  const std::vector<CaseRun> runs = run_all(library, cases, settings);
  const Table table = table_of(runs);
  const std::size_t missing = print_missing(library, table);
  if (!settings.table.empty()) write_table(settings.table, table);
  const std::vector<TriedMutant> mutants = try_mutants(library, NamedCases(cases), table, settings);
  std::ofstream page(settings.page);
  page << page_of(runs, table.size() + missing, table.size(), mutants, settings);
  if (!page.flush())
    throw core::Error(core::Failure::usage, fmt::format("--page {}: cannot be written", settings.page));
  const bool all_right = std::all_of(runs.begin(), runs.end(), [](const CaseRun& run) { return run.right(); });
  return all_right && missing == 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
