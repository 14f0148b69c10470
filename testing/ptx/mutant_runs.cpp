#include "testing/ptx/mutant_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/random.h"
#include "testing/ptx/apart.h"
#include "testing/ptx/equal_mutants.h"

namespace lockstep::ptx {
namespace {

constexpr double kLimitS = 30;  // CPU time; a mistake that makes a kernel run for longer is found
constexpr int kSchedules = 2;   // seeds with which each case of a mutant is run

// Kinds differ in number by hundreds: each has its turn.
std::vector<TriedMutant> draw(Library& library, const Table& table, const Settings& settings) {
  std::map<std::string, std::vector<Mutant>> by_kind;
  for (const auto& [name, cases] : table) {
    if (cases.front().find(settings.cases) == std::string::npos) continue;
    const auto entry = library.entry(name);
    if (entry == nullptr) continue;
    for (Mutation& mutation : mutations_of(*entry)) {
      const Instruction& original = entry->instructions[mutation.index];
      by_kind[mutation.kind].push_back({name, mutation, original.opcode + ", " + entry->place_of(original)});
    }
  }
  core::Random random(settings.seed);
  std::vector<TriedMutant> drawn;
  while (drawn.size() < settings.count && !by_kind.empty()) {
    for (auto kind = by_kind.begin(); kind != by_kind.end() && drawn.size() < settings.count;) {
      auto& left = kind->second;
      const std::size_t which = random.below(left.size());
      drawn.push_back({.mutant = std::move(left[which]), .in_case = {}, .text = {}});
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
      kind = left.empty() ? by_kind.erase(kind) : std::next(kind);
    }
  }
  return drawn;
}

Job job_of(const Mutant& mutant, std::shared_ptr<const Entry> changed, const DeviceCase& in, std::uint64_t seed) {
  return {.device_case = &in,
          .options = {.seed = seed},
          .change =
              [entry = mutant.entry, changed = std::move(changed)](std::shared_ptr<const Entry> given) {
                return name_without_hashes(given->name) == entry ? changed : given;
              },
          .limit_s = kLimitS};
}

// Runs those that no case has shown yet in the `round`-th case of their entry; false if there was none.
bool try_round(Library& library, const NamedCases& cases, const Table& table, const Settings& settings,
               std::size_t round, std::vector<TriedMutant>& all) {
  std::vector<Job> jobs;
  std::vector<TriedMutant*> tried;  // [job]
  for (TriedMutant& one : all) {
    const std::vector<std::string>& names = table.at(one.mutant.entry);
    if (one.verdict == Verdict::found || round >= kSchedules * names.size()) continue;
    const auto changed = mutated(*library.entry(one.mutant.entry), one.mutant.mutation);
    const std::uint64_t seed = settings.seed + round / names.size();
    jobs.push_back(job_of(one.mutant, changed, cases.at(names[round % names.size()]), seed));
    tried.push_back(&one);
  }
  run_apart(library, jobs, settings.workers, [&](std::size_t job, const Result& result) {
    TriedMutant& one = *tried[job];
    if (one.in_case.empty()) one.in_case = jobs[job].device_case->name;
    if (!result.reached_mutant && !result.timed_out) return;
    one.verdict = result.errors.empty() ? Verdict::survived : Verdict::found;
    if (result.errors.empty()) return;
    one.in_case = jobs[job].device_case->name;
    one.text = result.errors;
  });
  return !jobs.empty();
}

}  // namespace

std::vector<TriedMutant> try_mutants(Library& library, const NamedCases& cases, const Table& table,
                                     const Settings& settings) {
  const std::vector<EqualMutants> equal = read_equal_mutants(settings.equal);
  std::vector<TriedMutant> all = draw(library, table, settings);
  for (std::size_t round = 0; try_round(library, cases, table, settings, round, all);) ++round;
  for (TriedMutant& one : all) {
    if (one.verdict != Verdict::survived) continue;
    const auto found =
        std::find_if(equal.begin(), equal.end(), [&](const EqualMutants& some) { return some.contain(one.mutant); });
    if (found == equal.end()) continue;
    one.verdict = Verdict::equal;
    one.text = found->why;
  }
  return all;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::found:
      return "found";
    case Verdict::survived:
      return "SURVIVED";
    case Verdict::not_reached:
      return "not run";
    default:
      return "equal";
  }
}

}  // namespace lockstep::ptx
