// ptx_check mutants: how many deliberate mistakes are found.
#include <cstdio>
#include <map>
#include <vector>

#include "testing/ptx/commands.h"
#include "testing/ptx/entry_table.h"
#include "testing/ptx/mutant_runs.h"

namespace lockstep::ptx {
namespace {

void print(const TriedMutant& one) {
  std::printf("%-8s | %s | %s | %s | %s | %s | %s\n", name_of(one.verdict), one.mutant.mutation.kind.c_str(),
              one.mutant.mutation.what.c_str(), one.mutant.place.c_str(), one.mutant.entry.c_str(), one.in_case.c_str(),
              one.text.substr(0, 300).c_str());
}

}  // namespace

int run_mutants(Library& library, const Settings& settings) {
  const NamedCases cases(device_cases(settings.elems));
  const std::vector<TriedMutant> all = try_mutants(library, cases, read_table(settings.table), settings);
  std::map<std::string, std::map<Verdict, int>> of_kind;
  std::map<Verdict, int> sum;
  for (const TriedMutant& one : all) {
    print(one);
    ++of_kind[one.mutant.mutation.kind][one.verdict];
    ++sum[one.verdict];
  }
  for (auto& [kind, number] : of_kind) {
    std::printf("%-18s %4d found, %4d survived, %4d equal, %4d not run\n", kind.c_str(), number[Verdict::found],
                number[Verdict::survived], number[Verdict::equal], number[Verdict::not_reached]);
  }
  const int found = sum[Verdict::found];
  const int could_be = found + sum[Verdict::survived];
  std::printf("%d of %d mutants that ran and change something were found\n", found, could_be);
  return found > 0 && std::int64_t{100} * found >= settings.least_percent * could_be ? 0 : 1;
}

}  // namespace lockstep::ptx
