// Executes the compiled PTX of the GPU kernels without a GPU: docs/gpu.md, "Kernels without a GPU".
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/options.h"
#include "testing/ptx/commands.h"

namespace lockstep::ptx {
namespace {

using core::OptionText;

struct Command {
  const char* name;
  const char* meaning;
  int (*run)(Library&, const Settings&);
};
constexpr Command kCommands[] = {
    {"run", "every case; with --table, writes the cases of each entry", run_cases},
    {"entries", "each entry of the table in its cheapest case", run_entries},
    {"mutants", "deliberate mistakes in entries of the table, of which most must be found", run_mutants},
    {"counts", "what each kernel does in one case; with --json, as records", run_counts},
    {"dump", "writes the launches of cases into a folder: dump FOLDER OUT", run_dump},
    {"launch", "runs the launches that FOLDER has as files; with --json, counts them", run_launches},
};

struct Flag {
  const char* name;
  const char* meaning;
  void (*read)(Settings&, const OptionText&);
};
constexpr Flag kFlags[] = {
    {"--cases", "only cases whose name contains this",
     [](Settings& to, const OptionText& value) { to.cases = value.text; }},
    {"--table", "file of entries and the cases that run them",
     [](Settings& to, const OptionText& value) { to.table = core::file_name(value); }},
    {"--also", "cases that `entries` runs besides, with semicolons between them",
     [](Settings& to, const OptionText& value) { to.also = core::text_list(value, ';'); }},
    {"--equal", "file of mistakes that change nothing",
     [](Settings& to, const OptionText& value) { to.equal = core::file_name(value); }},
    {"--seed", "draws inputs, schedules and mistakes",
     [](Settings& to, const OptionText& value) { to.seed = static_cast<std::uint64_t>(value.integer(0)); }},
    {"--count", "number of mistakes",
     [](Settings& to, const OptionText& value) { to.count = static_cast<std::size_t>(value.integer(1)); }},
    {"--least", "percent of the mistakes that must be found",
     [](Settings& to, const OptionText& value) { to.least_percent = value.integer(0, 100); }},
    {"--elems", "leaves out cases with a larger operand",
     [](Settings& to, const OptionText& value) { to.elems = value.integer(1); }},
    {"--above", "leaves out cases without an operand that is larger than this",
     [](Settings& to, const OptionText& value) { to.above = value.integer(0); }},
    {"--json", "file of records", [](Settings& to, const OptionText& value) { to.json = core::file_name(value); }},
    {"--workers", "processes at a time",
     [](Settings& to, const OptionText& value) { to.workers = core::integer(value, 1, 256); }},
};

std::string usage() {
  std::string text =
      "usage: ptx_check COMMAND FOLDER [FLAG VALUE]...\nFOLDER: .ptx files, from the CMake target "
      "lockstep_ptx_files\n";
  for (const Command& one : kCommands) text += fmt::format("  {:<10} {}\n", one.name, one.meaning);
  for (const Flag& one : kFlags) text += fmt::format("  {:<10} {}\n", one.name, one.meaning);
  return text;
}

// The entry of a table with this name.
template <class Entries>
const auto& named(const Entries& entries, const std::string& what, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& one : entries) {
    if (one.name == name) return one;
    names.emplace_back(one.name);
  }
  throw core::unknown_name(what + " " + name + ": not known", name, names);
}

int main_of(const std::vector<std::string>& words) {
  if (words.size() < 2) throw core::Error(core::Failure::usage, usage());
  const Command& command = named(kCommands, "command", words[0]);
  Settings settings;
  const bool has_out = words.size() > 2 && !words[2].starts_with("--");
  if (has_out) settings.out = words[2];
  for (std::size_t i = has_out ? 3 : 2; i < words.size(); i += 2) {
    const Flag& flag = named(kFlags, "flag", words[i]);
    if (i + 1 == words.size()) throw core::Error(core::Failure::usage, words[i] + ": needs a value");
    flag.read(settings, {.names = flag.name, .text = words[i + 1]});
  }
  Library library = Library::read(words[1]);
  return command.run(library, settings);
}

}  // namespace
}  // namespace lockstep::ptx

int main(int argc, char** argv) {
  try {
    return lockstep::ptx::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ptx_check: %s\n", error.what());
    return 2;
  }
}
