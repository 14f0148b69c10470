// Executes the compiled PTX of the GPU kernels without a GPU: docs/gpu.md, "Kernels without a GPU".
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "testing/ptx/apart.h"
#include "testing/ptx/mutants.h"

namespace lockstep::ptx {
namespace {

constexpr const char* kUsage =
    "usage: ptx_check COMMAND FOLDER [--cases PATTERN] [--table FILE] [--seed N] [--count N] [--elems N] [--workers "
    "N]\n"
    "  run      runs every case whose name contains PATTERN; with --table, writes the cheapest case of each entry\n"
    "  entries  runs each entry of the table in its case\n"
    "  mutants  runs COUNT deliberate mistakes in entries of the table, each of which must show\n"
    "FOLDER: .ptx files, from the CMake target lockstep_ptx. --elems: cases with a larger operand are left out.\n";

struct Settings {
  std::string command;
  std::string folder;
  std::string cases;
  std::string table;
  std::uint64_t seed = 1;
  std::size_t count = 300;
  std::int64_t elems = 200'000;
  int workers = 2;
};

Settings settings_of(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) throw core::Error(core::Failure::usage, kUsage);
  Settings settings{.command = words[0], .folder = words[1]};
  for (std::size_t i = 2; i < words.size(); i += 2) {
    if (i + 1 == words.size()) throw core::Error(core::Failure::usage, words[i] + ": needs a value");
    const std::string& value = words[i + 1];
    const auto number = [&] {
      try {
        return std::stoull(value);
      } catch (const std::exception&) {
        throw core::Error(core::Failure::usage, fmt::format("{}: '{}' is not a number", words[i], value));
      }
    };
    if (words[i] == "--cases")
      settings.cases = value;
    else if (words[i] == "--table")
      settings.table = value;
    else if (words[i] == "--seed")
      settings.seed = number();
    else if (words[i] == "--count")
      settings.count = number();
    else if (words[i] == "--elems")
      settings.elems = static_cast<std::int64_t>(number());
    else if (words[i] == "--workers")
      settings.workers = static_cast<int>(number());
    else
      throw core::Error(core::Failure::usage, fmt::format("unknown flag '{}'\n{}", words[i], kUsage));
  }
  return settings;
}

// The table: a line for each entry, with the case that runs it: "entry<tab>case".
std::map<std::string, std::string> read_table(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw core::Error(core::Failure::usage, fmt::format("--table {}: cannot be read", path));
  std::map<std::string, std::string> table;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t tab = line.find('\t');
    table[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return table;
}

struct Cheapest {
  std::string name;
  std::uint64_t instructions = 0;
};

void print_result(const std::string& name, const Result& result) {
  std::printf("%-8s %6.2f s  %s%s%s\n", result.errors.empty() ? "right" : "WRONG", result.cpu_s, name.c_str(),
              result.errors.empty() ? "" : ": ", result.errors.substr(0, 500).c_str());
  std::fflush(stdout);
}

int run(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> all = device_cases(settings.elems);
  std::vector<Job> jobs;
  for (const DeviceCase& one : all) {
    if (one.name.find(settings.cases) == std::string::npos) continue;
    jobs.push_back({.device_case = &one, .options = {.seed = settings.seed}});
  }
  int wrong = 0;
  double cpu_s = 0;
  std::map<std::string, Cheapest> cheapest;
  run_apart(library, jobs, settings.workers, [&](std::size_t index, const Result& result) {
    cpu_s += result.cpu_s;
    const std::string& name = jobs[index].device_case->name;
    print_result(name, result);
    if (!result.errors.empty()) {
      ++wrong;
      return;
    }
    std::uint64_t instructions = 0;
    for (const auto& [entry, counts] : result.counts) instructions += counts.warp_instructions;
    for (const auto& [entry, counts] : result.counts) {
      Cheapest& known = cheapest[entry];
      if (known.name.empty() || instructions < known.instructions) known = {name, instructions};
    }
  });
  std::size_t not_run = 0;
  for (const std::string& name : library.entry_names()) {
    if (cheapest.count(name) > 0) continue;
    ++not_run;
    if (settings.cases.empty()) std::printf("not run  %s %s\n", library.file_of(name).c_str(), name.c_str());
  }
  if (!settings.table.empty()) {
    std::ofstream table(settings.table);
    table << "# Entries of the kernels' PTX and the cheapest case that runs each; written by ptx_check run --table.\n";
    for (const auto& [entry, known] : cheapest) table << entry << '\t' << known.name << '\n';
  }
  std::printf("%zu cases, %d wrong; %zu entries ran, %zu did not; %.1f s of CPU\n", jobs.size(), wrong, cheapest.size(),
              not_run, cpu_s);
  return wrong == 0 ? 0 : 1;
}

std::map<std::string, const DeviceCase*> by_name(const std::vector<DeviceCase>& cases) {
  std::map<std::string, const DeviceCase*> result;
  for (const DeviceCase& one : cases) result[one.name] = &one;
  return result;
}

const DeviceCase& case_named(const std::map<std::string, const DeviceCase*>& cases, const std::string& name) {
  const auto found = cases.find(name);
  if (found == cases.end())
    throw core::Error(core::Failure::usage, fmt::format("the table's case '{}' does not exist", name));
  return *found->second;
}

int run_entries(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> all = device_cases(settings.elems);
  const auto cases = by_name(all);
  const auto table = read_table(settings.table);
  int problems = 0;
  std::set<std::string> names;
  for (const std::string& entry : library.entry_names()) {
    const auto found = table.find(entry);
    if (found == table.end()) {
      std::printf("NO CASE  %s: add one, and make the table again\n", entry.c_str());
      ++problems;
    } else {
      names.insert(found->second);
    }
  }
  std::vector<Job> jobs;
  for (const std::string& name : names) {
    jobs.push_back({.device_case = &case_named(cases, name), .options = {.seed = settings.seed}});
  }
  std::set<std::string> ran;
  double cpu_s = 0;
  run_apart(library, jobs, settings.workers, [&](std::size_t index, const Result& result) {
    cpu_s += result.cpu_s;
    for (const auto& [entry, counts] : result.counts) ran.insert(entry);
    if (result.errors.empty()) return;
    ++problems;
    print_result(jobs[index].device_case->name, result);
  });
  for (const auto& [entry, name] : table) {
    if (ran.count(entry) > 0) continue;
    std::printf("NOT RUN  %s by %s\n", entry.c_str(), name.c_str());
    ++problems;
  }
  std::printf("%zu entries of the kernels in %zu cases: %d problems; %.1f s of CPU\n", ran.size(), jobs.size(),
              problems, cpu_s);
  return problems == 0 ? 0 : 1;
}

struct Candidate {
  std::string entry;
  Mutation mutation;
  std::string line;  // of the original
};

// Draws mutations so that each kind has its turn: kinds differ in number by hundreds.
std::vector<Candidate> draw(Library& library, const std::map<std::string, std::string>& table,
                            const Settings& settings) {
  std::map<std::string, std::vector<Candidate>> by_kind;
  for (const auto& [name, in_case] : table) {
    if (in_case.find(settings.cases) == std::string::npos) continue;
    const auto entry = library.entry(name);
    if (entry == nullptr)
      throw core::Error(core::Failure::usage, fmt::format("the table's entry {} does not exist", name));
    for (Mutation& mutation : mutations_of(*entry)) {
      const Instruction& original = entry->instructions[mutation.index];
      by_kind[mutation.kind].push_back({name, mutation, original.opcode + ", " + entry->place_of(original)});
    }
  }
  core::Random random(settings.seed);
  std::vector<Candidate> drawn;
  while (drawn.size() < settings.count && !by_kind.empty()) {
    for (auto kind = by_kind.begin(); kind != by_kind.end() && drawn.size() < settings.count;) {
      auto& left = kind->second;
      const std::size_t which = random.below(left.size());
      drawn.push_back(std::move(left[which]));
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
      kind = left.empty() ? by_kind.erase(kind) : std::next(kind);
    }
  }
  return drawn;
}

int run_mutants(Library& library, const Settings& settings) {
  const std::vector<DeviceCase> all = device_cases(settings.elems);
  const auto cases = by_name(all);
  const auto table = read_table(settings.table);
  const std::vector<Candidate> candidates = draw(library, table, settings);
  std::vector<Job> jobs;
  for (const Candidate& candidate : candidates) {
    const auto entry = library.entry(candidate.entry);
    const auto changed = mutated(*entry, candidate.mutation);
    jobs.push_back({.device_case = &case_named(cases, table.at(candidate.entry)),
                    .options = {.seed = settings.seed},
                    .change = [name = candidate.entry, changed](std::shared_ptr<const Entry> given) {
                      return name_without_hashes(given->name) == name ? changed : given;
                    }});
  }
  struct Tally {
    int found = 0;
    int survived = 0;
    int not_reached = 0;
  };
  std::map<std::string, Tally> tallies;
  Tally sum;
  run_apart(library, jobs, settings.workers, [&](std::size_t index, const Result& result) {
    const Candidate& candidate = candidates[index];
    const bool reached = result.reached_mutant || result.timed_out;
    const char* verdict = !reached ? "not run" : result.errors.empty() ? "SURVIVED" : "found";
    for (Tally* tally : {&tallies[candidate.mutation.kind], &sum}) {
      ++(!reached ? tally->not_reached : result.errors.empty() ? tally->survived : tally->found);
    }
    std::printf("%-8s %5.2f s  %s: %s | %s | %s | %s\n", verdict, result.cpu_s, candidate.mutation.kind.c_str(),
                candidate.mutation.what.c_str(), candidate.line.c_str(), table.at(candidate.entry).c_str(),
                result.errors.substr(0, 300).c_str());
    std::fflush(stdout);
  });
  for (const auto& [kind, tally] : tallies) {
    std::printf("%-18s %4d found, %4d survived, %4d not run\n", kind.c_str(), tally.found, tally.survived,
                tally.not_reached);
  }
  std::printf("%d of %d mutants that ran were found\n", sum.found, sum.found + sum.survived);
  return sum.survived == 0 ? 0 : 1;
}

int main_of(int argc, char** argv) {
  const Settings settings = settings_of(argc, argv);
  Library library = Library::read(settings.folder);
  if (settings.command == "run") return run(library, settings);
  if (settings.command == "entries") return run_entries(library, settings);
  if (settings.command == "mutants") return run_mutants(library, settings);
  throw core::Error(core::Failure::usage, fmt::format("'{}' is not a command\n{}", settings.command, kUsage));
}

}  // namespace
}  // namespace lockstep::ptx

int main(int argc, char** argv) {
  try {
    return lockstep::ptx::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ptx_check: %s\n", error.what());
    return 2;
  }
}
