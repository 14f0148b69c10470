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
#include "testing/ptx/commands.h"
#include "testing/ptx/mutants.h"

namespace lockstep::ptx {
namespace {

constexpr const char* kUsage =
    "usage: ptx_check COMMAND FOLDER [--cases PATTERN] [--table FILE] [--seed N] [--count N] [--elems N] [--workers "
    "N]\n"
    "  run      runs every case whose name contains PATTERN; with --table, writes the cheapest case of each entry\n"
    "  entries  runs each entry of the table in its case\n"
    "  mutants  runs COUNT deliberate mistakes in entries of the table, of which PERCENT must show (default 100)\n"
    "FOLDER: .ptx files, from the CMake target lockstep_ptx. --elems: cases with a larger operand are left out; "
    "--above: those\n"
    "without one that is larger than this.\n";

struct Given {
  std::string command;
  std::string folder;
  std::string cases = {};
  std::string table = {};
  std::uint64_t seed = 1;
  std::size_t count = 300;
  std::int64_t elems = 200'000;
  std::int64_t above = 0;
  std::uint64_t least = 100;
  int workers = 2;
  std::string json = {};
  std::string out = {};
};

Given settings_of(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) throw core::Error(core::Failure::usage, kUsage);
  Given settings{.command = words[0], .folder = words[1]};
  const bool has_out = words.size() > 2 && !words[2].starts_with("--");
  if (has_out) settings.out = words[2];
  for (std::size_t i = has_out ? 3 : 2; i < words.size(); i += 2) {
    if (i + 1 == words.size()) throw core::Error(core::Failure::usage, words[i] + ": needs a value");
    const std::string& value = words[i + 1];
    const auto number = [&] {
      try {
        return std::stoull(value);
      } catch (const std::exception&) {
        throw core::Error(core::Failure::usage, fmt::format("{}: '{}' is not a number", words[i], value));
      }
    };
    if (words[i] == "--json")
      settings.json = value;
    else if (words[i] == "--out")
      settings.out = value;
    else if (words[i] == "--cases")
      settings.cases = value;
    else if (words[i] == "--table")
      settings.table = value;
    else if (words[i] == "--seed")
      settings.seed = number();
    else if (words[i] == "--count")
      settings.count = number();
    else if (words[i] == "--elems")
      settings.elems = static_cast<std::int64_t>(number());
    else if (words[i] == "--above")
      settings.above = static_cast<std::int64_t>(number());
    else if (words[i] == "--least")
      settings.least = number();
    else if (words[i] == "--workers")
      settings.workers = static_cast<int>(number());
    else
      throw core::Error(core::Failure::usage, fmt::format("unknown flag '{}'\n{}", words[i], kUsage));
  }
  return settings;
}

// The table: "entry<tab>case", a line for each case in which an entry is run; the first of an entry is the cheapest.
// The case "-" stands for entries that no case runs yet.
constexpr std::string_view kNoCase = "-";
using Table = std::map<std::string, std::vector<std::string>>;

Table read_table(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw core::Error(core::Failure::usage, fmt::format("--table {}: cannot be read", path));
  Table table;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t tab = line.find('\t');
    table[line.substr(0, tab)].push_back(line.substr(tab + 1));
  }
  return table;
}

struct Ran {
  std::string name;
  std::uint64_t instructions = 0;
};

// The cheapest case, the cheapest one with other alignment, and the largest one that is not long: by them code runs for
// which few elements, or operands at any address, are no reason.
std::vector<std::string> cases_for(std::vector<Ran> all) {
  constexpr std::uint64_t kLong = 300'000;  // instructions of warps
  const auto is_shifted = [](const Ran& ran) { return ran.name.ends_with(",shifted"); };
  std::stable_sort(all.begin(), all.end(), [](const Ran& a, const Ran& b) { return a.instructions < b.instructions; });
  std::vector<std::string> names{all.front().name};
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Ran& ran) { return is_shifted(ran) != is_shifted(all.front()); });
  if (other != all.end()) names.push_back(other->name);
  const auto large = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Ran& ran) { return ran.instructions <= kLong && !is_shifted(ran); });
  if (large != all.rend() && std::find(names.begin(), names.end(), large->name) == names.end())
    names.push_back(large->name);
  return names;
}

void print_result(const std::string& name, const Result& result) {
  std::printf("%-8s %6.2f s  %s%s%s\n", result.errors.empty() ? "right" : "WRONG", result.cpu_s, name.c_str(),
              result.errors.empty() ? "" : ": ", result.errors.substr(0, 500).c_str());
  std::fflush(stdout);
}

int run(Library& library, const Given& settings) {
  const std::vector<DeviceCase> all = device_cases(settings.elems);
  std::vector<Job> jobs;
  for (const DeviceCase& one : all) {
    if (one.name.find(settings.cases) == std::string::npos || one.most_elems <= settings.above) continue;
    jobs.push_back({.device_case = &one, .options = {.seed = settings.seed}});
  }
  int wrong = 0;
  double cpu_s = 0;
  std::map<std::string, std::vector<Ran>> ran;
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
    for (const auto& [entry, counts] : result.counts) ran[entry].push_back({name, instructions});
  });
  std::size_t not_run = 0;
  for (const std::string& name : library.entry_names()) {
    if (ran.count(name) > 0) continue;
    ++not_run;
    if (settings.cases.empty()) std::printf("not run  %s %s\n", library.file_of(name).c_str(), name.c_str());
  }
  if (!settings.table.empty()) {
    std::ofstream table(settings.table);
    table << "# Entries of the kernels' PTX and cases that run them; written by ptx_check run --table.\n";
    for (const auto& [entry, of_entry] : ran) {
      for (const std::string& name : cases_for(of_entry)) table << entry << '\t' << name << '\n';
    }
  }
  std::printf("%zu cases, %d wrong; %zu entries ran, %zu did not; %.1f s of CPU\n", jobs.size(), wrong, ran.size(),
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

int run_entries(Library& library, const Given& settings) {
  const std::vector<DeviceCase> all = device_cases(settings.elems);
  const auto cases = by_name(all);
  const auto table = read_table(settings.table);
  int problems = 0;
  int without_case = 0;
  std::set<std::string> names;
  for (const std::string& entry : library.entry_names()) {
    const auto found = table.find(entry);
    if (found == table.end()) {
      std::printf("NO CASE  %s: add one, and make the table again\n", entry.c_str());
      ++problems;
    } else {
      if (found->second.front() == kNoCase)
        ++without_case;
      else
        names.insert(found->second.front());
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
  for (const auto& [entry, in_cases] : table) {
    if (ran.count(entry) > 0 || in_cases.front() == kNoCase) continue;
    std::printf("NOT RUN  %s by %s\n", entry.c_str(), in_cases.front().c_str());
    ++problems;
  }
  std::printf("%zu entries of the kernels in %zu cases, %d others have none yet: %d problems; %.1f s of CPU\n",
              ran.size(), jobs.size(), without_case, problems, cpu_s);
  return problems == 0 ? 0 : 1;
}

struct Candidate {
  std::string entry;
  Mutation mutation;
  std::string line;  // the original's
};

// Draws mutations so that each kind has its turn: kinds differ in number by hundreds.
std::vector<Candidate> draw(Library& library, const Table& table, const Given& settings) {
  std::map<std::string, std::vector<Candidate>> by_kind;
  for (const auto& [name, in_cases] : table) {
    if (in_cases.front() == kNoCase || in_cases.front().find(settings.cases) == std::string::npos) continue;
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

int run_mutants(Library& library, const Given& settings) {
  const std::vector<DeviceCase> all = device_cases(settings.elems);
  const auto cases = by_name(all);
  const auto table = read_table(settings.table);
  const std::vector<Candidate> candidates = draw(library, table, settings);
  std::vector<Job> jobs;
  std::vector<std::size_t> candidate_of;  // [job]
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto changed = mutated(*library.entry(candidates[i].entry), candidates[i].mutation);
    for (const std::string& name : table.at(candidates[i].entry)) {
      jobs.push_back({.device_case = &case_named(cases, name),
                      .options = {.seed = settings.seed},
                      .change = [entry = candidates[i].entry, changed](std::shared_ptr<const Entry> given) {
                        return name_without_hashes(given->name) == entry ? changed : given;
                      }});
      candidate_of.push_back(i);
    }
  }
  struct Verdict {
    bool reached = false;
    std::string errors;  // from the first case that shows the mistake
    std::string in_case;
  };
  std::vector<Verdict> verdicts(candidates.size());
  run_apart(library, jobs, settings.workers, [&](std::size_t job, const Result& result) {
    Verdict& verdict = verdicts[candidate_of[job]];
    verdict.reached = verdict.reached || result.reached_mutant || result.timed_out;
    if (result.errors.empty() || !verdict.errors.empty()) return;
    verdict.errors = result.errors;
    verdict.in_case = jobs[job].device_case->name;
  });
  struct Tally {
    int found = 0;
    int survived = 0;
    int not_reached = 0;
  };
  std::map<std::string, Tally> tallies;
  Tally sum;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const Verdict& verdict = verdicts[i];
    const bool found = !verdict.errors.empty();
    for (Tally* tally : {&tallies[candidate.mutation.kind], &sum}) {
      ++(!verdict.reached ? tally->not_reached : found ? tally->found : tally->survived);
    }
    std::printf("%-8s %s: %s | %s | %s | %s\n",
                !verdict.reached ? "not run"
                : found          ? "found"
                                 : "SURVIVED",
                candidate.mutation.kind.c_str(), candidate.mutation.what.c_str(), candidate.line.c_str(),
                found ? verdict.in_case.c_str() : table.at(candidate.entry).front().c_str(),
                verdict.errors.substr(0, 300).c_str());
  }
  for (const auto& [kind, tally] : tallies) {
    std::printf("%-18s %4d found, %4d survived, %4d not run\n", kind.c_str(), tally.found, tally.survived,
                tally.not_reached);
  }
  std::printf("%d of %d mutants that ran were found\n", sum.found, sum.found + sum.survived);
  const auto found = static_cast<std::uint64_t>(sum.found);
  return 100 * found >= settings.least * static_cast<std::uint64_t>(sum.found + sum.survived) && sum.found > 0 ? 0 : 1;
}

int main_of(int argc, char** argv) {
  const Given settings = settings_of(argc, argv);
  Library library = Library::read(settings.folder);
  if (settings.command == "run") return run(library, settings);
  if (settings.command == "entries") return run_entries(library, settings);
  if (settings.command == "mutants") return run_mutants(library, settings);
  const Settings given{.cases = settings.cases, .seed = settings.seed, .elems = settings.elems, .workers = settings.workers, .json = settings.json, .out = settings.out};
  if (settings.command == "counts") return run_counts(library, given);
  if (settings.command == "dump") return run_dump(library, given);
  if (settings.command == "launch") return run_launches(library, given);
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
